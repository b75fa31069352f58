// --stream-interval and stream_interval: after its first chunk a stream gets one for every so many tokens instead of one for each. Every chunk is a
// write to a socket, which at many streams is what the front spends most on (vLLM's option of that name).

import type { ChoiceDelta } from './generation.ts';

export class StreamInterval {
  readonly #interval: number;
  /** By the choice's index: what has been said since the last chunk. */
  readonly #waiting = new Map<number, ChoiceDelta>();

  /** `interval`: tokens, at least 1. */
  constructor(interval: number) {
    this.#interval = interval;
  }

  /** What the next chunk of this choice has to say, or null while it is not due. The first token and the end never wait. */
  add(delta: ChoiceDelta): ChoiceDelta | null {
    if (this.#interval === 1) return delta;
    const before = this.#waiting.get(delta.index);
    const all = before === undefined ? delta : join(before, delta);
    if (all.isFirst || all.finishReason !== null || all.tokenIds.length >= this.#interval) {
      this.#waiting.delete(delta.index);
      return all;
    }
    this.#waiting.set(delta.index, all);
    return null;
  }

  /** What still waits, when nothing more will come. */
  flush(): ChoiceDelta[] {
    const rest = [...this.#waiting.values()];
    this.#waiting.clear();
    return rest;
  }
}

function join(a: ChoiceDelta, b: ChoiceDelta): ChoiceDelta {
  return {
    ...b,
    text: a.text + b.text,
    tokenIds: [...a.tokenIds, ...b.tokenIds],
    logprobs: a.logprobs === null ? b.logprobs : [...a.logprobs, ...(b.logprobs ?? [])],
    promptLogprobs: a.promptLogprobs ?? b.promptLogprobs,
    isFirst: a.isFirst,
  };
}
