// How the front talks to the engine. Two implementations: in process (LLM class, tests) and a child process (serve).

import type { GenerateRequest, TokenEvent } from '../core/request.ts';
import type { StepRecord } from '../trace/step-record.ts';

/** Facts fixed when the engine is ready. */
export interface EngineInfo {
  readonly maxModelLen: number;
  readonly vocabSize: number;
  readonly device: string;
  readonly isa: string;
  readonly numThreads: number;
  readonly computeDtype: 'int8' | 'f32';
  readonly kvCacheDtype: string;
  readonly weightBytes: number;
  readonly blockSize: number;
  /** Usable blocks (without the null block). */
  readonly numBlocks: number;
  readonly kvPoolBytes: number;
  readonly kvBytesPerToken: number;
  /** Tokens the pool holds, and that divided by maxModelLen. */
  readonly kvCacheTokens: number;
  readonly maxConcurrency: number;
  readonly maxNumSeqs: number;
  readonly maxNumBatchedTokens: number;
  /** Most draft tokens per sequence and step; 0 = no speculation. */
  readonly numSpeculativeTokens: number;
}

export type TokenListener = (event: TokenEvent) => void;

export interface EngineListeners {
  /** After every step. */
  onStep?(record: StepRecord): void;
  /** One line for the operator. */
  onLog?(level: 'info' | 'warn' | 'error', message: string): void;
  /** The engine went away; every open request has already had its error event. `restarting` tells whether a new one starts. */
  onDown?(reason: string, restarting: boolean): void;
  onReady?(info: EngineInfo): void;
  /** While weights are loaded: bytes done so far and in all. */
  onLoadProgress?(doneBytes: number, totalBytes: number): void;
}

export interface EngineClient {
  /** Throws PagodaError engine_dead while the engine is down. */
  readonly info: EngineInfo;
  readonly isAlive: boolean;
  /**
   * Queues requests that belong together (n > 1). The listener gets every event of each, the last one with `finish`.
   * Throws PagodaError: context_length_exceeded (can never fit), queue_full, engine_dead.
   */
  submit(requests: readonly GenerateRequest[], listener: TokenListener): void;
  /** Ends requests early; each still gets its one terminal event. `reason` stop = a stop string was found. Unknown ids are ignored. */
  abort(ids: readonly string[], reason: 'abort' | 'stop'): void;
  /** Waits for running requests to finish (up to `drainSeconds`, then aborts them), then frees everything. */
  close(options?: { drainSeconds?: number }): Promise<void>;
}
