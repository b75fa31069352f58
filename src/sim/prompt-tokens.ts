// Token ids for requests that only have lengths and block ids: equal ids give equal tokens, so that the real prefix cache finds
// what the workload says is shared, and nothing else. Without a cache nobody looks at them.

import type { WorkloadRequest } from '../workload/workload.ts';

/** Private tokens have this bit, shared ones do not. */
const PRIVATE = 2 ** 30;

export class PromptTokens {
  readonly #blockTokens: number;
  readonly #isCached: boolean;

  constructor(options: { hashBlockTokens: number; enablePrefixCaching: boolean }) {
    this.#blockTokens = options.hashBlockTokens;
    this.#isCached = options.enablePrefixCaching;
  }

  /** Ids of the whole prompt; `number` tells requests apart. */
  promptOf(request: WorkloadRequest, number: number): number[] {
    const tokens = new Array<number>(request.numPromptTokens).fill(this.#isCached ? privateToken(number) : 0);
    const { hashIds } = request;
    if (!this.#isCached || hashIds === null) return tokens;
    for (let block = 0; block < hashIds.length; block++) {
      const start = block * this.#blockTokens;
      const end = Math.min(tokens.length, start + this.#blockTokens);
      const id = hashIds[block]!;
      for (let position = start; position < end; position++) tokens[position] = sharedToken(id, position);
    }
    return tokens;
  }

  /** The token that the request samples for a position: in a conversation what its next prompt will repeat. */
  outputAt(request: WorkloadRequest, number: number, position: number): number {
    const { hashIds, sessionId } = request;
    if (!this.#isCached) return 0;
    if (sessionId === null || hashIds === null || hashIds.length === 0) return privateToken(number);
    const block = Math.floor(position / this.#blockTokens);
    const last = hashIds.length - 1;
    const id = block <= last ? hashIds[block]! : hashIds[last]! + (block - last);
    return sharedToken(id, position);
  }
}

function privateToken(number: number): number {
  return PRIVATE + (number % PRIVATE);
}

/** The lower 30 bits of the id at even positions, the upper 23 at odd ones: no two ids up to 2^53 look alike. */
function sharedToken(id: number, position: number): number {
  return position % 2 === 0 ? id % PRIVATE : Math.floor(id / PRIVATE) % PRIVATE;
}
