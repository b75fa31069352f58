// What a checkpoint on disk holds, whatever its format: facts checked at opening, tensor bytes read on demand.

/** ggml type names; safetensors F32, F16 and BF16 use the same ones. */
export type TensorType =
  | 'F32'
  | 'F16'
  | 'BF16'
  | 'Q8_0'
  | 'Q4_0'
  | 'Q4_1'
  | 'Q5_0'
  | 'Q5_1'
  | 'Q2_K'
  | 'Q3_K'
  | 'Q4_K'
  | 'Q5_K'
  | 'Q6_K'
  | 'IQ4_NL'
  | 'IQ4_XS'
  | 'MXFP4';

export interface TensorInfo {
  /** Name in the file. */
  readonly name: string;
  readonly type: TensorType;
  /** Row-major, outermost first ([rows, cols] for a matrix; GGUF dims reversed). */
  readonly shape: readonly number[];
  /** Absolute path of the file that holds the bytes. */
  readonly file: string;
  /** Absolute byte offset in `file`. */
  readonly offset: number;
  readonly numBytes: number;
}

export type GgufValue = number | bigint | boolean | string | GgufArray;
export type GgufArray =
  | readonly number[]
  | readonly bigint[]
  | readonly boolean[]
  | readonly string[]
  | readonly GgufArray[];

export interface GgufCheckpoint extends CheckpointBase {
  readonly format: 'gguf';
  /** Metadata of the first part; every value already type-checked against the format. Read it with gguf-metadata.ts. */
  readonly metadata: ReadonlyMap<string, GgufValue>;
}

export interface SafetensorsCheckpoint extends CheckpointBase {
  readonly format: 'safetensors';
  /** The folder with config.json. */
  readonly folder: string;
  /** Parsed config.json. */
  readonly config: Readonly<Record<string, unknown>>;
  /** Parsed generation_config.json, or null when the folder has none. */
  readonly generationConfig: Readonly<Record<string, unknown>> | null;
}

interface CheckpointBase {
  /** The path or name the user gave. */
  readonly source: string;
  /** Every weight file that is part of it, absolute. */
  readonly files: readonly string[];
  readonly tensors: ReadonlyMap<string, TensorInfo>;
  /** Sum of the tensors' bytes. */
  readonly weightBytes: number;
  /** One line each, e.g. a tensor that hints at a quantization that is not applied; printed at start. */
  readonly warnings: readonly string[];
  /** Bytes of one tensor (a fresh buffer). */
  readTensor(tensor: TensorInfo): Uint8Array;
  /** Fills `target` from byte `start` of the tensor. */
  readBytes(tensor: TensorInfo, start: number, target: Uint8Array): void;
  close(): void;
}

export type Checkpoint = GgufCheckpoint | SafetensorsCheckpoint;
