// Lowers a Program to the native plan: rows that need no logits end with the last keys and values, residual adds become the end of the
// product before them, each input of products that take fewer bits is brought into their form once, ops that need no barrier between
// them share a phase, and values that are never alive together share a buffer.

import { PagodaError } from '../../errors.ts';
import type { MoeOp, Program, RopeTable, Value, WeightRef } from '../../model/program.ts';
import type { DeviceLimits } from '../device.ts';
import type { KvLayout } from '../kv-layout.ts';
import {
  ACTIVATIONS,
  KV_TYPES,
  type NativeMoe,
  type NativeOp,
  type NativeOpKind,
  type NativePlan,
  OP_KINDS,
  type RowForm,
} from './addon.ts';
import { type FusedOp, fuseResiduals } from './fuse-residuals.ts';
import { placeValues } from './place-values.ts';
import { schedulePhases, type WorkClass } from './schedule-phases.ts';
import { selectRowsEarly } from './select-rows-early.ts';

export interface LowerOptions {
  readonly program: Program;
  readonly kv: KvLayout;
  readonly limits: DeviceLimits;
  /** Index of a loaded weight. */
  readonly weightIndex: (name: string) => number;
  /** The form in which products with this weight take their activations. */
  readonly rowForm: (name: string) => RowForm;
  readonly int8: boolean;
}

type FusedLinear = Extract<FusedOp, { kind: 'linear' }>;

/** Rows that need logits go through the rest of the model so many at a time: bounds the memory for logits. */
const LOGIT_ROWS = 64;

export function lower(options: LowerOptions): NativePlan {
  const { kv, limits } = options;
  if (options.program.ops.at(-1)?.kind !== 'sample')
    throw new PagodaError('internal', 'A program must end with sample.');
  const program = selectRowsEarly(options.program);
  const tables = new RopeTables();
  const ops = new OpLowering({ ...options, program }, tables).lowerAll(fuseResiduals(program));
  const scheduled = schedulePhases(ops);
  const { buffers, bufferOf } = placeValues(scheduled);
  const emitted = scheduled.map(({ op, phase }): NativeOp => {
    const placed = Object.entries(op.storages).map(([field, storage]) => [field, bufferOf((storage as Storage).id)]);
    return { ...op.fields, ...Object.fromEntries(placed), kind: OP_KINDS.indexOf(op.kind), phase };
  });
  return {
    limits: { ...limits, logitRows: Math.min(LOGIT_ROWS, limits.maxTokens) },
    kv: {
      numKvHeads: kv.numKvHeads,
      headDim: kv.headDim,
      blockSize: kv.blockSize,
      layersPerGroup: kv.layersPerGroup,
      type: KV_TYPES[kv.dtype],
      windows: Int32Array.from(kv.groups, (group) => group.window),
      layerGroup: Int32Array.from(kv.layerPlace, (place) => place.group),
      layerIndex: Int32Array.from(kv.layerPlace, (place) => place.index),
    },
    vocabSize: program.vocabSize,
    int8: options.int8,
    buffers,
    tables: tables.list,
    ops: emitted,
  };
}

/** Operands of an op by field name. */
export interface Storages {
  readonly in?: Storage;
  readonly in2?: Storage;
  readonly out?: Storage;
  readonly q?: Storage;
}

/** A native op whose buffers are still storages: what is to be placed in memory. */
export interface LoweredOp {
  readonly kind: NativeOpKind;
  readonly work: WorkClass;
  readonly perLogitRow: boolean;
  readonly storages: Storages;
  readonly reads: readonly Storage[];
  readonly writes: readonly Storage[];
  readonly fields: Omit<NativeOp, 'kind' | 'phase' | keyof Storages>;
}

/** One piece of memory that values take turns in; KV layers are storages without a buffer. */
export interface Storage {
  readonly id: number;
  readonly cols: number;
  readonly kind: RowForm | 'kv';
  readonly perLogitRow: boolean;
}

class RopeTables {
  readonly list: Array<{ inverseFrequencies: Float64Array; magnitude: number }> = [];
  readonly #known = new Map<string, number>();

  index(table: RopeTable): number {
    const key = JSON.stringify([table.magnitude, table.inverseFrequencies]);
    let index = this.#known.get(key);
    if (index === undefined) {
      index =
        this.list.push({
          inverseFrequencies: Float64Array.from(table.inverseFrequencies),
          magnitude: table.magnitude,
        }) - 1;
      this.#known.set(key, index);
    }
    return index;
  }
}

class OpLowering {
  readonly #options: LowerOptions;
  readonly #tables: RopeTables;
  readonly #storages = new Map<number, Storage>();
  /** Storage -> its other forms while they are up to date. */
  readonly #forms = new Map<number, Map<RowForm, Storage>>();
  #nextId: number;

