// What crosses between front and engine process: plain data, to the engine through node's channel, from it through a pipe of its own
// (message-pipe.ts). One message per step carries all of its events; an ordinary step's is a frame of numbers.

import type { GenerateRequest, TokenEvent } from '../core/request.ts';
import type { ErrorCode } from '../errors.ts';
import type { StepRecord } from '../trace/step-record.ts';
import type { EngineInfo } from './engine-client.ts';
import type { EngineOptions } from './engine-options.ts';
import type { StepFrame } from './step-frame.ts';

export type ToEngine =
  | { readonly kind: 'start'; readonly options: EngineOptions }
  /** In frames the requests are called `firstKey`, `firstKey` + 1, … */
  | { readonly kind: 'submit'; readonly requests: readonly GenerateRequest[]; readonly firstKey: number }
  | { readonly kind: 'abort'; readonly ids: readonly string[]; readonly reason: 'abort' | 'stop' }
  | { readonly kind: 'close'; readonly drainSeconds: number };

export type FromEngine = StepFrame | EngineMessage;

export type EngineMessage =
  | { readonly kind: 'ready'; readonly info: EngineInfo }
  /** The engine could not start; the process ends. */
  | { readonly kind: 'failed'; readonly code: ErrorCode; readonly message: string; readonly param: string | null }
  /** Events of a step that fits no frame, with its record, or of aborts without one. */
  | { readonly kind: 'step'; readonly events: readonly TokenEvent[]; readonly record: StepRecord | null }
  | { readonly kind: 'log'; readonly level: 'info' | 'warn' | 'error'; readonly message: string }
  | { readonly kind: 'progress'; readonly doneBytes: number; readonly totalBytes: number }
  /** A request that passed the front's door and not the engine's. */
  | { readonly kind: 'refused'; readonly ids: readonly string[]; readonly message: string }
  /** The engine failed; the process ends. */
  | { readonly kind: 'down'; readonly reason: string }
  | { readonly kind: 'closed' };
