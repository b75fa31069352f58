// Phases and buffers against a symbolic run: every storage holds a formula, every op writes the formula of what it read. The
// scheduled plan, run in its buffers with the freedom that phases allow, must compute the same formulas as the program in order.

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { LoweredOp, Storage } from '../../../../src/device/cpu/lower.ts';
import { placeValues } from '../../../../src/device/cpu/place-values.ts';
import { type ScheduledOp, schedulePhases, type WorkClass } from '../../../../src/device/cpu/schedule-phases.ts';

interface Recipe {
  readonly work: WorkClass;
  readonly inputs: readonly number[];
  readonly cols: number;
  readonly inPlace: boolean;
}

const recipe = fc.record({
  work: fc.constantFrom<WorkClass>('rows', 'rows', 'linear', 'linear', 'attention', 'moe'),
  inputs: fc.array(fc.nat(1000), { minLength: 1, maxLength: 3 }),
  cols: fc.constantFrom(16, 32, 48),
  inPlace: fc.boolean(),
});

/** A random program: each op reads values made before it and makes one, or changes its first input. */
function build(recipes: readonly Recipe[]): LoweredOp[] {
  const storage = (id: number, cols: number, perLogitRow = false): Storage => ({
    id,
    cols,
    kind: 'float',
    perLogitRow,
  });
  const op = (work: WorkClass, reads: Storage[], writes: Storage[], perLogitRow = false): LoweredOp => ({
    kind: 'add',
    work,
    perLogitRow,
    storages: {},
    reads,
    writes,
    fields: {},
  });
  const values = [storage(0, 16)];
  const ops = [op('rows', [], [values[0]])];
  for (const { work, inputs, cols, inPlace } of recipes) {
    const reads = [...new Set(inputs.map((input) => values[input % values.length]))];
    const out = inPlace ? reads[0] : storage(values.length, cols);
    if (!inPlace) values.push(out);
    ops.push(op(work, reads, [out]));
  }
  const selected = storage(values.length, values.at(-1)!.cols, true);
  const logits = storage(values.length + 1, 64, true);
  ops.push(
    op('rows', [values.at(-1)!], [selected], true),
    op('linear', [selected], [logits], true),
    op('sample', [logits], [], true),
  );
  return ops;
}

/** Formulas that each op read, by op. */
function run(order: readonly LoweredOp[], place: (storage: Storage) => number): Map<LoweredOp, string> {
  const memory = new Map<number, string>();
  const read = new Map<LoweredOp, string>();
  for (const each of order) {
    const formula = `(${each.reads.map((storage) => memory.get(place(storage)) ?? '?').join(' ')})`;
    read.set(each, formula);
    for (const storage of each.writes) memory.set(place(storage), `${each.work}${storage.id}${formula}`);
  }
  return read;
}

/** What the threads may do: products of one phase in any order. */
function reorderProducts(scheduled: readonly ScheduledOp[]): LoweredOp[] {
  const phases: LoweredOp[][] = [];
  for (const { op, phase } of scheduled) {
    phases[phase] ??= [];
    phases[phase].push(op);
  }
  return phases.flatMap((ops) => (ops[0].work === 'linear' ? [...ops].reverse() : ops));
}

describe('phases', () => {
  it('compute what the program computes, in shared buffers', () => {
    fc.assert(
      fc.property(fc.array(recipe, { maxLength: 25 }), (recipes) => {
        const ops = build(recipes);
        const scheduled = schedulePhases(ops);
        expect(scheduled.length).toBe(ops.length);
        const { bufferOf } = placeValues(scheduled);
        const wanted = run(ops, (storage) => storage.id);
        const got = run(reorderProducts(scheduled), (storage) => bufferOf(storage.id));
        for (const op of ops) expect(got.get(op)).toBe(wanted.get(op));
      }),
      { numRuns: 300 },
    );
  });

  it('hold one kind of work each, tokens before logit rows', () => {
    fc.assert(
      fc.property(fc.array(recipe, { maxLength: 25 }), (recipes) => {
        const scheduled = schedulePhases(build(recipes));
        scheduled.forEach(({ op, phase }, i) => {
          const before = scheduled[i - 1];
          if (!before) return;
          expect(phase).toBeGreaterThanOrEqual(before.phase);
          expect(op.perLogitRow || !before.op.perLogitRow).toBe(true);
          if (phase !== before.phase) return;
          expect([op.work, op.perLogitRow]).toEqual([before.op.work, before.op.perLogitRow]);
          expect(['rows', 'linear']).toContain(op.work);
        });
      }),
    );
  });

  it('never let storages of one phase share a buffer', () => {
    fc.assert(
      fc.property(fc.array(recipe, { maxLength: 25 }), (recipes) => {
        const scheduled = schedulePhases(build(recipes));
        const { bufferOf, buffers } = placeValues(scheduled);
        const seen = new Map<string, number>();
        for (const { op, phase } of scheduled) {
          for (const storage of [...op.reads, ...op.writes]) {
            const buffer = bufferOf(storage.id);
            expect(buffers[buffer].cols).toBeGreaterThanOrEqual(storage.cols);
            expect(buffers[buffer].perLogitRow).toBe(storage.perLogitRow);
            const key = `${phase}:${buffer}`;
            expect(seen.get(key) ?? storage.id).toBe(storage.id);
            seen.set(key, storage.id);
          }
        }
      }),
    );
  });
});
