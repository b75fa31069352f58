// Once the last keys and values are written, only the rows that need logits matter: they are selected there instead of before the
// output layer, so that the rest of the last layer is computed for them alone. Every op on rows works on each row for itself, so
// their results are the same.

import type { Op, Program, Value } from '../../model/program.ts';
import { mapValues, opValues } from './op-values.ts';

export function selectRowsEarly(program: Program): Program {
  const { ops } = program;
  const late = ops.findIndex((op) => op.kind === 'selectRows');
  const cut = ops.findLastIndex((op) => NEEDS_EVERY_TOKEN.has(op.kind)) + 1;
  if (late < cut || ops.filter((op) => op.kind === 'selectRows').length !== 1) return program;
  const before = new Set(ops.slice(0, cut).flatMap((op) => opValues(op).map(({ id }) => id)));
  let { numValues } = program;
  const selections: Op[] = [];
  const selected = new Map<number, Value>();
  const rowsOf = (value: Value): Value => {
    const known = selected.get(value.id);
    if (known) return known;
    if (value.rows === 'R') return value;
    const isThere = before.has(value.id);
    const rows: Value = { ...value, rows: 'R', id: isThere ? numValues++ : value.id };
    if (isThere) selections.push({ kind: 'selectRows', in: value, out: rows });
    selected.set(value.id, rows);
    return rows;
  };
  const onRows: Op[] = [];
  for (const [index, op] of ops.entries()) {
    if (index < cut) continue;
    if (op.kind === 'selectRows') selected.set(op.out.id, rowsOf(op.in));
    else onRows.push(mapValues(op, rowsOf));
  }
  return { ...program, numValues, ops: [...ops.slice(0, cut), ...selections, ...onRows] };
}

/** What asks for each token's position, or writes what later tokens read. */
const NEEDS_EVERY_TOKEN: ReadonlySet<Op['kind']> = new Set(['embed', 'addPosition', 'rope', 'kvWrite']);
