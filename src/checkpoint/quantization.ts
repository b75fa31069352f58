// The one table of weight formats: how many values a block holds and how many bytes it takes.
// Numbers are ggml's (ggml.h, enum ggml_type); F32, F16 and BF16 serve safetensors as well.

import { PagodaError } from '../errors.ts';
import type { TensorType } from './checkpoint.ts';

export interface QuantizationFormat {
  readonly type: TensorType;
  /** Id in a GGUF tensor header. */
  readonly ggmlType: number;
  /** Values per block; a row is a whole number of blocks. */
  readonly blockSize: number;
  readonly blockBytes: number;
}

function format(type: TensorType, ggmlType: number, blockSize: number, blockBytes: number): QuantizationFormat {
  return { type, ggmlType, blockSize, blockBytes };
}

export const QUANTIZATION_FORMATS: Readonly<Record<TensorType, QuantizationFormat>> = {
  F32: format('F32', 0, 1, 4),
  F16: format('F16', 1, 1, 2),
  BF16: format('BF16', 30, 1, 2),
  Q8_0: format('Q8_0', 8, 32, 34),
  Q4_0: format('Q4_0', 2, 32, 18),
  Q4_1: format('Q4_1', 3, 32, 20),
  Q5_0: format('Q5_0', 6, 32, 22),
  Q5_1: format('Q5_1', 7, 32, 24),
  Q2_K: format('Q2_K', 10, 256, 84),
  Q3_K: format('Q3_K', 11, 256, 110),
  Q4_K: format('Q4_K', 12, 256, 144),
  Q5_K: format('Q5_K', 13, 256, 176),
  Q6_K: format('Q6_K', 14, 256, 210),
  IQ4_NL: format('IQ4_NL', 20, 32, 18),
  IQ4_XS: format('IQ4_XS', 23, 256, 136),
  MXFP4: format('MXFP4', 39, 32, 17),
};

const formatsById = new Map(Object.values(QUANTIZATION_FORMATS).map((entry) => [entry.ggmlType, entry]));

/** ggml types that exist but that we cannot load: named in the refusal. */
const UNSUPPORTED_GGML_TYPES: Readonly<Record<number, string>> = {
  9: 'Q8_1',
  15: 'Q8_K',
  16: 'IQ2_XXS',
  17: 'IQ2_XS',
  18: 'IQ3_XXS',
  19: 'IQ1_S',
  21: 'IQ3_S',
  22: 'IQ2_S',
  24: 'I8',
  25: 'I16',
  26: 'I32',
  27: 'I64',
  28: 'F64',
  29: 'IQ1_M',
  34: 'TQ1_0',
  35: 'TQ2_0',
  40: 'NVFP4',
  41: 'Q1_0',
};

export const SUPPORTED_TYPES: readonly string[] = Object.keys(QUANTIZATION_FORMATS);

export function formatOfGgmlType(ggmlType: number): QuantizationFormat | null {
  return formatsById.get(ggmlType) ?? null;
}

/** For messages: `IQ2_XXS`, or the bare number when ggml itself does not know it. */
export function ggmlTypeName(ggmlType: number): string {
  return formatsById.get(ggmlType)?.type ?? UNSUPPORTED_GGML_TYPES[ggmlType] ?? `number ${ggmlType}`;
}

/** Bytes of one row of `cols` values; `cols` must be a whole number of blocks. */
export function rowBytes(type: TensorType, cols: number): number {
  const { blockSize, blockBytes } = QUANTIZATION_FORMATS[type];
  if (cols % blockSize !== 0) {
    throw new PagodaError(
      'bad_model_file',
      `a ${type} row of ${cols} values is not a whole number of blocks of ${blockSize}`,
    );
  }
  return (cols / blockSize) * blockBytes;
}
