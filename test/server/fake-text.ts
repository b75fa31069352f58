// A byte-level tokenizer (id = byte; 256 BOS, 257 EOS, 258 `<|user|>`, 259 `<|reply|>`) and the plainest possible text service,
// so that protocol tests know every token, offset and character by heart.

import { PagodaError } from '../../src/errors.ts';
import type { ChoiceText, TextPiece } from '../../src/server/generation.ts';
import type { TextService } from '../../src/server/server-context.ts';
import type { Tokenizer } from '../../src/text/tokenizer.ts';

export const BOS = 256;
export const EOS = 257;
const CONTROL = ['<bos>', '<eos>', '<|user|>', '<|reply|>'];

export function bytes(text: string): number[] {
  return [...new TextEncoder().encode(text)];
}

export class ByteTokenizer implements Tokenizer {
  readonly kind = 'bytes';
  readonly vocabSize = 260;
  readonly bosTokenId = BOS;
  readonly eosTokenId = EOS;
  readonly addsBos = true;

  encode(text: string, options: { addSpecialTokens: boolean }): number[] {
    return options.addSpecialTokens ? [BOS, ...bytes(text)] : bytes(text);
  }
  decode(tokenIds: ArrayLike<number>, options: { skipSpecialTokens: boolean }): string {
    const kept = Array.from(tokenIds).filter((id) => !(options.skipSpecialTokens && this.isControl(id)));
    return new TextDecoder().decode(Buffer.concat(kept.map((id) => this.tokenBytes(id))));
  }
  tokenBytes(tokenId: number): Uint8Array {
    return tokenId < 256 ? Uint8Array.of(tokenId) : new TextEncoder().encode(CONTROL[tokenId - 256] ?? '');
  }
  tokenText(tokenId: number): string {
    return new TextDecoder().decode(this.tokenBytes(tokenId));
  }
  tokenPiece(tokenId: number): string {
    return tokenId < 256 ? `<0x${tokenId.toString(16).padStart(2, '0')}>` : (CONTROL[tokenId - 256] ?? '');
  }
  isControl(tokenId: number): boolean {
    return tokenId >= 256;
  }
  tokenId(piece: string): number | null {
    const at = CONTROL.indexOf(piece);
    return at < 0 ? null : 256 + at;
  }
}

/** Decodes everything again for each token and looks for stop strings everywhere: slow and obviously right. */
class PlainText implements ChoiceText {
  readonly #tokenizer: Tokenizer;
  readonly #stop: readonly string[];
  readonly #includeStop: boolean;
  readonly #skip: boolean;
  readonly #ids: number[] = [];
  #numShown = 0;

  constructor(
    tokenizer: Tokenizer,
    options: { stop: readonly string[]; includeStop: boolean; skipSpecialTokens: boolean },
  ) {
    this.#tokenizer = tokenizer;
    this.#stop = options.stop;
    this.#includeStop = options.includeStop;
    this.#skip = options.skipSpecialTokens;
  }

  push(tokenIds: readonly number[]): TextPiece {
    for (let i = 0; i < tokenIds.length; i++) {
      this.#ids.push(tokenIds[i]!);
      const found = this.#findStop(this.#text().replace(/\ufffd+$/, ''));
      if (found !== null) return { ...found, numTokens: i + 1 };
    }
    const text = this.#text().replace(/\ufffd+$/, '');
    const holdBack = Math.max(0, ...this.#stop.map((stop) => stop.length - 1));
    return {
      text: this.#show(text, Math.max(this.#numShown, text.length - holdBack)),
      stop: null,
      numTokens: tokenIds.length,
    };
  }

  finish(): TextPiece {
    const text = this.#text();
    return { text: this.#show(text, text.length), stop: null, numTokens: 0 };
  }

  #text(): string {
    return this.#tokenizer.decode(this.#ids, { skipSpecialTokens: this.#skip });
  }

  #findStop(text: string): { text: string; stop: string } | null {
    const hits = this.#stop.map((stop) => ({ stop, at: text.indexOf(stop) })).filter((hit) => hit.at >= 0);
    if (hits.length === 0) return null;
    const { stop, at } = hits.sort((a, b) => a.at - b.at)[0]!;
    return { text: this.#show(text, this.#includeStop ? at + stop.length : at), stop };
  }

  #show(text: string, end: number): string {
    const shown = text.slice(this.#numShown, end);
    this.#numShown = Math.max(this.#numShown, end);
    return shown;
  }
}

export function fakeText(): TextService {
  const tokenizer = new ByteTokenizer();
  return {
    tokenizer,
    encodePrompt: (text, options) => tokenizer.encode(text, options),
    encodeChat: async (request) => {
      const ids: number[] = [];
      for (const { role, content } of request.messages) {
        if (content === 'RAISE') throw new PagodaError('template_error', 'roles must take turns');
        ids.push(258, ...bytes(`${role}:${content}`));
      }
      if (request.addGenerationPrompt) ids.push(259);
      return request.addSpecialTokens ? [BOS, ...ids] : ids;
    },
    openText: (options) => new PlainText(tokenizer, options),
  };
}
