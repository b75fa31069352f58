// A recorded workload: the requests of a file at their times, or faster or slower, or a window of them. The whole file is read
// once when it is opened, so that a broken line is named before anything runs, and again for every pass.

import { PagodaError } from '../errors.ts';
import { ArrivalClock, type ArrivalSpec, checkArrivalSpec } from './arrivals.ts';
import { RandomSource } from './random-source.ts';
import { badTrace, readLines } from './read-lines.ts';
import { type CountTokens, estimateTokens, readShareGpt } from './sharegpt.ts';
import type { ClosedLoopSpec } from './synthetic-workload.ts';
import {
  detectFormat,
  hasHeader,
  type LineParser,
  MOONCAKE_BLOCK_TOKENS,
  parserFor,
  TRACE_FORMATS,
  type TraceFormat,
  type TraceRow,
} from './trace-formats.ts';
import type { Workload, WorkloadRequest } from './workload.ts';

export interface TraceOptions {
  readonly path: string;
  /** Null = what the first line says. */
  readonly format: TraceFormat | null;
  /** 2 = twice as many requests per second. */
  readonly scale: number;
  /** Of the trace's time, before scaling. */
  readonly windowStartSeconds: number;
  /** Null = to the end. */
  readonly windowSeconds: number | null;
  /** Requests at the same time are spread over so many seconds of the trace; null = 3 for Mooncake's 3-second clock where it is one, else 0. */
  readonly spreadSeconds: number | null;
  /** Null = all. */
  readonly maxRequests: number | null;
  readonly seed: number;
  /** Instead of the trace's own times; at most one of the two. Needed where the trace has none. */
  readonly arrivals: ArrivalSpec | null;
  readonly closedLoop: ClosedLoopSpec | null;
  readonly countTokens: CountTokens;
}

export const DEFAULT_TRACE_OPTIONS: Omit<TraceOptions, 'path'> = {
  format: null,
  scale: 1,
  windowStartSeconds: 0,
  windowSeconds: null,
  spreadSeconds: null,
  maxRequests: null,
  seed: 0,
  arrivals: null,
  closedLoop: null,
  countTokens: estimateTokens,
};

export interface TraceWorkload extends Workload {
  readonly format: TraceFormat;
  /** Rows left out: failed requests, or outside the limits of the format's usual filter. */
  readonly numSkipped: number;
}

const OPTION = '--trace';

/** Throws PagodaError `bad_config` that names the file, the line and what is wrong. */
export function openTrace(given: { path: string } & Partial<TraceOptions>): TraceWorkload {
  const options: TraceOptions = { ...DEFAULT_TRACE_OPTIONS, ...given };
  checkOptions(options);
  const format = options.format ?? formatOf(options.path);
  const facts = scan(options, format);
  if (format === 'sharegpt' && options.arrivals === null && options.closedLoop === null) {
    throw badTrace(
      options.path,
      OPTION,
      'ShareGPT has no times: say how requests come, by --rate 5, --rate inf or --concurrency 50',
    );
  }
  const settled: Settled = { options, format, startSeconds: facts.startSeconds, spreadSeconds: facts.spreadSeconds };
  const numRequests = countRequests(settled);
  if (numRequests === 0) {
    const { windowStartSeconds, windowSeconds } = options;
    const span = facts.endSeconds - facts.startSeconds;
    throw badTrace(
      options.path,
      '--trace-window',
      `no request lies in ${windowStartSeconds} s to ${windowSeconds === null ? 'the end' : `${windowStartSeconds + windowSeconds} s`}, the trace lasts ${span.toFixed(1)} s`,
    );
  }
  return {
    name: nameOf(options, format),
    seed: options.seed,
    hashBlockTokens: format === 'mooncake' ? MOONCAKE_BLOCK_TOKENS : 16,
    closedLoop: options.closedLoop,
    numRequests,
    format,
    numSkipped: facts.numSkipped,
    requests: () => requestsOf(settled),
  };
}

interface Settled {
  readonly options: TraceOptions;
  readonly format: TraceFormat;
  readonly startSeconds: number;
  readonly spreadSeconds: number;
}

function formatOf(path: string): TraceFormat {
  for (const line of readLines(path, OPTION)) {
    if (line.trim() === '') continue;
    const format = detectFormat(line);
    if (format !== null) return format;
    throw badTrace(
      path,
      OPTION,
      `the first line, '${line.slice(0, 60)}', is of no known format; known are ${TRACE_FORMATS.join(', ')} (--trace-format)`,
    );
  }
  throw badTrace(path, OPTION, 'the file is empty');
}

/** Every row in order; null for those to leave out. Names the line when one is wrong. */
function* rowsOf({ path, countTokens }: TraceOptions, format: TraceFormat): Generator<TraceRow | null> {
  if (format === 'sharegpt') {
    yield* readShareGpt(path, OPTION, countTokens);
    return;
  }
  const parserOf = (header: string): LineParser => {
    const parser = parserFor(format, header);
    if (typeof parser === 'string') throw badTrace(path, OPTION, parser);
    return parser;
  };
  let parse: LineParser | null = hasHeader(format) ? null : parserOf('');
  let lineNumber = 0;
  let lastSeconds = Number.NEGATIVE_INFINITY;
  for (const line of readLines(path, OPTION)) {
    lineNumber++;
    if (line.trim() === '') continue;
    if (parse === null) {
      parse = parserOf(line);
      continue;
    }
    const row = parse(line);
    if (typeof row === 'string') throw badTrace(path, OPTION, `line ${lineNumber} ${row}`);
    if (row !== null && row.seconds < lastSeconds)
      throw badTrace(path, OPTION, `line ${lineNumber} is earlier than the line before it; sort the file by time`);
    if (row !== null) lastSeconds = row.seconds;
    yield row;
  }
}

