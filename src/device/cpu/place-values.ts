// Gives every storage a buffer. A buffer serves another storage only two phases after the last one that touched it:
// inside a phase the threads are at different rows, storages of different widths would overlap across rows, and a phase may run
// joined with the one before it (native/runtime/fuse-phases.h).

import { type NativeBuffer, ROW_FORMS, type RowForm } from './addon.ts';
import type { Storage } from './lower.ts';
import type { ScheduledOp } from './schedule-phases.ts';

interface Lifetime {
  readonly storage: Storage;
  readonly first: number;
  last: number;
}

export function placeValues(ops: readonly ScheduledOp[]): {
  buffers: NativeBuffer[];
  bufferOf: (storage: number) => number;
} {
  const lifetimes = new Map<number, Lifetime>();
  for (const { op, phase } of ops) {
    for (const storage of [...op.reads, ...op.writes]) {
      if (storage.kind === 'kv') continue;
      const lifetime = lifetimes.get(storage.id);
      if (lifetime) lifetime.last = phase;
      else lifetimes.set(storage.id, { storage, first: phase, last: phase });
    }
  }
  keepTokenRowsForLogits(ops, lifetimes);
  const buffers: Array<{ perLogitRow: boolean; form: number; cols: number; busyUntil: number }> = [];
  const places = new Map<number, number>();
  for (const { storage, first, last } of [...lifetimes.values()].sort((a, b) => a.first - b.first)) {
    const form = ROW_FORMS.indexOf(storage.kind as RowForm);
    const free = buffers.flatMap((buffer, index) => {
      const fits = buffer.busyUntil + 1 < first && buffer.perLogitRow === storage.perLogitRow && buffer.form === form;
      return fits && (form === 0 || buffer.cols === storage.cols) ? [index] : [];
    });
    // The smallest that is wide enough, else the widest, which grows.
    const wasted = (index: number) => buffers[index]!.cols - storage.cols;
    free.sort((a, b) => (wasted(a) >= 0 && wasted(b) >= 0 ? wasted(a) - wasted(b) : wasted(b) - wasted(a)));
    const index =
      free[0] ?? buffers.push({ perLogitRow: storage.perLogitRow, form, cols: storage.cols, busyUntil: last }) - 1;
    const buffer = buffers[index]!;
    buffer.cols = Math.max(buffer.cols, storage.cols);
    buffer.busyUntil = last;
    places.set(storage.id, index);
  }
  return {
    buffers: buffers.map(({ perLogitRow, form, cols }) => ({ perLogitRow, form, cols })),
    bufferOf: (storage) => places.get(storage)!,
  };
}

/** The phases after the selection run once per chunk of rows: what they read from the tokens must last to the end. */
function keepTokenRowsForLogits(ops: readonly ScheduledOp[], lifetimes: Map<number, Lifetime>): void {
  const end = ops.at(-1)?.phase ?? 0;
  for (const { op } of ops) {
    if (!op.perLogitRow) continue;
    for (const storage of op.reads) {
      const lifetime = lifetimes.get(storage.id);
      if (lifetime && !storage.perLogitRow) lifetime.last = end;
    }
  }
}
