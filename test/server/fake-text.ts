// A byte-level tokenizer (id = byte; 256 BOS, 257 EOS, 258 `<|user|>`, 259 `<|reply|>`) and the plainest possible text service,
// so that protocol tests know every token, offset and character by heart.

import { PagodaError } from '../../src/errors.ts';
import type { TextService } from '../../src/server/server-context.ts';
import { TextStream } from '../../src/text/text-stream.ts';
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

export function fakeText(): TextService {
  const tokenizer = new ByteTokenizer();
  return {
    tokenizer,
    contentFormat: 'string',
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
    openText: (options) => new TextStream(tokenizer, options),
  };
}
