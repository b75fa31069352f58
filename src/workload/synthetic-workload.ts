// A workload drawn from distributions: arrivals, lengths and prefixes each have their own random numbers from one seed, and
// requests come out one at a time, so that a million of them take no memory.

import { PagodaError } from '../errors.ts';
import { ArrivalClock, type ArrivalSpec, checkArrivalSpec } from './arrivals.ts';
import { conversationRequests } from './conversations.ts';
import { LengthPairs } from './length-pairs.ts';
import { checkLengthSpec, type LengthSpec } from './lengths.ts';
import { checkPrefixSpec, hashIdsOf, type PrefixSpec, SYNTHETIC_BLOCK_TOKENS } from './prefixes.ts';
import { RandomSource } from './random-source.ts';
import type { Workload, WorkloadRequest } from './workload.ts';

export interface ClosedLoopSpec {
  readonly concurrency: number;
  readonly thinkSeconds: number;
}

export interface SyntheticSpec {
  readonly name: string;
  readonly seed: number;
  readonly numRequests: number;
  /** Exactly one of arrivals and closedLoop is set. */
  readonly arrivals: ArrivalSpec | null;
  readonly closedLoop: ClosedLoopSpec | null;
  /** No request arrives later; null = no such limit. */
  readonly maxSeconds: number | null;
  readonly prompt: LengthSpec;
  readonly output: LengthSpec;
  /** Spearman's rho of prompt and output lengths, -1 to 1. */
  readonly rankCorrelation: number;
  readonly prefix: PrefixSpec;
}

/** Throws PagodaError `bad_config`. */
export function createSyntheticWorkload(spec: SyntheticSpec): Workload {
  checkSpec(spec);
  return {
    name: spec.name,
    seed: spec.seed,
    hashBlockTokens: SYNTHETIC_BLOCK_TOKENS,
    closedLoop: spec.closedLoop,
    numRequests: spec.maxSeconds === null ? spec.numRequests : null,
    requests: () => limited(spec, spec.prefix.kind === 'multi-turn' ? conversationRequests(spec) : singles(spec)),
  };
}

function* limited(spec: SyntheticSpec, requests: Iterable<WorkloadRequest>): Generator<WorkloadRequest> {
  let numLeft = spec.numRequests;
  for (const request of requests) {
    if (numLeft-- === 0) return;
    if (spec.maxSeconds !== null && request.arrivalSeconds > spec.maxSeconds) return;
    yield request;
  }
}

/** Without end: the caller counts. */
function* singles(spec: SyntheticSpec): Generator<WorkloadRequest> {
  const { seed, prefix } = spec;
  const clock = spec.arrivals === null ? null : new ArrivalClock(spec.arrivals, new RandomSource(seed, 'arrivals'));
  const lengths = new LengthPairs(spec);
  const choices = new RandomSource(seed, 'prefixes');
  for (let index = 0; ; index++) {
    lengths.draw();
    let numPromptTokens = lengths.promptTokens;
    let hashIds: number[] | null = null;
    if (prefix.kind === 'shared') {
      const isShared = choices.uniform() < prefix.share;
      const sharedIndex = choices.below(prefix.numPrompts);
      const numShared = isShared ? prefix.numTokens : 0;
      numPromptTokens += numShared;
      const blockTokens = SYNTHETIC_BLOCK_TOKENS;
      hashIds = hashIdsOf(numPromptTokens, { ownerIndex: index, numShared, sharedIndex, blockTokens });
    }
    yield {
      arrivalSeconds: clock === null ? 0 : clock.next(),
      numPromptTokens,
      numOutputTokens: lengths.outputTokens,
      hashIds,
      sessionId: null,
      priority: 0,
    };
  }
}

function checkSpec(spec: SyntheticSpec): void {
  const fail = (option: string, what: string): never => {
    throw new PagodaError('bad_config', `${option} ${what}.`, { param: option });
  };
  if (!(Number.isSafeInteger(spec.numRequests) && spec.numRequests >= 1))
    fail('--num-requests', `must be a whole number of at least 1, got ${spec.numRequests}`);
  if (!(Math.abs(spec.rankCorrelation) <= 1))
    fail('--length-correlation', `must be from -1 to 1, got ${spec.rankCorrelation}`);
  if (spec.maxSeconds !== null && !(spec.maxSeconds > 0)) fail('--duration', `must be above 0, got ${spec.maxSeconds}`);
  if ((spec.arrivals === null) === (spec.closedLoop === null))
    throw new PagodaError('internal', 'A workload is either open (arrivals) or closed (users), not both or neither.');
  if (spec.closedLoop !== null) {
    const { concurrency, thinkSeconds } = spec.closedLoop;
    if (!(Number.isSafeInteger(concurrency) && concurrency >= 1 && concurrency <= 1_000_000))
      fail('--concurrency', `must be a whole number from 1 to 1000000, got ${concurrency}`);
    if (!(thinkSeconds >= 0 && thinkSeconds <= 1e6))
      fail('--think-time', `must be from 0 to 1000000 seconds, got ${thinkSeconds}`);
  }
  if (spec.arrivals !== null) checkArrivalSpec(spec.arrivals, '--arrival');
  checkLengthSpec(spec.prompt, '--prompt');
  checkLengthSpec(spec.output, '--output');
  checkPrefixSpec(spec.prefix, '--prefix');
}
