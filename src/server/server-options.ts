// Everything the HTTP server needs to know; a slice of the resolved configuration (config.ts), frozen and plain.
// Every limit has a finite default; the reasons are in docs (limits) and the numbers follow common practice for text APIs.

export interface ServerLimits {
  /** Bytes of one request body. */
  readonly maxBodyBytes: number;
  readonly maxJsonDepth: number;
  /** Bytes of all request headers, and how many of them. */
  readonly maxHeaderBytes: number;
  readonly maxHeaderCount: number;
  readonly headersTimeoutSeconds: number;
  /** Time to receive a whole request. */
  readonly bodyTimeoutSeconds: number;
  readonly keepAliveSeconds: number;
  /** From the arrival of a request to its last token, waiting included. */
  readonly requestTimeoutSeconds: number;
  readonly maxConnections: number;
  /** Loopback addresses are exempt. */
  readonly maxConnectionsPerAddress: number;
  /** Choices per prompt, prompts per request, and their product. */
  readonly maxN: number;
  readonly maxNumPrompts: number;
  readonly maxNumSequencesPerRequest: number;
  readonly maxStopStrings: number;
  readonly maxStopBytes: number;
  readonly maxLogitBiasEntries: number;
  readonly maxBadWords: number;
  /** What may wait unsent for one slow reader; beyond it the reader has `streamStallSeconds` to catch up. */
  readonly streamBufferBytes: number;
  readonly streamStallSeconds: number;
  /** A comment line keeps silent streams alive at this interval. */
  readonly pingSeconds: number;
}

export const DEFAULT_LIMITS: ServerLimits = Object.freeze({
  maxBodyBytes: 4 * 1024 * 1024,
  maxJsonDepth: 64,
  maxHeaderBytes: 16 * 1024,
  maxHeaderCount: 100,
  headersTimeoutSeconds: 10,
  bodyTimeoutSeconds: 30,
  keepAliveSeconds: 5,
  requestTimeoutSeconds: 600,
  maxConnections: 4096,
  maxConnectionsPerAddress: 256,
  maxN: 16,
  maxNumPrompts: 64,
  maxNumSequencesPerRequest: 128,
  maxStopStrings: 64,
  maxStopBytes: 1024,
  maxLogitBiasEntries: 1024,
  maxBadWords: 1024,
  streamBufferBytes: 1024 * 1024,
  streamStallSeconds: 30,
  pingSeconds: 10,
});

export interface ServerOptions {
  /** An address or a name; a name is bound on every address it has. */
  readonly host: string;
  /** 0 = any free port. */
  readonly port: number;
  /** Empty = no authentication. */
  readonly apiKeys: readonly string[];
  /** At least one; the first is the name in replies. */
  readonly servedModelNames: readonly string[];
  readonly responseRole: string;
  /** Largest `logprobs` / `top_logprobs` / `prompt_logprobs`; -1 = no limit. */
  readonly maxLogprobs: number;
  readonly schedulingPolicy: 'fcfs' | 'priority';
  readonly enableLogRequests: boolean;
  readonly disableLogStats: boolean;
  readonly enablePromptTokensDetails: boolean;
  /** Tokens per chunk of a stream after its first; a request's own wins. */
  readonly streamInterval: number;
  /** Usage in every stream, as if `include_usage` and `continuous_usage_stats` had been asked for. */
  readonly enableForceIncludeUsage: boolean;
  /** Echo X-Request-Id in the reply. */
  readonly enableRequestIdHeaders: boolean;
  /** Tokens in logprobs are written as `token_id:123`. */
  readonly returnTokensAsTokenIds: boolean;
  /** Default variables of the chat template; a request's own win. */
  readonly defaultChatTemplateKwargs: Readonly<Record<string, unknown>>;
  readonly limits: ServerLimits;
}

export const DEFAULT_SERVER_OPTIONS: ServerOptions = Object.freeze({
  host: '127.0.0.1',
  port: 8000,
  apiKeys: [],
  servedModelNames: ['pagoda-mini'],
  responseRole: 'assistant',
  maxLogprobs: 20,
  schedulingPolicy: 'fcfs',
  enableLogRequests: false,
  disableLogStats: false,
  enablePromptTokensDetails: false,
  streamInterval: 1,
  enableForceIncludeUsage: false,
  enableRequestIdHeaders: false,
  returnTokensAsTokenIds: false,
  defaultChatTemplateKwargs: {},
  limits: DEFAULT_LIMITS,
});
