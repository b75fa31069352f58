// Whom a preemption hits.

import { PagodaError } from '../errors.ts';
import type { KvManager } from './kv-manager.ts';
import type { SchedulerOptions } from './scheduler-options.ts';
import type { Sequence } from './sequence.ts';
import type { IsBefore } from './waiting-queue.ts';

export interface VictimRules {
  readonly policy: SchedulerOptions['policy'];
  readonly isBefore: IsBefore;
  readonly kv: KvManager;
}

/**
 * Never the best-ranked running sequence. Policy `priority`: the worst-ranked one. Policy `fcfs`: the one with the least to
 * recompute among those whose end gives any block back; of equals the latest. Throws PagodaError `internal` when one runs alone.
 */
export function chooseVictim(running: readonly Sequence[], { policy, isBefore, kv }: VictimRules): Sequence {
  const candidates = running.filter((sequence) => sequence.status === 'running');
  const best = candidates.reduce((a, b) => (isBefore(a, b) ? a : b));
  const others = candidates.filter((sequence) => sequence !== best);
  if (others.length === 0)
    throw new PagodaError('internal', `${best.id} runs alone and does not fit into the KV cache.`);
  if (policy === 'priority') return others.reduce((a, b) => (isBefore(a, b) ? b : a));
  const isCheaper = (a: Sequence, b: Sequence): boolean => {
    const difference = kv.tokensToRecompute(a) - kv.tokensToRecompute(b);
    return difference !== 0 ? difference < 0 : isBefore(b, a);
  };
  const useful = others.filter((sequence) => kv.holdsUnsharedBlock(sequence));
  return (useful.length > 0 ? useful : others).reduce((a, b) => (isCheaper(a, b) ? a : b));
}
