// Opens a Hugging Face folder: config.json and safetensors. With model.safetensors.index.json only what the index names counts;
// without one, only model.safetensors does. Pickles and Python files are never opened.

import { isUtf8 } from 'node:buffer';
import { existsSync, readdirSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { PagodaError } from '../errors.ts';
import type { SafetensorsCheckpoint, TensorInfo } from './checkpoint.ts';
import { ModelFile } from './model-file.ts';
import { openTensors } from './open-tensors.ts';
import { parseSafetensors, type SafetensorsEntry } from './safetensors-file.ts';
import { type JsonObject, parseJsonObject } from './strict-json.ts';

const INDEX = 'model.safetensors.index.json';
const MAX_JSON_BYTES = 64 * 2 ** 20;
const MAX_TENSORS = 1_000_000;
const MAX_SHARDS = 10_000;

/** Buffers that old checkpoints carry and that every loader computes itself: rotary tables, causal masks. */
const UNUSED_BUFFER = /(?:^|\.)(?:rotary_emb\.inv_freq|rotary_emb\.(?:cos|sin)_cached|masked_bias|position_ids)$/;
const CAUSAL_MASK = /(?:^|\.)(?:attn|attention)\.bias$/;

/** Companions of quantized weights: a model that has them gives gibberish when they are not applied. */
const QUANTIZATION_PART =
  /(?:^|[._])(?:weight_scale|weight_scale_inv|weight_scale_2|weight_zero_point|weight_packed|weight_shape|input_scale|output_scale|k_scale|v_scale|qweight|qzeros|scales|g_idx|zero_point|SCB|absmax|quant_map|nested_absmax|nested_quant_map|quant_state\.[A-Za-z0-9_]+)$/;

/** True for a folder that openSafetensors is meant for. */
export function isSafetensorsFolder(folder: string): boolean {
  return existsSync(join(folder, INDEX)) || existsSync(join(folder, 'model.safetensors'));
}

/** `source` is what the user asked for; it defaults to the folder. */
export function openSafetensors(folder: string, source: string = folder): SafetensorsCheckpoint {
  const root = resolve(folder);
  const config = readJson(join(root, 'config.json'));
  refuseQuantizedConfig(join(root, 'config.json'), config);
  const generationPath = join(root, 'generation_config.json');
  const generationConfig = existsSync(generationPath) ? readJson(generationPath) : null;
  const warnings: string[] = [];
  if (config.auto_map !== undefined) {
    warnings.push(`${join(root, 'config.json')}: auto_map is ignored: code that comes with a model is never run`);
  }
  const files: ModelFile[] = [];
  try {
    const entries = existsSync(join(root, INDEX)) ? openShards(root, files) : openSingle(root, files);
    const tensors = selectTensors(entries, warnings);
    return {
      format: 'safetensors',
      source,
      folder: root,
      config,
      generationConfig,
      ...openTensors(files, tensors, warnings),
    };
  } catch (error) {
    for (const file of files) file.close();
    throw error;
  }
}

function bad(message: string): never {
  throw new PagodaError('bad_model_file', message);
}

/** A JSON object from a file, strictly parsed; Python's NaN and Infinity are accepted. */
export function readJson(path: string): JsonObject {
  const file = new ModelFile(path);
  try {
    if (file.numBytes > MAX_JSON_BYTES)
      bad(`${path}: ${file.numBytes} bytes, more than the limit of ${MAX_JSON_BYTES}`);
    const bytes = Buffer.alloc(file.numBytes);
    file.read(bytes, 0);
    if (!isUtf8(bytes)) bad(`${path}: is not valid UTF-8`);
    return parseJsonObject(bytes.toString('utf8').replace(/^\uFEFF/, ''), { path, allowNonFinite: true });
  } finally {
    file.close();
  }
}

function refuseQuantizedConfig(path: string, config: JsonObject): void {
  const quantization = config.quantization_config ?? config.compression_config;
  if (quantization === undefined || quantization === null) return;
  const fields = quantization as JsonObject;
  const method = [fields.quant_method, fields.quant_algo, fields.format].find((value) => typeof value === 'string');
  bad(
    `${path}: quantization_config: the weights are quantized by ${method ?? 'an unnamed method'}, which is not supported in safetensors; use the original model (F32, F16, BF16) or a GGUF of it`,
  );
}

interface PlacedEntry extends SafetensorsEntry {
  readonly file: string;
}

function openSingle(root: string, files: ModelFile[]): PlacedEntry[] {
  const path = join(root, 'model.safetensors');
  if (!existsSync(path)) refuseFolder(root);
  const file = new ModelFile(path);
  files.push(file);
  return parseSafetensors(file).map((entry) => ({ ...entry, file: path }));
}

function refuseFolder(root: string): never {
  const names = readdirSync(root);
  const pickles = names.filter((name) => /\.(?:bin|pt|pth|ckpt|pkl)$/i.test(name));
  if (pickles.length > 0) {
    bad(
      `${root}: has no model.safetensors, only ${pickles[0]}; pickle files can run code and are never opened: convert the model to safetensors`,
    );
  }
  const others = names.filter((name) => name.endsWith('.safetensors'));
  const hint =
    others.length > 0 ? ` (found ${others.slice(0, 3).join(', ')}, which only counts when an index names it)` : '';
  bad(`${root}: has neither ${INDEX} nor model.safetensors${hint}`);
}

function openShards(root: string, files: ModelFile[]): PlacedEntry[] {
  const indexPath = join(root, INDEX);
  const namesByShard = readIndex(indexPath);
  for (const shard of namesByShard.keys()) {
    if (!existsSync(join(root, shard)))
      bad(`${join(root, shard)}: missing; ${INDEX} names it for ${namesByShard.get(shard)!.size} tensors`);
  }
  const entries: PlacedEntry[] = [];
  for (const [shard, names] of namesByShard) {
    const file = new ModelFile(join(root, shard));
    files.push(file);
    for (const entry of parseSafetensors(file)) {
      if (names.delete(entry.name)) entries.push({ ...entry, file: file.path });
    }
    const missing = names.values().next();
    if (!missing.done) bad(`${file.path}: tensor ${missing.value} is not in it, though ${INDEX} says so`);
  }
  return entries;
}

/** Shard name -> the tensors that it must hold. */
function readIndex(path: string): Map<string, Set<string>> {
  const map = readJson(path).weight_map;
  if (typeof map !== 'object' || map === null || Array.isArray(map)) bad(`${path}: weight_map must be an object`);
  const shards = new Map<string, Set<string>>();
  const pairs = Object.entries(map);
  if (pairs.length === 0 || pairs.length > MAX_TENSORS)
    bad(`${path}: weight_map names ${pairs.length} tensors (1 to ${MAX_TENSORS} are allowed)`);
  for (const [tensor, shard] of pairs) {
    if (typeof shard !== 'string' || !isInside(shard)) {
      bad(
        `${path}: weight_map gives tensor ${tensor.slice(0, 200)} the file ${JSON.stringify(shard).slice(0, 200)}; only .safetensors files inside the folder are read`,
      );
    }
    const names = shards.get(shard);
    if (names) names.add(tensor);
    else shards.set(shard, new Set([tensor]));
  }
  if (shards.size > MAX_SHARDS) bad(`${path}: weight_map names ${shards.size} files, more than ${MAX_SHARDS}`);
  return shards;
}

/** A relative path of plain names. */
function isInside(shard: string): boolean {
  const names = shard.split('/');
  return (
    shard.endsWith('.safetensors') &&
    names.every((name) => /^[^\\\u0000-\u001f:]+$/.test(name) && name !== '.' && name !== '..')
  );
}

/** Drops what no model reads, and refuses or warns about what could mean that the weights are not what they seem. */
function selectTensors(entries: readonly PlacedEntry[], warnings: string[]): Map<string, TensorInfo> {
  const tensors = new Map<string, TensorInfo>();
  for (const { name, dtype, shape, file, offset, numBytes } of entries) {
    if (UNUSED_BUFFER.test(name) || (CAUSAL_MASK.test(name) && shape.length === 4)) continue;
    const isQuantizationPart = QUANTIZATION_PART.test(name);
    if (dtype !== 'F32' && dtype !== 'F16' && dtype !== 'BF16') {
      const hint = isQuantizationPart ? ', part of a quantization that is not supported in safetensors' : '';
      bad(
        `${file}: tensor ${name} has dtype ${dtype}${hint}; F32, F16 and BF16 can be loaded (use the original model, or a GGUF of it)`,
      );
    }
    if (isQuantizationPart)
      warnings.push(
        `${file}: tensor ${name} hints at a quantization that is not applied: it is not used, and the output may be wrong`,
      );
    tensors.set(name, { name, type: dtype, shape, file, offset, numBytes });
  }
  if (tensors.size === 0) bad(`${entries[0]?.file ?? 'the folder'}: has no weights`);
  return tensors;
}
