// How the pieces of a tokenizer.json become bytes: byte-level alphabet, or SentencePiece's U+2581 with byte tokens.

import { PagodaError } from '../errors.ts';
import { pieceToBytes } from './byte-alphabet.ts';
import { type TokenEntry, TokenKind } from './token-table.ts';

type Json = Readonly<Record<string, unknown>>;

export interface HfDecoding {
  /** Decoding takes one space away from the front of the text. */
  readonly hasSpacePrefix: boolean;
  entry(piece: string): TokenEntry;
}

const SPACE_MARK = '\u2581';
const BYTE_PIECE = /^<0x([0-9A-Fa-f]{2})>$/;
const utf8 = new TextEncoder();

export function hfDecoding(json: Json): HfDecoding {
  const steps = decoderSteps(json.decoder);
  const types = steps.map((step) => step.type);
  if (types.includes('ByteLevel')) return { hasSpacePrefix: false, entry: byteLevelEntry };
  const metaspace = steps.find((step) => step.type === 'Metaspace');
  if (metaspace) {
    const isPrefixed = metaspace.prepend_scheme !== 'never' && metaspace.add_prefix_space !== false;
    return { hasSpacePrefix: isPrefixed, entry: markedEntry };
  }
  if (types.includes('Replace') && types.includes('ByteFallback')) {
    const hasSpacePrefix = steps.some((step) => step.type === 'Strip' && Number(step.start) > 0);
    return { hasSpacePrefix, entry: markedEntry };
  }
  throw new PagodaError(
    'unsupported',
    `The decoder of tokenizer.json (${types.join(', ') || 'none'}) is not supported. ` +
      'Supported: ByteLevel, Metaspace, Replace with ByteFallback.',
  );
}

function decoderSteps(decoder: unknown): Json[] {
  if (typeof decoder !== 'object' || decoder === null) return [];
  const { type, decoders } = decoder as Json;
  return type === 'Sequence' && Array.isArray(decoders) ? decoders.flatMap(decoderSteps) : [decoder as Json];
}

function byteLevelEntry(piece: string): TokenEntry {
  return { piece, kind: TokenKind.normal, bytes: pieceToBytes(piece) ?? utf8.encode(piece) };
}

function markedEntry(piece: string): TokenEntry {
  const hex = BYTE_PIECE.exec(piece)?.[1];
  if (hex !== undefined) return { piece, kind: TokenKind.byte, bytes: Uint8Array.of(Number.parseInt(hex, 16)) };
  return { piece, kind: TokenKind.normal, bytes: utf8.encode(piece.replaceAll(SPACE_MARK, ' ')) };
}
