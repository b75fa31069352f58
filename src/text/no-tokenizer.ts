// A model without a vocabulary (test models): token ids work, text does not.

import { PagodaError } from '../errors.ts';
import type { Tokenizer } from './tokenizer.ts';

const NO_BYTES = new Uint8Array(0);

export class NoTokenizer implements Tokenizer {
  readonly kind = 'none';
  readonly vocabSize = 0;
  readonly bosTokenId = null;
  readonly eosTokenId = null;
  readonly addsBos = false;
  readonly #reason: string;

  /** `reason` completes "This model has no tokenizer: ...". */
  constructor(reason: string) {
    this.#reason = reason;
  }

  encode(): number[] {
    throw new PagodaError(
      'unsupported',
      `This model has no tokenizer: ${this.#reason}. Send token ids as the prompt instead of text.`,
    );
  }

  decode(): string {
    return '';
  }

  tokenBytes(): Uint8Array {
    return NO_BYTES;
  }

  tokenText(): string {
    return '';
  }

  tokenPiece(): string {
    return '';
  }

  isControl(): boolean {
    return false;
  }

  tokenId(): null {
    return null;
  }
}
