// The non-streaming reply as a fold over the deltas that a streaming one would have sent.

import type { FinishReason, TokenLogprob } from '../core/request.ts';
import type { ChoiceDelta } from './generation.ts';

export interface FoldedChoice {
  readonly index: number;
  readonly promptIndex: number;
  text: string;
  readonly tokenIds: number[];
  /** One per token when they were asked for, else empty. */
  readonly logprobs: TokenLogprob[];
  promptLogprobs: ReadonlyArray<TokenLogprob | null> | null;
  finishReason: FinishReason;
  stopReason: string | number | null;
}

export class Fold {
  readonly choices: FoldedChoice[] = [];

  add(delta: ChoiceDelta): void {
    this.choices[delta.index] ??= {
      index: delta.index,
      promptIndex: delta.promptIndex,
      text: '',
      tokenIds: [],
      logprobs: [],
      promptLogprobs: null,
      finishReason: 'abort',
      stopReason: null,
    };
    const choice = this.choices[delta.index]!;
    choice.text += delta.text;
    for (const id of delta.tokenIds) choice.tokenIds.push(id);
    for (const entry of delta.logprobs ?? []) choice.logprobs.push(entry);
    choice.promptLogprobs ??= delta.promptLogprobs;
    if (delta.finishReason !== null) {
      choice.finishReason = delta.finishReason;
      choice.stopReason = delta.stopReason;
    }
  }
}
