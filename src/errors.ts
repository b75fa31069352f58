// Every expected failure is a PagodaError with a code from this closed list. The message says what to do.
// server/errors.ts maps codes to HTTP in one table; the command line maps them to exit codes.

export type ErrorCode =
  | 'bad_request' // the request is wrong: `param` names the field
  | 'not_found' // unknown model, path or id
  | 'context_length_exceeded' // prompt + output does not fit max-model-len or the whole pool
  | 'unsupported' // known but not supported here: the message names it
  | 'unauthorized'
  | 'queue_full' // try again later
  | 'template_error' // the chat template raised or ran out of time
  | 'timeout'
  | 'aborted' // the caller went away
  | 'bad_model_file' // a checkpoint, config or tokenizer file is malformed
  | 'bad_config' // a flag, variable or config file is wrong
  | 'out_of_memory' // what was asked for cannot fit; the message has the numbers
  | 'device_fault' // the device failed or produced NaN
  | 'engine_dead' // the engine process is gone
  | 'internal';

export interface ErrorDetails {
  /** The request field or flag at fault, e.g. `temperature` or `--max-model-len`. */
  param?: string;
  cause?: unknown;
}

export class PagodaError extends Error {
  readonly code: ErrorCode;
  readonly param: string | null;

  constructor(code: ErrorCode, message: string, details: ErrorDetails = {}) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.name = 'PagodaError';
    this.code = code;
    this.param = details.param ?? null;
  }
}
