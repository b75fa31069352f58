// Orders lowered ops into phases. Between two phases all threads meet; inside one, ops either work row by row (each row runs
// through all of them on one thread) or are independent products. Fewer phases, fewer barriers.

import { PagodaError } from '../../errors.ts';
import type { LoweredOp } from './lower.ts';

/** How an op is shared among threads. */
export type WorkClass = 'rows' | 'linear' | 'attention' | 'moe' | 'sample';

export interface ScheduledOp {
  readonly op: LoweredOp;
  readonly phase: number;
}

export function schedulePhases(ops: readonly LoweredOp[]): ScheduledOp[] {
  const before = dependencies(ops);
  const done = new Set<number>();
  const scheduled: ScheduledOp[] = [];
  let phase = 0;
  const emit = (indexes: readonly number[]) => {
    for (const index of indexes) {
      scheduled.push({ op: ops[index]!, phase });
      done.add(index);
    }
    if (indexes.length > 0) phase++;
  };
  while (done.size < ops.length) {
    const numDone = done.size;
    // Everything per token comes before everything per logit row.
    const perLogitRow = ops.every((op, index) => op.perLogitRow || done.has(index));
    const open = ops.flatMap((op, index) => (!done.has(index) && op.perLogitRow === perLogitRow ? [index] : []));
    const isReady = (index: number, also?: ReadonlySet<number>) =>
      before[index]!.every((other) => done.has(other) || also?.has(other));
    const rows = new Set<number>();
    for (const index of open) if (ops[index]!.work === 'rows' && isReady(index, rows)) rows.add(index);
    emit([...rows]);
    emit(open.filter((index) => ops[index]!.work === 'linear' && !done.has(index) && isReady(index)));
    const single = open.find(
      (index) => ops[index]!.work !== 'rows' && ops[index]!.work !== 'linear' && !done.has(index) && isReady(index),
    );
    if (single !== undefined && done.size === numDone) emit([single]);
    if (done.size === numDone) throw new PagodaError('internal', 'The program cannot be ordered into phases.');
  }
  return scheduled;
}

/** For each op the ops that must come before it: they write what it reads, or touch what it writes. */
function dependencies(ops: readonly LoweredOp[]): number[][] {
  const lastWriter = new Map<number, number>();
  const readersSince = new Map<number, number[]>();
  return ops.map((op, index) => {
    const before = new Set<number>();
    for (const { id } of op.reads) {
      const writer = lastWriter.get(id);
      if (writer !== undefined) before.add(writer);
    }
    for (const { id } of op.writes) {
      const writer = lastWriter.get(id);
      if (writer !== undefined) before.add(writer);
      for (const reader of readersSince.get(id) ?? []) before.add(reader);
    }
    for (const { id } of op.reads) readersSince.set(id, [...(readersSince.get(id) ?? []), index]);
    for (const { id } of op.writes) {
      lastWriter.set(id, index);
      readersSince.set(id, []);
    }
    before.delete(index);
    return [...before];
  });
}