function scan(options: TraceOptions, format: TraceFormat) {
  let numRows = 0;
  let numSkipped = 0;
  let startSeconds = 0;
  let endSeconds = 0;
  let isQuantised = true;
  for (const row of rowsOf(options, format)) {
    if (row === null) {
      numSkipped++;
      continue;
    }
    if (numRows++ === 0) startSeconds = row.seconds;
    endSeconds = row.seconds;
    // Mooncake's conversation trace stamps batches every 3 s, give or take a millisecond.
    const offset = (row.seconds - startSeconds) % MOONCAKE_CLOCK_SECONDS;
    if (Math.min(offset, MOONCAKE_CLOCK_SECONDS - offset) > 0.0015) isQuantised = false;
  }
  if (numRows === 0) {
    const why = numSkipped > 0 ? `all ${numSkipped} rows are failed or filtered requests` : 'the trace has no requests';
    throw badTrace(options.path, OPTION, why);
  }
  const isCoarse = format === 'mooncake' && isQuantised && endSeconds > startSeconds;
  const spreadSeconds = options.spreadSeconds ?? (isCoarse ? MOONCAKE_CLOCK_SECONDS : 0);
  return { numSkipped, startSeconds, endSeconds, spreadSeconds };
}

const MOONCAKE_CLOCK_SECONDS = 3;

function countRequests(settled: Settled): number {
  let count = 0;
  for (const _ of requestsOf(settled)) count++;
  return count;
}

function* requestsOf(settled: Settled): Generator<WorkloadRequest> {
  const { options, format, startSeconds, spreadSeconds } = settled;
  const clock =
    options.arrivals === null ? null : new ArrivalClock(options.arrivals, new RandomSource(options.seed, 'arrivals'));
  const isTimed = clock === null && options.closedLoop === null;
  const { windowStartSeconds, windowSeconds, scale } = options;
  let numLeft = options.maxRequests ?? Number.POSITIVE_INFINITY;
  for (const row of spread(rowsOf(options, format), spreadSeconds, options.seed)) {
    const seconds = row.seconds - startSeconds - windowStartSeconds;
    if (seconds < 0) continue;
    if (windowSeconds !== null && seconds >= windowSeconds) return;
    if (numLeft-- <= 0) return;
    yield {
      arrivalSeconds: clock !== null ? clock.next() : isTimed ? seconds / scale : 0,
      // A request without a token does not exist: traces that round to 0 mean at least one.
      numPromptTokens: Math.max(1, row.numPromptTokens),
      numOutputTokens: Math.max(1, row.numOutputTokens),
      hashIds: row.hashIds,
      sessionId: row.sessionId,
      priority: 0,
    };
  }
}

/** Spreads rows of one time evenly over the seconds that follow, at random places; keeps their order otherwise. */
function* spread(rows: Iterable<TraceRow | null>, spreadSeconds: number, seed: number): Generator<TraceRow> {
  const random = new RandomSource(seed, 'spread');
  let batch: TraceRow[] = [];
  for (const row of rows) {
    if (row === null) continue;
    if (spreadSeconds === 0) {
      yield row;
      continue;
    }
    if (batch.length > 0 && row.seconds !== batch[0]!.seconds) {
      yield* spreadBatch(batch, spreadSeconds, random);
      batch = [];
    }
    batch.push(row);
  }
  yield* spreadBatch(batch, spreadSeconds, random);
}

function* spreadBatch(batch: readonly TraceRow[], spreadSeconds: number, random: RandomSource): Generator<TraceRow> {
  // A little less than the whole: the next batch's stamp may be a millisecond early.
  const offsets = batch.map(() => random.uniform() * 0.999 * spreadSeconds).sort((a, b) => a - b);
  for (const [index, row] of batch.entries()) yield { ...row, seconds: row.seconds + offsets[index]! };
}

function nameOf({ path, scale, windowSeconds, windowStartSeconds }: TraceOptions, format: TraceFormat): string {
  const file = path.split(/[\\/]/).pop() ?? path;
  const scaled = scale === 1 ? '' : ` x ${scale}`;
  const window = windowSeconds === null ? '' : `, ${windowStartSeconds} to ${windowStartSeconds + windowSeconds} s`;
  return `${file} (${format})${scaled}${window}`;
}

function checkOptions(options: TraceOptions): void {
  const positive = (option: string, value: number): void => {
    if (value > 0 && Number.isFinite(value)) return;
    throw new PagodaError('bad_config', `${option} must be above 0, got ${value}.`, { param: option });
  };
  positive('--trace-scale', options.scale);
  if (options.windowSeconds !== null) positive('--trace-window', options.windowSeconds);
  if (options.maxRequests !== null) positive('--num-requests', options.maxRequests);
  if (!(options.windowStartSeconds >= 0))
    throw new PagodaError('bad_config', `--trace-window must start at 0 or later, got ${options.windowStartSeconds}.`, {
      param: '--trace-window',
    });
  if (options.spreadSeconds !== null && !(options.spreadSeconds >= 0))
    throw new PagodaError('bad_config', `--trace-spread must be at least 0, got ${options.spreadSeconds}.`, {
      param: '--trace-spread',
    });
  if (options.arrivals !== null) checkArrivalSpec(options.arrivals, '--arrival');
}
