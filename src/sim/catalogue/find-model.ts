// From the MODEL that a user names to its shape: a local folder or file first, then the catalogue by name, then the local
// Hugging Face cache. A folder needs only its config.json; weights that are there give exact bytes.

import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import type { Checkpoint, SafetensorsCheckpoint } from '../../checkpoint/checkpoint.ts';
import { EMBEDDED_MODEL, openModel } from '../../checkpoint/resolve-model.ts';
import { modelFacts } from '../../device/model-facts.ts';
import { PagodaError } from '../../errors.ts';
import { findFamily } from '../../model/families.ts';
import { loadModel } from '../../model/load-model.ts';
import { type CatalogueEntry, MODELS } from './data/models.ts';
import type { ModelShape, WeightDtype } from './model-shape.ts';
import { nearestNames } from './nearest-name.ts';
import { type ConfigFields, shapeFromConfig } from './shape-from-config.ts';
import { shapeFromProgram } from './shape-from-program.ts';

export interface FoundModel {
  readonly shape: ModelShape;
  /** `catalogue`, `config.json`, or the checkpoint's format. */
  readonly source: string;
  /** One line each. */
  readonly notes: readonly string[];
}

/** Throws PagodaError: `bad_config` (unknown name, with the nearest ones), `bad_model_file`. */
export function findModel(name: string): FoundModel {
  if (name.trim() === '' || name.includes('\0')) throw unknownModel(name);
  if (name === EMBEDDED_MODEL) return checkpointModel(name);
  const stats = statSync(name, { throwIfNoEntry: false });
  if (stats?.isDirectory()) return folderModel(name);
  if (stats) return name.toLowerCase().endsWith('.json') ? configModel(name, name) : checkpointModel(name);
  const entry = findEntry(name);
  if (entry !== null) return catalogueModel(entry);
  if (!name.includes('/')) throw unknownModel(name);
  try {
    return checkpointModel(name);
  } catch (error) {
    if (error instanceof PagodaError && (error.code === 'not_found' || error.code === 'bad_config'))
      throw unknownModel(name);
    throw error;
  }
}

/** Every name of the catalogue, aliases left out. */
export function catalogueModelNames(): string[] {
  return MODELS.map(({ name }) => name);
}

/** From config.json's fields: through the family's program where Pagoda has one, else by dimensions. */
export function shapeOfConfig(
  config: ConfigFields,
  named: { readonly name: string; readonly weightDtype: WeightDtype },
): { shape: ModelShape; source: 'program' | 'dimensions' } {
  const checkpoint = configOnly(named.name, config);
  try {
    const family = findFamily(checkpoint);
    const dims = family.config(checkpoint);
    const program = family.program(dims, { maxModelLen: dims.contextLength });
    return { shape: shapeFromProgram(dims, program, { ...named, storedWeightBytes: null }), source: 'program' };
  } catch (error) {
    if (!(error instanceof PagodaError) || error.code !== 'unsupported') throw error;
    return { shape: shapeFromConfig(config, named), source: 'dimensions' };
  }
}

interface FoundEntry {
  readonly entry: CatalogueEntry;
  readonly weightDtype: WeightDtype;
}

/** `meta-llama/Llama-3.1-8B-Instruct-FP8` is llama-3.1-8b with fp8 weights. */
function findEntry(typed: string): FoundEntry | null {
  const bare = typed
    .slice(typed.lastIndexOf('/') + 1)
    .toLowerCase()
    .replaceAll('_', '-');
  let name = bare;
  let weightDtype: WeightDtype | null = null;
  for (const [suffix, dtype] of QUANTIZED_SUFFIXES) {
    if (!name.endsWith(suffix)) continue;
    name = name.slice(0, -suffix.length);
    weightDtype = dtype;
    break;
  }
  const plain = name.replace(/^meta-/, '').replace(/-(instruct|chat|it|hf|pt|base)(?=-|$)/g, '');
  const entry = MODELS.find(
    (each) =>
      [bare, name, plain].includes(each.name) || each.aliases?.some((alias) => [bare, name, plain].includes(alias)),
  );
  return entry === undefined ? null : { entry, weightDtype: weightDtype ?? entry.weightDtype ?? 'bf16' };
}

