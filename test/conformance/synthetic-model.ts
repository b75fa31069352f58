// Small random models, built op by op and written to a GGUF file, so that every device loads them the way it loads real ones.
// Weights are random numbers in plain formats and random bit patterns with sane scales in quantized ones.

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Checkpoint, TensorType } from '../../src/checkpoint/checkpoint.ts';
import { openGguf } from '../../src/checkpoint/gguf.ts';
import { QUANTIZATION_FORMATS, rowBytes } from '../../src/checkpoint/quantization.ts';
import { modelConfig } from '../../src/model/dimensions.ts';
import { llama } from '../../src/model/llama.ts';
import type { LoadedModel } from '../../src/model/load-model.ts';
import type { Program, WeightRef } from '../../src/model/program.ts';
import { programWeights } from '../../src/model/weight-specs.ts';

export interface SyntheticModel {
  readonly model: LoadedModel;
  readonly checkpoint: Checkpoint;
  dispose(): void;
}

export interface SyntheticOptions {
  readonly seed?: number;
  /** Format of the matrices; vectors stay F32. */
  readonly format?: TensorType;
  readonly maxModelLen?: number;
  /** Changes the values of a weight before they are written (F32 only). */
  readonly change?: (ref: WeightRef, values: Float32Array) => void;
}

/** Small, fast, good enough for test weights (Marsaglia's xorshift). */
export function testRandom(seed: number): () => number {
  let state = (seed * 2654435761) >>> 0 || 1;
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) / 2 ** 32;
  };
}

