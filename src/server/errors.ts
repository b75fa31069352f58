// The one table from error codes to HTTP, and the one shape of every error body: {"error":{message,type,param,code}}, where
// `code` is the HTTP status as in vLLM. Internal failures never show their cause to a client; the log has it.

import { type ErrorCode, PagodaError } from '../errors.ts';

interface HttpMapping {
  readonly status: number;
  readonly type: string;
  /** Tells clients that retry by themselves (openai-node does) whether that can help. */
  readonly retry?: { readonly afterMilliseconds: number } | 'never';
}

const BAD_REQUEST: HttpMapping = { status: 400, type: 'BadRequestError' };
const INTERNAL: HttpMapping = { status: 500, type: 'InternalServerError' };

const HTTP_BY_CODE: Record<ErrorCode, HttpMapping> = {
  bad_request: BAD_REQUEST,
  not_found: { status: 404, type: 'NotFoundError' },
  context_length_exceeded: BAD_REQUEST,
  unsupported: BAD_REQUEST,
  unauthorized: { status: 401, type: 'AuthenticationError' },
  // vLLM answers 503; 429 is what OpenAI clients understand as "later", and they read retry-after-ms.
  queue_full: { status: 429, type: 'QueueOverflowError', retry: { afterMilliseconds: 1000 } },
  template_error: BAD_REQUEST,
  timeout: { status: 504, type: 'TimeoutError', retry: 'never' },
  aborted: { status: 499, type: 'ClientClosedRequest', retry: 'never' },
  bad_model_file: INTERNAL,
  bad_config: INTERNAL,
  out_of_memory: INTERNAL,
  device_fault: INTERNAL,
  engine_dead: { status: 503, type: 'ServiceUnavailableError', retry: { afterMilliseconds: 2000 } },
  internal: INTERNAL,
};

const TYPE_BY_STATUS: Readonly<Record<number, string>> = {
  400: 'BadRequestError',
  404: 'NotFoundError',
  405: 'MethodNotAllowedError',
  408: 'RequestTimeoutError',
  413: 'PayloadTooLargeError',
  415: 'UnsupportedMediaTypeError',
  431: 'RequestHeaderFieldsTooLargeError',
  503: 'ServiceUnavailableError',
};

export interface ErrorBody {
  readonly error: {
    readonly message: string;
    readonly type: string;
    readonly param: string | null;
    readonly code: number;
  };
}

/** An error whose status has no PagodaError code of its own: 405, 413, 415, 431. */
export class HttpError extends Error {
  readonly status: number;
  constructor(status: number, message: string) {
    super(message);
    this.name = 'HttpError';
    this.status = status;
  }
}

export interface HttpReply {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: ErrorBody;
  /** True when an operator should see the error's stack. */
  readonly isFault: boolean;
}

const MAX_MESSAGE_LENGTH = 2000;

export function errorBody(status: number, type: string, message: string, param: string | null = null): ErrorBody {
  const text = message.length > MAX_MESSAGE_LENGTH ? `${message.slice(0, MAX_MESSAGE_LENGTH)}…` : message;
  return { error: { message: text, type, param, code: status } };
}

/** What a client sees of any thrown value. */
export function toHttpReply(error: unknown): HttpReply {
  if (error instanceof PagodaError) {
    const { status, type, retry } = HTTP_BY_CODE[error.code];
    return {
      status,
      headers: retryHeaders(retry),
      body: errorBody(status, type, error.message, error.param),
      isFault: status === 500,
    };
  }
  const status = statusOf(error);
  if (status >= 400 && status < 500) {
    return {
      status,
      headers: {},
      body: errorBody(status, TYPE_BY_STATUS[status] ?? 'BadRequestError', (error as Error).message),
      isFault: false,
    };
  }
  return {
    status: 500,
    headers: {},
    body: errorBody(500, INTERNAL.type, 'Internal server error: see the server log.'),
    isFault: true,
  };
}

function statusOf(error: unknown): number {
  if (error instanceof HttpError) return error.status;
  // Fastify's own errors carry the status under this name.
  if (error instanceof Error && 'statusCode' in error && typeof error.statusCode === 'number') return error.statusCode;
  return 500;
}

function retryHeaders(retry: HttpMapping['retry']): Record<string, string> {
  if (retry === undefined) return {};
  if (retry === 'never') return { 'x-should-retry': 'false' };
  return {
    'retry-after': String(Math.ceil(retry.afterMilliseconds / 1000)),
    'retry-after-ms': String(retry.afterMilliseconds),
  };
}
