// What the load client remembers of one request: times as they were taken, nothing derived. Plain data, also between processes.

export type Outcome =
  /** The stream ended as it should. */
  | 'completed'
  /** No token ever came: refused, unreachable, timed out, an error instead of a stream. */
  | 'failed'
  /** The stream had begun and ended without its end mark, or with an error. */
  | 'cut';

/** All times are seconds on the client's clock. */
export interface RequestRecord {
  readonly index: number;
  /** When the schedule wanted it sent. Latencies count from here, so that a client that is held up hides nothing. */
  readonly scheduledSeconds: number;
  /** When --max-concurrency let it go; the same as scheduled without one. */
  readonly admittedSeconds: number;
  /** When it was written to the socket. */
  readonly sentSeconds: number;
  /** First event with a choice in it, tokens or not (a role chunk counts here and only here). */
  readonly firstChoiceSeconds: number | null;
  /** One per event that brought tokens. */
  readonly tokenSeconds: readonly number[];
  /** When the outcome was known. */
  readonly endSeconds: number;
  readonly outcome: Outcome;
  /** What went wrong, one line; empty when completed. */
  readonly error: string;
  readonly numPromptTokens: number;
  readonly numOutputTokens: number;
  /** Where the number of output tokens comes from: the server's usage, or the events counted here. */
  readonly countedBy: 'usage' | 'events';
  readonly finishReason: string | null;
  readonly text: string;
}

/** First token minus schedule; null without a token. */
export function ttftSeconds(record: RequestRecord): number | null {
  const first = record.tokenSeconds[0];
  return first === undefined ? null : first - record.scheduledSeconds;
}

/** Last token minus schedule; null without a token. */
export function e2eSeconds(record: RequestRecord): number | null {
  const last = record.tokenSeconds.at(-1);
  return last === undefined ? null : last - record.scheduledSeconds;
}

/** (last token - first token) / (output tokens - 1); null below two tokens. */
export function tpotSeconds(record: RequestRecord): number | null {
  const first = record.tokenSeconds[0];
  const last = record.tokenSeconds.at(-1);
  if (first === undefined || last === undefined || record.numOutputTokens < 2) return null;
  return (last - first) / (record.numOutputTokens - 1);
}
