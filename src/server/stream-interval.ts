// --stream-interval and stream_interval: after its first chunk a stream gets one for every so many tokens instead of one for each. Every chunk is a
// write to a socket, which at many streams is what the front spends most on (vLLM's option of that name).

import type { TokenLogprob } from '../core/request.ts';
import type { ChoiceDelta } from './generation.ts';

/** Deltas in one. Its lists grow in place: an interval may be as long as a reply. */
interface Gathered extends ChoiceDelta {
  text: string;
  readonly tokenIds: number[];
  readonly logprobs: TokenLogprob[] | null;
}

export class StreamInterval {
  readonly #interval: number;
  /** By the choice's index: what has been said since the last chunk. */
  readonly #waiting = new Map<number, Gathered>();

  /** `interval`: tokens, at least 1. */
  constructor(interval: number) {
    this.#interval = interval;
  }

  /** What the next chunk of this choice has to say, or null while it is not due. The first token and the end never wait. */
  add(delta: ChoiceDelta): ChoiceDelta | null {
    if (this.#interval === 1 || delta.isFirst) return delta;
    const gathered = this.#gather(delta);
    if (delta.finishReason === null && gathered.tokenIds.length < this.#interval) return null;
    this.#waiting.delete(delta.index);
    return { ...gathered, finishReason: delta.finishReason, stopReason: delta.stopReason };
  }

  /** What still waits, when nothing more will come. */
  flush(): ChoiceDelta[] {
    const rest = [...this.#waiting.values()];
    this.#waiting.clear();
    return rest;
  }

  #gather(delta: ChoiceDelta): Gathered {
    const before = this.#waiting.get(delta.index);
    if (before === undefined) {
      const { tokenIds, logprobs } = delta;
      const gathered = { ...delta, tokenIds: [...tokenIds], logprobs: logprobs === null ? null : [...logprobs] };
      this.#waiting.set(delta.index, gathered);
      return gathered;
    }
    before.text += delta.text;
    for (const tokenId of delta.tokenIds) before.tokenIds.push(tokenId);
    for (const logprob of delta.logprobs ?? []) before.logprobs?.push(logprob);
    return before;
  }
}
