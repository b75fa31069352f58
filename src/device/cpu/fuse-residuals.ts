// out = a + linear(x) becomes one product that adds into the memory of `a`, when nobody else needs the product or `a` afterwards.
// The sum is the same float32 addition either way.

import type { Op, Program, Value } from '../../model/program.ts';
import { opValues } from './op-values.ts';

/** An op whose values live in storages: values that share one have the same storage id. */
export type FusedOp = (
  | Exclude<Op, { kind: 'linear' }>
  | (Extract<Op, { kind: 'linear' }> & { readonly accumulate: boolean })
) & {
  readonly storageOf: (valueId: number) => number;
};

type Linear = Extract<Op, { kind: 'linear' }>;

export function fuseResiduals(program: Program): FusedOp[] {
  const uses = valueUses(program);
  const storage = Array.from({ length: program.numValues }, (_, id) => id);
  const storageOf = (id: number) => storage[id]!;
  const fused = new Map<number, { linear: Linear; into: Value }>();
  const dropped = new Set<number>();
  program.ops.forEach((op, index) => {
    if (op.kind !== 'add' || op.a.id === op.b.id) return;
    for (const [part, into] of [
      [op.b, op.a],
      [op.a, op.b],
    ] as const) {
      const [producer, user, ...others] = uses.get(part.id) ?? [];
      if (producer === undefined || user !== index || others.length > 0) continue;
      const linear = program.ops[producer]!;
      if (linear.kind !== 'linear' || dropped.has(producer)) continue;
      // `into` ends here; the input still holds what the product read; it is not overwritten by its own sum.
      if (uses.get(into.id)!.at(-1) !== index) continue;
      if (storageOf(linear.in.id) === storageOf(into.id) || isWrittenBetween(program, linear.in, producer, index))
        continue;
      fused.set(index, { linear, into });
      dropped.add(producer);
      storage[op.out.id] = storageOf(into.id);
      return;
    }
  });
  const ops: FusedOp[] = [];
  program.ops.forEach((op, index) => {
    if (dropped.has(index)) return;
    const residual = fused.get(index);
    if (residual && op.kind === 'add') ops.push({ ...residual.linear, out: op.out, accumulate: true, storageOf });
    else if (op.kind === 'linear') ops.push({ ...op, accumulate: false, storageOf });
    else ops.push({ ...op, storageOf });
  });
  return ops;
}

/** Indexes of the ops that touch each value, in order. */
function valueUses(program: Program): Map<number, number[]> {
  const uses = new Map<number, number[]>();
  program.ops.forEach((op, index) => {
    for (const id of new Set(opValues(op).map((value) => value.id))) {
      const list = uses.get(id);
      if (list) list.push(index);
      else uses.set(id, [index]);
    }
  });
  return uses;
}

/** Whether an op strictly between two ops may change the value: in place, or by being fused into its memory. */
function isWrittenBetween(program: Program, value: Value, first: number, last: number): boolean {
  for (let i = first + 1; i < last; i++) {
    const op = program.ops[i]!;
    if ((op.kind === 'rope' || op.kind === 'addPosition' || op.kind === 'softcap') && op.x.id === value.id) return true;
    if (op.kind === 'add' && (op.a.id === value.id || op.b.id === value.id)) return true;
  }
  return false;
}
