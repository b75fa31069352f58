// Generated ids to text, one at a time and in constant time per token; never half a character.
// Everything pushed plus flush() is what decoding all ids at once gives.

import type { Tokenizer } from './tokenizer.ts';
import { Utf8Stream } from './utf8-stream.ts';

export class IncrementalDetokenizer {
  readonly #tokenizer: Tokenizer;
  readonly #skipSpecialTokens: boolean;
  readonly #utf8 = new Utf8Stream();
  #numCharacters = 0;

  constructor(tokenizer: Tokenizer, options: { readonly skipSpecialTokens: boolean }) {
    this.#tokenizer = tokenizer;
    this.#skipSpecialTokens = options.skipSpecialTokens;
  }

  /**
   * Unicode characters given out so far (code points, as Python's len counts and as `text_offset` of logprobs is defined).
   * Read before push(), it is the offset of the token pushed next.
   */
  get numCharacters(): number {
    return this.#numCharacters;
  }

  /** The text that this token makes certain; '' while a character is incomplete. */
  push(tokenId: number): string {
    if (this.#skipSpecialTokens && this.#tokenizer.isControl(tokenId)) return '';
    const bytes = this.#tokenizer.tokenBytes(tokenId);
    const text =
      this.#utf8.isAtBoundary && isAscii(bytes) ? this.#tokenizer.tokenText(tokenId) : this.#utf8.push(bytes);
    this.#count(text);
    return text;
  }

  /** The rest at the end: U+FFFD for a character that never came to its end. */
  flush(): string {
    const text = this.#utf8.flush();
    this.#count(text);
    return text;
  }

  #count(text: string): void {
    for (let i = 0; i < text.length; i++) {
      // The second half of a surrogate pair belongs to the character before it.
      if ((text.charCodeAt(i) & 0xfc00) !== 0xdc00) this.#numCharacters++;
    }
  }
}

function isAscii(bytes: Uint8Array): boolean {
  for (let i = 0; i < bytes.length; i++) if (bytes[i]! >= 0x80) return false;
  return true;
}
