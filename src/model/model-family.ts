// The contract of a file in model/: one architecture, complete. A new architecture is one new file that exports a ModelFamily
// and one line in model/families.ts.

import type { Checkpoint } from '../checkpoint/checkpoint.ts';
import type { ModelConfig } from './model-config.ts';
import type { Program } from './program.ts';

/**
 * Rows [rowStart, rowStart + numRows) of a stored tensor viewed as a matrix [rows, cols] (3-D expert tensors are flattened to
 * 2-D). Of a stored vector (1-D) they count elements: a bias of 64 taken from the middle of a fused bias of 192 is
 * { rowStart: 64, numRows: 64 }. The pieces' values in order are the weight's rows * cols values in order.
 */
export interface WeightPiece {
  /** Name in the file. */
  readonly tensor: string;
  readonly rowStart: number;
  readonly numRows: number;
}

/** How one canonical weight of the program is put together from stored tensors. */
export interface WeightSpec {
  readonly name: string;
  readonly rows: number;
  readonly cols: number;
  /** Stacked in order; their values add up to rows * cols. */
  readonly pieces: readonly WeightPiece[];
  /** The stored tensor is [cols, rows] (GPT-2 Conv1D); rowStart then counts rows of the transposed view. */
  readonly transpose?: boolean;
  /** Add 1 to every value (Gemma norms in safetensors hold w, the program wants 1 + w). */
  readonly addOne?: boolean;
}

export interface ModelFamily {
  readonly name: string;
  /** `architectures[0]` values of config.json that this family reads. */
  readonly hfArchitectures: readonly string[];
  /** `model_type` values of config.json, used when `architectures` is absent. */
  readonly hfModelTypes: readonly string[];
  /** `general.architecture` values of GGUF that this family reads. */
  readonly ggufArchitectures: readonly string[];
  /** Tells families apart that share a name in `ggufArchitectures` (GGUF says `llama` for Llama and Mixtral). Default: yes. */
  accepts?(checkpoint: Checkpoint): boolean;
  config(checkpoint: Checkpoint): ModelConfig;
  /** Must give a spec for every WeightRef that `program` uses. */
  weights(config: ModelConfig, checkpoint: Checkpoint): WeightSpec[];
  /** `maxModelLen` fixes rope variants that depend on the length (longrope, dynamic) once, so that output never depends on batch or time. */
  program(config: ModelConfig, options: { maxModelLen: number }): Program;
}
