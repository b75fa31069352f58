// From a program's weights to the tensors that hold them. A family only says where a weight lies; names follow GGUF
// (`blk.3.attn_q.weight`), which is also what GGUF files use, so for them the plain case needs no table.

import type { Checkpoint } from '../checkpoint/checkpoint.ts';
import { PagodaError } from '../errors.ts';
import type { ModelConfig } from './model-config.ts';
import type { WeightPiece, WeightSpec } from './model-family.ts';
import type { Op, Program, WeightRef } from './program.ts';

/** Where a weight lies: a whole tensor by name, or pieces. Null = the family's plain naming rule applies. */
export type WeightSource = string | Pick<WeightSpec, 'pieces' | 'transpose' | 'addOne'>;

export type WeightRefShape = Pick<WeightRef, 'rows' | 'cols'>;

/** `blk.3.attn_q.weight` cut into its parts; outside of layers `layer` is null. */
export interface WeightName {
  readonly layer: number | null;
  /** attn_q, token_embd, ... */
  readonly part: string;
  readonly kind: 'weight' | 'bias';
}

/** Every weight that the program uses, once, in order of first use. */
export function programWeights(program: Program): WeightRef[] {
  const byName = new Map<string, WeightRef>();
  for (const op of program.ops) {
    for (const ref of opWeights(op)) {
      const known = byName.get(ref.name);
      if (known && (known.rows !== ref.rows || known.cols !== ref.cols)) {
        throw new PagodaError(
          'internal',
          `The program uses ${ref.name} as [${known.rows}, ${known.cols}] and as [${ref.rows}, ${ref.cols}].`,
        );
      }
      byName.set(ref.name, known ?? ref);
    }
  }
  return [...byName.values()];
}

export function opWeights(op: Op): WeightRef[] {
  switch (op.kind) {
    case 'embed':
    case 'addPosition':
    case 'rmsNorm':
      return [op.weight];
    case 'layerNorm':
    case 'linear':
      return op.bias ? [op.weight, op.bias] : [op.weight];
    case 'moe': {
      const shared = op.shared
        ? [op.shared.gate, op.shared.up, op.shared.down, ...(op.shared.gateWeight ? [op.shared.gateWeight] : [])]
        : [];
      return [op.router, op.gate, op.up, op.down, ...shared];
    }
    default:
      return [];
  }
}

/** One spec per weight; `locate` maps a name to the place in this checkpoint. */
export function weightSpecs(
  program: Program,
  checkpoint: Checkpoint,
  locate: (name: WeightName, ref: WeightRef) => WeightSource,
): WeightSpec[] {
  return programWeights(program).map((ref) => {
    const source = locate(parseWeightName(ref.name), ref);
    if (typeof source !== 'string') return { name: ref.name, rows: ref.rows, cols: ref.cols, ...source };
    return { name: ref.name, rows: ref.rows, cols: ref.cols, pieces: [whole(source, ref, checkpoint)] };
  });
}

/** GGUF: the weight's own name, unless `special` knows better. */
export function ggufSpecs(
  program: Program,
  checkpoint: Checkpoint,
  special: (name: WeightName, ref: WeightRef) => WeightSource | null = () => null,
): WeightSpec[] {
  return weightSpecs(program, checkpoint, (name, ref) => special(name, ref) ?? ref.name);
}

export interface HfNames {
  /** Before the number of a layer, e.g. `model.layers.`. */
  readonly layers: string;
  /** Canonical part -> name in the file without `.weight` or `.bias`; inside a layer relative to it. */
  readonly parts: Readonly<Record<string, string>>;
}

/** safetensors: the family's table of names, unless `special` knows better. */
export function hfSpecs(
  program: Program,
  checkpoint: Checkpoint,
  names: HfNames,
  special: (name: WeightName, ref: WeightRef) => WeightSource | null = () => null,
): WeightSpec[] {
  return weightSpecs(program, checkpoint, (name, ref) => special(name, ref) ?? hfName(names, name));
}

export function hfName(names: HfNames, { layer, part, kind }: WeightName): string {
  const stored = names.parts[part];
  if (stored === undefined)
    throw new PagodaError('internal', `No name in the file is known for the weight part ${part}.`);
  return layer === null ? `${stored}.${kind}` : `${names.layers}${layer}.${stored}.${kind}`;
}

/** The whole tensor as one piece: vectors count elements, all else rows. */
export function whole(tensor: string, ref: WeightRef, checkpoint: Checkpoint): WeightPiece {
  const isVector = ref.rows === 1 && checkpoint.tensors.get(tensor)?.shape.length === 1;
  return { tensor, rowStart: 0, numRows: isVector ? ref.rows * ref.cols : ref.rows };
}

/** Rows of a fused tensor; of its bias the same number of elements. */
export function slice(tensor: string, rowStart: number, numRows: number): WeightSource {
  return { pieces: [{ tensor, rowStart, numRows }] };
}

/** GGUF's `attn_qkv`: the rows of q, then those of k, then those of v. Null when the file keeps them apart, and for other parts. */
export function fusedQkv(
  checkpoint: Checkpoint,
  config: Pick<ModelConfig, 'numHeads' | 'numKvHeads' | 'headDim'>,
  { layer, part, kind }: WeightName,
): WeightSource | null {
  const fused = `blk.${layer}.attn_qkv.${kind}`;
  if (!checkpoint.tensors.has(fused)) return null;
  const qRows = config.numHeads * config.headDim;
  const kvRows = config.numKvHeads * config.headDim;
  if (part === 'attn_q') return slice(fused, 0, qRows);
  if (part === 'attn_k') return slice(fused, qRows, kvRows);
  return part === 'attn_v' ? slice(fused, qRows + kvRows, kvRows) : null;
}

/** Separate tensors of the experts, stacked. */
export function stacked(numExperts: number, rowsEach: number, tensorOf: (expert: number) => string): WeightSource {
  return {
    pieces: Array.from({ length: numExperts }, (_, expert) => ({
      tensor: tensorOf(expert),
      rowStart: 0,
      numRows: rowsEach,
    })),
  };
}

function parseWeightName(name: string): WeightName {
  const match = /^(?:blk\.(\d+)\.)?(.+)\.(weight|bias)$/.exec(name);
  if (!match) throw new PagodaError('internal', `Weight name ${name} does not follow the naming rule.`);
  return {
    layer: match[1] === undefined ? null : Number(match[1]),
    part: match[2],
    kind: match[3] as 'weight' | 'bias',
  };
}
