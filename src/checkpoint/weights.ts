// Reads one canonical weight of a program from the stored tensors that make it up: as float32 (reference device, vectors), or as
// the places of its values on disk, for native code that reads and repacks them itself. Specs are checked against the tensors.

import { PagodaError } from '../errors.ts';
import type { WeightPiece, WeightSpec } from '../model/model-family.ts';
import type { Checkpoint, TensorInfo, TensorType } from './checkpoint.ts';
import { dequantizeRow } from './dequantize.ts';
import { QUANTIZATION_FORMATS, rowBytes } from './quantization.ts';

/** Stored bytes are read in pieces of about this size. */
const CHUNK_BYTES = 4 * 2 ** 20;

/** Consecutive rows of a weight as they stand on disk. */
export interface WeightRows {
  /** Absolute path. */
  readonly file: string;
  /** Byte offset of the first row in `file`. It need not be aligned. */
  readonly offset: number;
  readonly rowBytes: number;
  readonly numRows: number;
  readonly type: TensorType;
}

/** A piece with its tensor. Of a vector (1-D) `storedCols` is 1 and `start` and `count` are in values. */
interface PlacedPiece {
  readonly tensor: TensorInfo;
  readonly storedRows: number;
  readonly storedCols: number;
  /** First row; first column when the weight is the transposed tensor. */
  readonly start: number;
  readonly count: number;
}

/**
 * Where the rows of a weight lie, in order. Null when its values must be computed (transposed or plus one): use readWeight.
 * A weight of one row may be cut from vectors: then each entry is one run of its values.
 */
export function weightRows(checkpoint: Checkpoint, spec: WeightSpec): WeightRows[] | null {
  const pieces = placePieces(checkpoint, spec);
  if (spec.transpose || spec.addOne) return null;
  return pieces.map((piece) => {
    const { offset, numBytes } = byteRange(spec, piece);
    const { file, type } = piece.tensor;
    const numRows = piece.tensor.shape.length === 1 ? 1 : piece.count;
    return { file, offset: piece.tensor.offset + offset, rowBytes: numBytes / numRows, numRows, type };
  });
}

/** The whole weight, row-major [rows, cols]. */
export function readWeight(checkpoint: Checkpoint, spec: WeightSpec): Float32Array {
  const pieces = placePieces(checkpoint, spec);
  const out = allocate(spec);
  let done = 0;
  for (const piece of pieces) {
    const numValues = spec.transpose ? piece.count * spec.cols : piece.count * piece.storedCols;
    const target = out.subarray(done, done + numValues);
    if (spec.transpose) readTransposed(checkpoint, piece, target);
    else readStraight(checkpoint, byteRange(spec, piece), piece.tensor, target);
    done += numValues;
  }
  if (spec.addOne) for (let i = 0; i < out.length; i++) out[i] = out[i]! + 1;
  return out;
}

function fail(spec: WeightSpec, problem: string): never {
  throw new PagodaError('bad_model_file', `weight ${spec.name} [${spec.rows}, ${spec.cols}]: ${problem}`);
}

function placePieces(checkpoint: Checkpoint, spec: WeightSpec): PlacedPiece[] {
  const pieces = spec.pieces.map((piece) => placePiece(checkpoint, spec, piece));
  let numValues = 0;
  for (const piece of pieces) numValues += piece.count * (spec.transpose ? spec.cols : piece.storedCols);
  if (numValues !== spec.rows * spec.cols) {
    const stored = pieces.map(({ tensor }) => `${tensor.name} [${tensor.shape.join(', ')}]`).join(', ');
    fail(spec, `${spec.rows * spec.cols} values are needed but ${numValues} are taken from ${stored}`);
  }
  return pieces;
}