const QUANTIZED_SUFFIXES: ReadonlyArray<readonly [string, WeightDtype]> = [
  ['-fp8-dynamic', 'fp8'],
  ['-fp8', 'fp8'],
  ['-quantized.w8a8', 'int8'],
  ['-w8a8', 'int8'],
  ['-gptq-int8', 'int8'],
  ['-int8', 'int8'],
  ['-gptq-int4', 'int4'],
  ['-gptq', 'int4'],
  ['-awq', 'int4'],
  ['-int4', 'int4'],
];

/** A search asks for the same model many times. */
const known = new Map<CatalogueEntry, ModelShape>();

function catalogueModel({ entry, weightDtype }: FoundEntry): FoundModel {
  let shape = known.get(entry);
  if (shape === undefined) {
    shape = shapeOfConfig(entry.config, { name: entry.name, weightDtype }).shape;
    known.set(entry, shape);
  }
  return { shape: { ...shape, weightDtype }, source: 'catalogue', notes: [] };
}

function folderModel(folder: string): FoundModel {
  try {
    return checkpointModel(folder);
  } catch (error) {
    const path = join(folder, 'config.json');
    const isReadable = error instanceof PagodaError && statSync(path, { throwIfNoEntry: false })?.isFile() === true;
    if (!isReadable) throw error;
    return configModel(path, folder);
  }
}

function configModel(path: string, name: string): FoundModel {
  let config: unknown;
  try {
    config = JSON.parse(readFileSync(path, 'utf8'));
  } catch (error) {
    throw new PagodaError('bad_model_file', `${path}: is not JSON (${(error as Error).message}).`);
  }
  if (typeof config !== 'object' || config === null || Array.isArray(config))
    throw new PagodaError('bad_model_file', `${path}: must hold a JSON object.`);
  const fields = config as ConfigFields;
  const { shape, source } = shapeOfConfig(fields, { name, weightDtype: weightDtypeOf(fields) });
  const notes =
    source === 'program'
      ? []
      : [`${shape.architecture} is planned from its dimensions; Pagoda itself does not run it.`];
  return { shape, source: 'config.json', notes };
}

function checkpointModel(name: string): FoundModel {
  const checkpoint = openModel(name);
  try {
    const model = loadModel(checkpoint);
    const facts = modelFacts(model, checkpoint);
    const isPlain = facts.weightBytesByFormat.every(({ format }) => ['F32', 'F16', 'BF16'].includes(format));
    const shape = shapeFromProgram(model.config, model.program, {
      name,
      weightDtype: isPlain ? (facts.weightBytesByFormat[0]?.format === 'F32' ? 'f32' : 'bf16') : 'int8',
      storedWeightBytes: facts.weightBytes,
    });
    return { shape, source: checkpoint.format, notes: checkpoint.warnings };
  } finally {
    checkpoint.close();
  }
}

/** What `quantization_config` or `torch_dtype` says about the stored weights. */
function weightDtypeOf(config: ConfigFields): WeightDtype {
  const quantization = config.quantization_config;
  if (typeof quantization === 'object' && quantization !== null) {
    const { quant_method: method, bits } = quantization as Record<string, unknown>;
    if (method === 'fp8' || method === 'fbgemm_fp8') return 'fp8';
    if (method === 'mxfp4') return 'mxfp4';
    if (method === 'awq' || method === 'gptq') return bits === 8 ? 'int8' : 'int4';
    if (method === 'compressed-tensors') return 'int8';
  }
  return config.torch_dtype === 'float32' || config.dtype === 'float32' ? 'f32' : 'bf16';
}

/** A checkpoint that has only its config.json: enough for a family's dimensions and program. */
function configOnly(source: string, config: ConfigFields): SafetensorsCheckpoint {
  const refuse = (): never => {
    throw new PagodaError('internal', `${source}: weights were asked of a config.json.`);
  };
  return {
    format: 'safetensors',
    source,
    folder: '',
    config,
    generationConfig: null,
    files: [],
    tensors: new Map<string, never>() as Checkpoint['tensors'],
    weightBytes: 0,
    warnings: [],
    readTensor: refuse,
    readBytes: refuse,
    close: () => {},
  };
}

function unknownModel(name: string): PagodaError {
  const names = nearestNames(name.slice(name.lastIndexOf('/') + 1), catalogueModelNames());
  return new PagodaError(
    'bad_config',
    `--model ${JSON.stringify(name)} is neither in the catalogue nor a folder, .gguf file or cached model here; nearest names: ${names.join(', ')}.`,
    { param: '--model' },
  );
}
