// Which replica gets a request. `round-robin` looks at nothing, `least-loaded` at unfinished requests, `prefix-aware` at which
// replica has seen the prompt's leading blocks, unless that would leave the load too uneven (as SGLang's cache-aware router).

import { PagodaError } from '../errors.ts';
import type { WorkloadRequest } from '../workload/workload.ts';

export type RoutingPolicy = 'round-robin' | 'least-loaded' | 'prefix-aware';

export const ROUTING_POLICIES: readonly RoutingPolicy[] = ['round-robin', 'least-loaded', 'prefix-aware'];

/** Prefixes no longer count when the fullest replica has this many requests more than the emptiest, and half as many again. */
const UNEVEN_REQUESTS = 32;
const UNEVEN_RATIO = 1.5;

export interface ReplicaLoad {
  /** Accepted and not ended. */
  readonly numUnfinished: number;
}

export class Router {
  readonly #policy: RoutingPolicy;
  readonly #replicas: readonly ReplicaLoad[];
  readonly #seen: readonly SeenBlocks[];
  #numRouted = 0;

  /** `numCachedIds`: how many block ids fit into one replica's KV pool. */
  constructor(policy: RoutingPolicy, replicas: readonly ReplicaLoad[], numCachedIds: number) {
    this.#policy = policy;
    this.#replicas = replicas;
    this.#seen = replicas.map(() => new SeenBlocks(numCachedIds));
  }

  /** Index of the replica. */
  route(request: WorkloadRequest): number {
    const index = this.#choose(request);
    this.#numRouted++;
    if (this.#policy === 'prefix-aware' && request.hashIds !== null) this.#seen[index]!.add(request.hashIds);
    return index;
  }

  #choose(request: WorkloadRequest): number {
    if (this.#replicas.length === 1) return 0;
    switch (this.#policy) {
      case 'round-robin':
        return this.#numRouted % this.#replicas.length;
      case 'least-loaded':
        return this.#leastLoaded();
      case 'prefix-aware':
        return this.#bestPrefix(request);
      default:
        throw new PagodaError('internal', `No routing policy ${String(this.#policy satisfies never)}.`);
    }
  }

  /** Of equals the one after the last choice, so that an idle fleet is used evenly. */
  #leastLoaded(): number {
    const count = this.#replicas.length;
    let best = this.#numRouted % count;
    for (let i = 1; i < count; i++) {
      const index = (this.#numRouted + i) % count;
      if (this.#replicas[index]!.numUnfinished < this.#replicas[best]!.numUnfinished) best = index;
    }
    return best;
  }

  #bestPrefix(request: WorkloadRequest): number {
    const leastLoaded = this.#leastLoaded();
    if (request.hashIds === null) return leastLoaded;
    const loads = this.#replicas.map((replica) => replica.numUnfinished);
    const least = loads[leastLoaded]!;
    const most = Math.max(...loads);
    if (most - least > UNEVEN_REQUESTS && most > UNEVEN_RATIO * least) return leastLoaded;
    let best = leastLoaded;
    let longest = this.#seen[leastLoaded]!.numLeading(request.hashIds);
    for (const [index, seen] of this.#seen.entries()) {
      const length = seen.numLeading(request.hashIds);
      if (length <= longest) continue;
      best = index;
      longest = length;
    }
    return best;
  }
}

/** The ids a replica has seen lately, the least recently used forgotten first. */
class SeenBlocks {
  readonly #capacity: number;
  readonly #ids = new Set<number>();

  constructor(capacity: number) {
    this.#capacity = Math.max(1, capacity);
  }

  numLeading(ids: readonly number[]): number {
    let length = 0;
    while (length < ids.length && this.#ids.has(ids[length]!)) length++;
    return length;
  }

  /** From the last one, so that a prefix's first blocks are the newest and forgotten last. */
  add(ids: readonly number[]): void {
    for (let i = ids.length - 1; i >= 0; i--) {
      this.#ids.delete(ids[i]!);
      this.#ids.add(ids[i]!);
    }
    for (const id of this.#ids) {
      if (this.#ids.size <= this.#capacity) break;
      this.#ids.delete(id);
    }
  }
}