function placePiece(checkpoint: Checkpoint, spec: WeightSpec, piece: WeightPiece): PlacedPiece {
  const tensor = checkpoint.tensors.get(piece.tensor);
  if (!tensor) fail(spec, `tensor ${piece.tensor} is not in ${checkpoint.source}`);
  const isVector = tensor.shape.length <= 1;
  const storedCols = isVector ? 1 : tensor.shape.at(-1)!;
  const storedRows = isVector ? (tensor.shape[0] ?? 1) : tensor.shape.slice(0, -1).reduce((a, b) => a * b, 1);
  const shape = `${tensor.name} of ${tensor.file} has shape [${tensor.shape.join(', ')}]`;
  if (spec.transpose ? isVector || storedRows !== spec.cols : !isVector && storedCols !== spec.cols) fail(spec, shape);
  const { rowStart: start, numRows: count } = piece;
  const available = spec.transpose ? storedCols : storedRows;
  if (!Number.isInteger(start) || !Number.isInteger(count) || start < 0 || count < 1 || start + count > available) {
    fail(spec, `${shape}, from which ${count} from ${start} on were asked`);
  }
  return { tensor, storedRows, storedCols, start, count };
}

/** Bytes of a piece that is not transposed, relative to its tensor; always whole blocks. */
function byteRange(
  spec: WeightSpec,
  { tensor, storedCols, start, count }: PlacedPiece,
): { offset: number; numBytes: number } {
  const { blockSize, blockBytes } = QUANTIZATION_FORMATS[tensor.type];
  const firstBlock = (start * storedCols) / blockSize;
  const numBlocks = (count * storedCols) / blockSize;
  if (!Number.isInteger(firstBlock) || !Number.isInteger(numBlocks)) {
    fail(
      spec,
      `${count} values of ${tensor.name} from ${start} on are not whole ${tensor.type} blocks of ${blockSize}`,
    );
  }
  return { offset: firstBlock * blockBytes, numBytes: numBlocks * blockBytes };
}

function allocate(spec: WeightSpec): Float32Array {
  try {
    return new Float32Array(spec.rows * spec.cols);
  } catch (cause) {
    const gib = ((spec.rows * spec.cols * 4) / 2 ** 30).toFixed(1);
    throw new PagodaError('out_of_memory', `weight ${spec.name} takes ${gib} GiB as float32, too much for one array`, {
      cause,
    });
  }
}

function readStraight(
  checkpoint: Checkpoint,
  { offset, numBytes }: { offset: number; numBytes: number },
  tensor: TensorInfo,
  target: Float32Array,
): void {
  const { blockSize, blockBytes } = QUANTIZATION_FORMATS[tensor.type];
  const chunk = new Uint8Array(Math.min(numBytes, Math.floor(CHUNK_BYTES / blockBytes) * blockBytes));
  let done = 0;
  for (let at = 0; at < numBytes; at += chunk.length) {
    const bytes = chunk.subarray(0, Math.min(chunk.length, numBytes - at));
    checkpoint.readBytes(tensor, offset + at, bytes);
    const numValues = (bytes.length / blockBytes) * blockSize;
    dequantizeRow(tensor.type, bytes, 0, target, done, numValues);
    done += numValues;
  }
}

/** target [count, storedRows] = columns [start, start + count) of the stored [storedRows, storedCols], turned. */
function readTransposed(
  checkpoint: Checkpoint,
  { tensor, storedRows, storedCols, start, count }: PlacedPiece,
  target: Float32Array,
): void {
  const bytesPerRow = rowBytes(tensor.type, storedCols);
  const rowsPerChunk = Math.max(1, Math.min(storedRows, Math.floor(CHUNK_BYTES / bytesPerRow)));
  const chunk = new Uint8Array(rowsPerChunk * bytesPerRow);
  const values = new Float32Array(rowsPerChunk * storedCols);
  for (let row = 0; row < storedRows; row += rowsPerChunk) {
    const numRows = Math.min(rowsPerChunk, storedRows - row);
    const bytes = chunk.subarray(0, numRows * bytesPerRow);
    checkpoint.readBytes(tensor, row * bytesPerRow, bytes);
    dequantizeRow(tensor.type, bytes, 0, values, 0, numRows * storedCols);
    for (let r = 0; r < numRows; r++) {
      for (let c = 0; c < count; c++) target[c * storedRows + row + r] = values[r * storedCols + start + c]!;
    }
  }
}