export function syntheticModel(program: Program, options: SyntheticOptions = {}): SyntheticModel {
  const random = testRandom(options.seed ?? 1);
  const refs = programWeights(program);
  const tensors = refs.map((ref) => {
    const type = ref.rows === 1 ? 'F32' : (options.format ?? 'F32');
    return { ref, type, bytes: tensorBytes(ref, type, random, options) };
  });
  const folder = mkdtempSync(join(tmpdir(), 'pagoda-synthetic-'));
  const path = join(folder, 'model.gguf');
  writeFileSync(path, ggufFile(tensors));
  const checkpoint = openGguf(path);
  return {
    checkpoint,
    model: loadedModel(program, refs, options.maxModelLen ?? 512),
    dispose() {
      checkpoint.close();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

function loadedModel(program: Program, refs: readonly WeightRef[], maxModelLen: number): LoadedModel {
  const { numKvHeads, headDim } = program.kvLayers[0];
  const config = modelConfig({
    architecture: 'synthetic',
    hiddenSize: program.hiddenSize,
    numLayers: program.kvLayers.length,
    numHeads: numKvHeads,
    numKvHeads,
    headDim,
    intermediateSize: program.hiddenSize,
    vocabSize: program.vocabSize,
    maxPositions: maxModelLen,
    normEps: 1e-5,
    activation: 'silu',
    tieEmbeddings: false,
    windows: program.kvLayers.map(({ window }) => window),
  });
  const weights = new Map(
    refs.map(({ name, rows, cols }) => [
      name,
      { name, rows, cols, pieces: [{ tensor: name, rowStart: 0, numRows: rows === 1 ? cols : rows }] },
    ]),
  );
  return { family: llama, config, program, weights, maxModelLen, warnings: [] };
}

function tensorBytes(ref: WeightRef, type: TensorType, random: () => number, { change }: SyntheticOptions): Uint8Array {
  if (type === 'F32') {
    // About unit gain for matrices; norms around 1.
    const gain = ref.rows > 1 ? 3 / Math.sqrt(ref.cols) : 0.5;
    const shift = ref.rows === 1 && ref.name.endsWith('norm.weight') ? 1 : 0;
    const values = Float32Array.from(
      { length: ref.rows * ref.cols },
      () => shift + (random() - 0.5) * 2 * gain * (ref.name.startsWith('token_embd') ? 4 : 1),
    );
    change?.(ref, values);
    return new Uint8Array(values.buffer);
  }
  const bytes = new Uint8Array(ref.rows * rowBytes(type, ref.cols));
  for (let i = 0; i < bytes.length; i++) bytes[i] = random() * 256;
  const { blockBytes } = QUANTIZATION_FORMATS[type];
  const view = new DataView(bytes.buffer);
  for (let start = 0; start < bytes.length; start += blockBytes) writeScales(view, start, type, ref.cols, random);
  return bytes;
}

/** Byte offsets of the half-precision numbers in a block, and how large the integers beside them get. */
const HALF_SCALES: Partial<Record<TensorType, { readonly at: readonly number[]; readonly levels: number }>> = {
  Q8_0: { at: [0], levels: 127 },
  Q4_0: { at: [0], levels: 8 },
  Q4_1: { at: [0, 2], levels: 15 },
  Q5_0: { at: [0], levels: 16 },
  Q5_1: { at: [0, 2], levels: 31 },
  Q2_K: { at: [80, 82], levels: 45 },
  Q3_K: { at: [108], levels: 124 },
  Q4_K: { at: [0, 2], levels: 945 },
  Q5_K: { at: [0, 2], levels: 1953 },
  Q6_K: { at: [208], levels: 4064 },
  IQ4_NL: { at: [0], levels: 127 },
  IQ4_XS: { at: [0], levels: 4064 },
};

function writeScales(view: DataView, start: number, type: TensorType, cols: number, random: () => number): void {
  const size = (0.5 + random()) / Math.sqrt(cols);
  const signed = random() < 0.5 ? size : -size;
  if (type === 'MXFP4') {
    view.setUint8(start, 120 + Math.floor(random() * 3)); // exponent byte: 2^-7 .. 2^-5
    return;
  }
  if (type === 'F16') view.setUint16(start, toHalf(signed * 3), true);
  if (type === 'BF16') view.setUint16(start, toBfloat16(signed * 3), true);
  const { at, levels } = HALF_SCALES[type] ?? { at: [], levels: 1 };
  // The minimum is added in Q4_1 and Q5_1 and subtracted in the K types: either way the weights lie around zero, as real ones do.
  const minimum = type === 'Q4_1' || type === 'Q5_1' ? -1.25 * signed : signed;
  at.forEach((offset, i) => {
    view.setUint16(start + offset, toHalf(i === 0 ? (signed * 2.5) / levels : minimum), true);
  });
}

function toBfloat16(x: number): number {
  const view = new DataView(new ArrayBuffer(4));
  view.setFloat32(0, x);
  return view.getUint16(0);
}

/** Truncated, normal numbers and zero only: enough for scales. */
function toHalf(x: number): number {
  const sign = x < 0 ? 0x8000 : 0;
  const exponent = Math.floor(Math.log2(Math.abs(x)));
  if (exponent < -14) return sign | Math.floor(Math.abs(x) * 2 ** 24);
  return sign | ((exponent + 15) << 10) | Math.floor((Math.abs(x) / 2 ** exponent - 1) * 1024);
}

interface StoredTensor {
  readonly ref: WeightRef;
  readonly type: TensorType;
  readonly bytes: Uint8Array;
}

const ALIGNMENT = 32;

/** GGUF v3: magic, version, counts, one key, the tensor list, aligned data. */
function ggufFile(tensors: readonly StoredTensor[]): Buffer {
  const parts: Buffer[] = [
    Buffer.from('GGUF'),
    u32(3),
    u64(tensors.length),
    u64(1),
    text('general.architecture'),
    u32(8),
    text('synthetic'),
  ];
  let offset = 0;
  for (const { ref, type, bytes } of tensors) {
    const dims = ref.rows === 1 ? [ref.cols] : [ref.cols, ref.rows];
    parts.push(
      text(ref.name),
      u32(dims.length),
      ...dims.map(u64),
      u32(QUANTIZATION_FORMATS[type].ggmlType),
      u64(offset),
    );
    offset += padded(bytes.length);
  }
  const header = Buffer.concat(parts);
  const data = tensors.flatMap(({ bytes }) => [Buffer.from(bytes), Buffer.alloc(padded(bytes.length) - bytes.length)]);
  return Buffer.concat([header, Buffer.alloc(padded(header.length) - header.length), ...data]);
}

function padded(length: number): number {
  return Math.ceil(length / ALIGNMENT) * ALIGNMENT;
}

function u32(value: number): Buffer {
  const buffer = Buffer.alloc(4);
  buffer.writeUInt32LE(value);
  return buffer;
}

function u64(value: number): Buffer {
  const buffer = Buffer.alloc(8);
  buffer.writeBigUInt64LE(BigInt(value));
  return buffer;
}

function text(value: string): Buffer {
  return Buffer.concat([u64(Buffer.byteLength(value)), Buffer.from(value)]);
}
