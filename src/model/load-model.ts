// From an open checkpoint to everything a device needs: the family's program and, for each of its weights, where it lies in
// the file. Shapes are compared here, before any weight is read, so that a wrong file is one clear error.

import type { Checkpoint, TensorInfo } from '../checkpoint/checkpoint.ts';
import { PagodaError } from '../errors.ts';
import { findFamily } from './families.ts';
import type { ModelConfig } from './model-config.ts';
import type { ModelFamily, WeightSpec } from './model-family.ts';
import type { Program } from './program.ts';
import { programWeights } from './weight-specs.ts';

export interface LoadedModel {
  readonly family: ModelFamily;
  readonly config: ModelConfig;
  readonly program: Program;
  /** By canonical name; one for every weight that the program uses. */
  readonly weights: ReadonlyMap<string, WeightSpec>;
  /** The length that rope variants were fixed for. */
  readonly maxModelLen: number;
  /** One line each, for the log at start. */
  readonly warnings: readonly string[];
}

/** Buffers and duplicates that files may hold and nobody needs. */
const IGNORED_TENSORS = [
  /(^|\.)rotary_emb\.inv_freq$/,
  /\.attn\.(bias|masked_bias)$/,
  /\.attention\.(bias|masked_bias)$/,
  /^(lm_head|embed_out|output)\.weight$/,
  /^(language_model\.)?lm_head\.weight$/,
  /^rope_(freqs|factors_long|factors_short)\.weight$/,
];
const QUANTIZATION_HINT = /(scale|scales|scale_inv|qweight|qzeros|g_idx|zero_point|absmax|quant_map|quant_state.*)$/;
const MAX_NAMES_IN_WARNING = 8;

export function loadModel(checkpoint: Checkpoint, options: { maxModelLen?: number } = {}): LoadedModel {
  refuseQuantizationConfig(checkpoint);
  const family = findFamily(checkpoint);
  const config = family.config(checkpoint);
  const maxModelLen = options.maxModelLen ?? config.contextLength;
  const program = family.program(config, { maxModelLen });
  const weights = new Map(family.weights(config, checkpoint).map((spec) => [spec.name, spec]));
  for (const ref of programWeights(program)) {
    const spec = weights.get(ref.name);
    if (!spec)
      throw new PagodaError('internal', `The family ${family.name} gives no place for the weight ${ref.name}.`);
    if (spec.rows !== ref.rows || spec.cols !== ref.cols)
      throw new PagodaError('internal', `The family ${family.name} gives ${ref.name} the wrong shape.`);
  }
  const used = checkStoredShapes(checkpoint, [...weights.values()]);
  return { family, config, program, weights, maxModelLen, warnings: unusedTensors(checkpoint, used) };
}

function refuseQuantizationConfig(checkpoint: Checkpoint): void {
  if (checkpoint.format !== 'safetensors') return;
  const quantization = checkpoint.config.quantization_config;
  if (typeof quantization !== 'object' || quantization === null) return;
  const method = 'quant_method' in quantization ? String(quantization.quant_method) : 'unknown';
  throw new PagodaError(
    'unsupported',
    `The weights are quantized with '${method}' (quantization_config), which is not supported; use an F32, F16 or BF16 checkpoint, or GGUF.`,
  );
}

/** What the specs together demand of one stored tensor. */
interface Demand {
  readonly weight: string;
  rows: number;
  readonly cols: number;
}

/** Every tensor must hold exactly what is taken from it. Returns the names of the tensors that are used. */
function checkStoredShapes(checkpoint: Checkpoint, specs: readonly WeightSpec[]): Set<string> {
  const demands = new Map<string, Demand>();
  for (const spec of specs) {
    let taken = 0;
    for (const piece of spec.pieces) {
      const tensor = checkpoint.tensors.get(piece.tensor);
      if (!tensor)
        throw new PagodaError(
          'bad_model_file',
          `${checkpoint.source}: tensor ${piece.tensor} is missing (wanted for ${spec.name}, [${spec.rows}, ${spec.cols}]).`,
        );
      const isVector = tensor.shape.length <= 1;
      if (isVector && spec.rows > 1)
        throw shapeError(checkpoint, tensor, { wanted: `[${spec.rows}, ${spec.cols}]`, weight: spec.name });
      const cols = isVector ? 1 : spec.cols;
      taken += piece.numRows * cols;
      const demand = demands.get(piece.tensor);
      const end = piece.rowStart + piece.numRows;
      if (demand) demand.rows = Math.max(demand.rows, end);
      else demands.set(piece.tensor, { weight: spec.name, rows: end, cols });
      const [storedRows, storedCols] = storedMatrix(tensor, spec.transpose ?? false);
      if (storedCols !== cols || end > storedRows)
        throw shapeError(checkpoint, tensor, { wanted: wantedShape(tensor, spec, end), weight: spec.name });
    }
    if (taken !== spec.rows * spec.cols)
      throw new PagodaError(
        'internal',
        `The pieces of ${spec.name} hold ${taken} values instead of ${spec.rows * spec.cols}.`,
      );
  }
  for (const [name, demand] of demands) {
    const tensor = checkpoint.tensors.get(name) as TensorInfo;
    const spec = specs.find((each) => each.name === demand.weight);
    const [storedRows] = storedMatrix(tensor, spec?.transpose ?? false);
    if (spec && storedRows !== demand.rows)
      throw shapeError(checkpoint, tensor, { wanted: wantedShape(tensor, spec, demand.rows), weight: demand.weight });
  }
  return new Set(demands.keys());
}

/** The stored tensor as a matrix; a vector is a column. */
function storedMatrix(tensor: TensorInfo, transpose: boolean): [rows: number, cols: number] {
  if (tensor.shape.length <= 1) return [tensor.shape[0] ?? 1, 1];
  const cols = tensor.shape[tensor.shape.length - 1];
  const rows = tensor.shape.slice(0, -1).reduce((product, size) => product * size, 1);
  return transpose ? [cols, rows] : [rows, cols];
}

function wantedShape(tensor: TensorInfo, spec: WeightSpec, rows: number): string {
  if (tensor.shape.length <= 1) return `[${rows}]`;
  return spec.transpose ? `[${spec.cols}, ${rows}]` : `[${rows}, ${spec.cols}]`;
}

function shapeError(
  checkpoint: Checkpoint,
  tensor: TensorInfo,
  { wanted, weight }: { wanted: string; weight: string },
): PagodaError {
  return new PagodaError(
    'bad_model_file',
    `${checkpoint.source}: tensor ${tensor.name} is [${tensor.shape.join(', ')}]; ${wanted} was expected for ${weight}.`,
  );
}

function unusedTensors(checkpoint: Checkpoint, used: ReadonlySet<string>): string[] {
  const unused = [...checkpoint.tensors.keys()].filter(
    (name) => !used.has(name) && !IGNORED_TENSORS.some((pattern) => pattern.test(name)),
  );
  const hints = unused.filter((name) => QUANTIZATION_HINT.test(name));
  const others = unused.filter((name) => !QUANTIZATION_HINT.test(name));
  const warnings: string[] = [];
  if (hints.length > 0)
    warnings.push(`Not applied, although it hints at a quantization: ${someNames(hints)}. The output may be wrong.`);
  if (others.length > 0) warnings.push(`Not used by this model: ${someNames(others)}.`);
  return warnings;
}

function someNames(names: readonly string[]): string {
  const shown = names.slice(0, MAX_NAMES_IN_WARNING).join(', ');
  return names.length > MAX_NAMES_IN_WARNING ? `${shown} and ${names.length - MAX_NAMES_IN_WARNING} more` : shown;
}