  constructor(options: LowerOptions, tables: RopeTables) {
    this.#options = options;
    this.#tables = tables;
    this.#nextId = options.program.numValues + options.program.kvLayers.length;
  }

  lowerAll(ops: readonly FusedOp[]): LoweredOp[] {
    const lowered: LoweredOp[] = [];
    for (const op of ops) {
      if (op.kind === 'linear') this.#quantize(op, lowered);
      const next = this.#lower(op);
      lowered.push(next);
      for (const storage of next.writes) this.#forms.delete(storage.id);
      if (op.kind === 'linear' && next.storages.q?.kind === 'int8' && this.#makesLogits(op))
        lowered.push(this.#rescore(op));
    }
    return lowered;
  }

  #quantize({ in: value, weight, storageOf }: FusedLinear, lowered: LoweredOp[]): void {
    const form = this.#options.rowForm(weight.name);
    const source = this.#storage(value, storageOf);
    const forms = this.#forms.get(source.id) ?? new Map<RowForm, Storage>();
    if (form === 'float' || forms.has(form)) return;
    const q: Storage = { id: this.#nextId++, cols: value.cols, kind: form, perLogitRow: source.perLogitRow };
    this.#forms.set(source.id, forms.set(form, q));
    const op = {
      kind: 'quantize',
      work: 'rows',
      perLogitRow: source.perLogitRow,
      storages: { in: source, q },
    } as const;
    lowered.push({ ...op, reads: [source], writes: [q], fields: { cols: value.cols } });
  }

  #makesLogits({ out }: FusedLinear): boolean {
    const last = this.#options.program.ops.at(-1)!;
    return last.kind === 'sample' && last.logits.id === out.id;
  }

  /** After an output layer in int8: its best logits once more, from the float32 activations. */
  #rescore(op: FusedLinear): LoweredOp {
    const storages = { in: this.#storage(op.in, op.storageOf), out: this.#storage(op.out, op.storageOf) };
    const bias = op.bias ? { bias: this.#options.weightIndex(op.bias.name) } : {};
    const fields = { cols: op.in.cols, weight: this.#options.weightIndex(op.weight.name), ...bias };
    const reads = [storages.in, storages.out];
    return { kind: 'rescore', work: 'rows', perLogitRow: true, storages, reads, writes: [storages.out], fields };
  }

  #storage(value: Value, storageOf: FusedOp['storageOf']): Storage {
    const id = storageOf(value.id);
    let storage = this.#storages.get(id);
    if (!storage) {
      storage = { id, cols: value.cols, kind: 'float', perLogitRow: value.rows === 'R' };
      this.#storages.set(id, storage);
    }
    return storage;
  }

  #kvStorage(layer: number): Storage {
    return { id: this.#options.program.numValues + layer, cols: 0, kind: 'kv', perLogitRow: false };
  }

  #lower(op: FusedOp): LoweredOp {
    const weight = (ref: WeightRef) => this.#options.weightIndex(ref.name);
    const at = (value: Value) => this.#storage(value, op.storageOf);
    switch (op.kind) {
      case 'embed':
        return rowOp(op.kind, { out: at(op.out) }, { cols: op.out.cols, weight: weight(op.weight), scale: op.scale });
      case 'addPosition': {
        const x = at(op.x);
        const fields = { cols: op.x.cols, weight: weight(op.weight), offset: op.offset };
        return {
          kind: op.kind,
          work: 'rows',
          perLogitRow: false,
          storages: { out: x },
          reads: [x],
          writes: [x],
          fields,
        };
      }
      case 'rmsNorm': {
        const { groupCols, eps } = op;
        return rowOp(
          op.kind,
          { in: at(op.in), out: at(op.out) },
          { cols: op.in.cols, groupCols, weight: weight(op.weight), eps },
        );
      }
      case 'layerNorm': {
        const bias = op.bias ? { bias: weight(op.bias) } : {};
        return rowOp(
          op.kind,
          { in: at(op.in), out: at(op.out) },
          { cols: op.in.cols, weight: weight(op.weight), eps: op.eps, ...bias },
        );
      }
      case 'rope': {
        const { numHeads, headDim, rotaryDim } = op;
        const interleaved = op.style === 'interleaved';
        return inPlace(op.kind, at(op.x), {
          cols: op.x.cols,
          numHeads,
          headDim,
          rotaryDim,
          interleaved,
          table: this.#tables.index(op.table),
        });
      }
      case 'kvWrite': {
        const storages = { in: at(op.k), in2: at(op.v) };
        const kv = this.#kvStorage(op.layer);
        const fields = { cols: op.k.cols, layer: op.layer };
        return {
          kind: op.kind,
          work: 'rows',
          perLogitRow: false,
          storages,
          reads: [storages.in, storages.in2],
          writes: [kv],
          fields,
        };
      }
      case 'gatedActivation': {
        const storages = { in: at(op.gate), in2: at(op.up), out: at(op.out) };
        return rowOp(op.kind, storages, { cols: op.out.cols, activation: ACTIVATIONS[op.activation] });
      }
      case 'activation':
        return rowOp(
          op.kind,
          { in: at(op.in), out: at(op.out) },
          { cols: op.out.cols, activation: ACTIVATIONS[op.activation] },
        );
      case 'add':
        return rowOp(op.kind, { in: at(op.a), in2: at(op.b), out: at(op.out) }, { cols: op.out.cols });
      case 'selectRows':
        return rowOp(op.kind, { in: at(op.in), out: at(op.out) }, { cols: op.in.cols });
      case 'softcap':
        return inPlace(op.kind, at(op.x), { cols: op.x.cols, cap: op.cap });
      case 'linear':
        return this.#linear(op);
      case 'attention': {
        const storages = { in: at(op.q), out: at(op.out) };
        const { numHeads, layer, scale } = op;
        const fields = { cols: op.q.cols, numHeads, headDim: this.#options.kv.headDim, layer, scale, cap: op.softcap };
        const reads = [storages.in, this.#kvStorage(layer)];
        return {
          kind: op.kind,
          work: 'attention',
          perLogitRow: storages.out.perLogitRow,
          storages,
          reads,
          writes: [storages.out],
          fields,
        };
      }
      case 'moe': {
        const storages = { in: at(op.in), out: at(op.out) };
        const fields = { cols: op.in.cols, activation: ACTIVATIONS[op.activation], moe: lowerMoe(op, weight) };
        return {
          kind: op.kind,
          work: 'moe',
          perLogitRow: storages.out.perLogitRow,
          storages,
          reads: [storages.in],
          writes: [storages.out],
          fields,
        };
      }
      case 'sample': {
        const logits = at(op.logits);
        return {
          kind: op.kind,
          work: 'sample',
          perLogitRow: true,
          storages: { in: logits },
          reads: [logits],
          writes: [],
          fields: { cols: op.logits.cols },
        };
      }
      default:
        return op satisfies never;
    }
  }

  #linear(op: FusedLinear): LoweredOp {
    const source = this.#storage(op.in, op.storageOf);
    const out = this.#storage(op.out, op.storageOf);
    const q = this.#forms.get(source.id)?.get(this.#options.rowForm(op.weight.name));
    const bias = op.bias ? { bias: this.#options.weightIndex(op.bias.name) } : {};
    return {
      kind: op.kind,
      work: 'linear',
      perLogitRow: out.perLogitRow,
      storages: q ? { q, out } : { in: source, out },
      reads: [q ?? source, ...(op.accumulate ? [out] : [])],
      writes: [out],
      fields: {
        cols: op.in.cols,
        weight: this.#options.weightIndex(op.weight.name),
        accumulate: op.accumulate,
        ...bias,
      },
    };
  }
}

/** An op on rows that reads `in` and `in2` and writes `out`. One that reads tokens and writes logit rows belongs to the latter. */
function rowOp(
  kind: NativeOpKind,
  storages: Storages & { readonly out: Storage },
  fields: LoweredOp['fields'],
): LoweredOp {
  const reads = [storages.in, storages.in2].filter((storage) => storage !== undefined);
  return { kind, work: 'rows', perLogitRow: storages.out.perLogitRow, storages, reads, writes: [storages.out], fields };
}

function inPlace(kind: NativeOpKind, x: Storage, fields: LoweredOp['fields']): LoweredOp {
  return { kind, work: 'rows', perLogitRow: x.perLogitRow, storages: { in: x }, reads: [x], writes: [x], fields };
}

function lowerMoe(op: MoeOp, weight: (ref: WeightRef) => number): NativeMoe {
  const { numExperts, topK, expertCols, renormalise, shared } = op;
  return {
    router: weight(op.router),
    gate: weight(op.gate),
    up: weight(op.up),
    down: weight(op.down),
    numExperts,
    topK,
    expertCols,
    renormalise,
    ...(shared
      ? {
          sharedGate: weight(shared.gate),
          sharedUp: weight(shared.up),
          sharedDown: weight(shared.down),
          sharedCols: shared.cols,
          ...(shared.gateWeight ? { sharedGateWeight: weight(shared.gateWeight) } : {}),
        }
      : {}),
  };
}
