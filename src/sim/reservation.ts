// What serving looked like before paging: each request reserves contiguous KV slots at its admission and keeps them to its end
// (Orca's iteration-level batching; the baselines of the PagedAttention paper, section 6.1). Gives the shares of its figure 2 and
// the latencies of figure 12, to be held against the paged scheduler on the same workload and costs.

import type { WorkloadRequest } from '../workload/workload.ts';
import { BuddyAllocator, type BuddyBlock } from './buddy-allocator.ts';
import type { StepCost } from './step-cost.ts';

/** max: the longest possible; pow2: the output rounded up to a power of two; oracle: exactly what will be needed. */
export type ReservationPolicy = 'max' | 'pow2' | 'oracle';

export interface ReservationOptions {
  readonly policy: ReservationPolicy;
  readonly numSlots: number;
  /** A power of two. */
  readonly maxModelLen: number;
  /** The clock stops here; what has not ended does not count. */
  readonly endSeconds: number;
  readonly cost: StepCost;
}

/** Shares of all slots, averaged over the time in which somebody waited for memory. They add up to 1. */
export interface ReservationShares {
  /** Slots that hold a token. */
  readonly tokens: number;
  /** Slots that will hold one of the request's later tokens. */
  readonly reserved: number;
  /** Reserved and never used: beyond the request's end. */
  readonly internal: number;
  /** Lost to rounding up to powers of two, or free and too small for the next request. */
  readonly external: number;
}

export interface ReservationResult {
  readonly shares: ReservationShares;
  /** Requests in a batch, averaged over the time in which somebody waited. */
  readonly meanRunning: number;
  /** Mean of seconds per output token, arrival to end, over ended requests. */
  readonly normalizedLatencySeconds: number;
  readonly numEnded: number;
}

interface Held {
  readonly request: WorkloadRequest;
  readonly block: BuddyBlock;
  readonly reservedSlots: number;
  numGenerated: number;
}

export function simulateReservation(
  requests: readonly WorkloadRequest[],
  options: ReservationOptions,
): ReservationResult {
  const allocator = new BuddyAllocator(options.numSlots, options.maxModelLen);
  const sums = { tokens: 0, reserved: 0, internal: 0, external: 0, running: 0, seconds: 0, latency: 0, numEnded: 0 };
  let running: Held[] = [];
  let nextArrival = 0;
  let nextAdmitted = 0;
  let now = 0;
  while (now < options.endSeconds) {
    while (nextArrival < requests.length && requests[nextArrival]!.arrivalSeconds <= now) nextArrival++;
    let numNewTokens = 0;
    while (nextAdmitted < nextArrival) {
      const held = admit(requests[nextAdmitted]!, allocator, options);
      if (held === null) break;
      running.push(held);
      numNewTokens += held.request.numPromptTokens;
      nextAdmitted++;
    }
    if (running.length === 0) {
      if (nextArrival >= requests.length) break;
      now = requests[nextArrival]!.arrivalSeconds;
      continue;
    }
    const stepSeconds = options.cost.stepSeconds(loadOf(running, numNewTokens));
    if (nextAdmitted < nextArrival) addShares(sums, running, stepSeconds, options.numSlots);
    now += stepSeconds;
    running = advance(running, allocator, (request) => {
      sums.latency += (now - request.arrivalSeconds) / request.numOutputTokens;
      sums.numEnded++;
    });
  }
  const seconds = sums.seconds || 1;
  return {
    shares: {
      tokens: sums.tokens / seconds,
      reserved: sums.reserved / seconds,
      internal: sums.internal / seconds,
      external: sums.external / seconds,
    },
    meanRunning: sums.running / seconds,
    normalizedLatencySeconds: sums.numEnded === 0 ? Number.POSITIVE_INFINITY : sums.latency / sums.numEnded,
    numEnded: sums.numEnded,
  };
}

function admit(request: WorkloadRequest, allocator: BuddyAllocator, options: ReservationOptions): Held | null {
  const { numPromptTokens, numOutputTokens } = request;
  const wanted = {
    max: options.maxModelLen,
    pow2: numPromptTokens + 2 ** Math.ceil(Math.log2(numOutputTokens)),
    oracle: numPromptTokens + numOutputTokens,
  }[options.policy];
  const reservedSlots = Math.min(options.maxModelLen, wanted);
  const block = allocator.allocate(reservedSlots);
  return block === null ? null : { request, block, reservedSlots, numGenerated: 0 };
}

function loadOf(running: readonly Held[], numNewTokens: number) {
  let contextTokens = 0;
  for (const { request, numGenerated } of running) contextTokens += request.numPromptTokens + numGenerated;
  return {
    numSequences: running.length,
    numTokens: running.length + numNewTokens,
    numPrefillTokens: numNewTokens,
    numDecodes: running.length,
    decodeContextTokens: contextTokens,
    prefillPairs: 0,
  };
}

/** Everybody gets a token; those that have their last one leave. */
function advance(
  running: readonly Held[],
  allocator: BuddyAllocator,
  onEnd: (request: WorkloadRequest) => void,
): Held[] {
  return running.filter((held) => {
    held.numGenerated++;
    if (held.numGenerated < held.request.numOutputTokens) return true;
    onEnd(held.request);
    allocator.release(held.block);
    return false;
  });
}

function addShares(
  sums: { tokens: number; reserved: number; internal: number; external: number; running: number; seconds: number },
  running: readonly Held[],
  stepSeconds: number,
  numSlots: number,
): void {
  let tokens = 0;
  let reserved = 0;
  let internal = 0;
  for (const { request, numGenerated, reservedSlots } of running) {
    const finalTokens = request.numPromptTokens + request.numOutputTokens;
    tokens += request.numPromptTokens + numGenerated;
    reserved += request.numOutputTokens - numGenerated;
    internal += Math.max(0, reservedSlots - finalTokens);
  }
  sums.tokens += (stepSeconds * tokens) / numSlots;
  sums.reserved += (stepSeconds * reserved) / numSlots;
  sums.internal += (stepSeconds * internal) / numSlots;
  sums.external += (stepSeconds * (numSlots - tokens - reserved - internal)) / numSlots;
  sums.running += stepSeconds * running.length;
  sums.seconds += stepSeconds;
}
