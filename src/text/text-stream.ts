// One sequence's text while it is generated: detokenizer and stop strings together.

import { IncrementalDetokenizer } from './incremental-detokenizer.ts';
import { StopStrings } from './stop-strings.ts';
import type { Tokenizer } from './tokenizer.ts';

export interface TextStreamOptions {
  readonly stop: readonly string[];
  /** Show the stop string itself. */
  readonly includeStop: boolean;
  readonly skipSpecialTokens: boolean;
  /** Stop strings count only in the text of tokens after this many. */
  readonly minTokens: number;
}

export interface TextDelta {
  readonly text: string;
  /** The stop string that ended the text. */
  readonly stop: string | null;
  /** Of the tokens just pushed, how many belong to the text: fewer than all only when a stop string was found. */
  readonly numTokens: number;
}

export class TextStream {
  readonly #detokenizer: IncrementalDetokenizer;
  readonly #stops: StopStrings;
  readonly #minTokens: number;
  #numTokens = 0;
  #hasStopped = false;

  constructor(tokenizer: Tokenizer, options: TextStreamOptions) {
    this.#detokenizer = new IncrementalDetokenizer(tokenizer, options);
    this.#stops = new StopStrings(options.stop, options);
    this.#minTokens = options.minTokens;
  }

  push(tokenIds: readonly number[]): TextDelta {
    let text = '';
    for (let i = 0; i < tokenIds.length && !this.#hasStopped; i++) {
      const piece = this.#detokenizer.push(tokenIds[i]!);
      if (++this.#numTokens <= this.#minTokens) {
        text += piece;
        continue;
      }
      const { emit, stopString } = this.#stops.push(piece);
      text += emit;
      if (stopString !== null) {
        this.#hasStopped = true;
        return { text, stop: stopString, numTokens: i + 1 };
      }
    }
    return { text, stop: null, numTokens: this.#hasStopped ? 0 : tokenIds.length };
  }

  /** What was held back. Called once, when no more tokens come. */
  finish(): TextDelta {
    if (this.#hasStopped) return { text: '', stop: null, numTokens: 0 };
    this.#hasStopped = true;
    const { emit, stopString } = this.#stops.push(this.#detokenizer.flush());
    return { text: stopString === null ? emit + this.#stops.flush() : emit, stop: stopString, numTokens: 0 };
  }
}
