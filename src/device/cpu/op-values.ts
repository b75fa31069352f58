// Which values an op touches, whatever its kind.

import type { Op, Value } from '../../model/program.ts';

/** Every value that an op reads or writes. */
export function opValues(op: Op): Value[] {
  switch (op.kind) {
    case 'embed':
      return [op.out];
    case 'addPosition':
    case 'rope':
    case 'softcap':
      return [op.x];
    case 'rmsNorm':
    case 'layerNorm':
    case 'linear':
    case 'activation':
    case 'selectRows':
    case 'moe':
      return [op.in, op.out];
    case 'kvWrite':
      return [op.k, op.v];
    case 'attention':
      return [op.q, op.out];
    case 'gatedActivation':
      return [op.gate, op.up, op.out];
    case 'add':
      return [op.a, op.b, op.out];
    case 'sample':
      return [op.logits];
    default:
      return op satisfies never;
  }
}

/** The same op on other values. */
export function mapValues(op: Op, map: (value: Value) => Value): Op {
  const values: ReadonlySet<unknown> = new Set(opValues(op));
  const fields = Object.entries(op).map(([name, field]) => [name, values.has(field) ? map(field) : field]);
  return Object.fromEntries(fields) as Op;
}
