// A log of vLLM (V1, V0) or Pagoda as an observation: the line that every engine writes each ten seconds, the sizes it prints at the
// start, the flags it was started with, and why a start failed.

import { PagodaError } from '../errors.ts';
import { EMPTY_SAMPLE, NO_FACTS, type Observation, type Sample, type ServerFacts } from './observation.ts';
import { known } from './signals.ts';

const STATS =
  /(?:Engine (\d+): )?Avg prompt throughput: ([\d.]+) tokens\/s, Avg generation throughput: ([\d.]+) tokens\/s, Running: (\d+) reqs(.*)/;
const WAITING = /(?:Waiting|Pending): (\d+) reqs/;
const PREEMPTIONS = /Preemptions: (\d+)/;
const KV_USAGE = /(?:GPU )?KV cache usage: ([\d.]+)%/;
const HIT_RATE = /(?<!External |MM )[Pp]refix cache hit rate: (?:GPU: )?([\d.]+)%/;
const POOL = /KV cache size: ([\d,]+) tokens/;
const CONCURRENCY = /Maximum concurrency for ([\d,]+) tokens per request: ([\d.]+)x/;
const CLOCK = /(?:(\d{4})-)?(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[.,](\d+))?/;
/** Both are counted by the engine's own line; older versions only have the warning. */
const PREEMPTED = /is preempted by PreemptionMode/;
const BOOT_ERRORS = [
  /No available memory for the cache blocks/,
  /CUDA out of memory/,
  /torch\.OutOfMemoryError/,
  /larger than the maximum number of tokens that can be stored in KV cache/,
  /is larger than the available KV cache memory/,
  /Free memory on device .* is less than desired GPU memory utilization/,
];

/** Of the engine's line. */
const INTERVAL_SECONDS = 10;
const MAX_QUOTES = 3;

interface Line {
  readonly engine: string;
  readonly stampSeconds: number | null;
  readonly sample: Sample;
}

/** Throws bad_config when the text has neither the engine's lines nor a failed start. */
export function observeLog(source: string, text: string, given: ServerFacts = NO_FACTS): Observation {
  const lines: Line[] = [];
  const quotes: string[] = [];
  let facts = given;
  let numPreemptedWarnings = 0;
  let isPagoda = false;
  for (const line of text.split(/\r?\n/)) {
    const stats = parseStats(line);
    if (stats !== null) lines.push(stats);
    else if (BOOT_ERRORS.some((error) => error.test(line))) quotes.push(line.trim().slice(0, 300));
    else if (PREEMPTED.test(line)) numPreemptedWarnings++;
    if (line.includes('[scheduler] Preempted request') || line.includes('(device cpu')) isPagoda = true;
    facts = readFacts(line, facts);
  }
  if (lines.length === 0 && quotes.length === 0 && facts.fullLengthConcurrency === null) {
    throw new PagodaError(
      'bad_config',
      `--log ${source} has no line like "Avg prompt throughput: ... Running: 3 reqs", so it is no log of vLLM or Pagoda (or its statistics are off: --disable-log-stats).`,
      { param: '--log' },
    );
  }
  const { samples, windowSeconds, numEngines, imbalance } = fullestEngine(lines);
  const countsPreemptions = samples.some((sample) => sample.numPreemptions! > 0);
  return {
    source,
    kind: 'log',
    engine: isPagoda ? 'pagoda' : 'vllm',
    windowSeconds,
    samples,
    facts,
    figures: known({
      numBootErrors: quotes.length,
      dpImbalance: numEngines > 1 ? imbalance : null,
      preemptionsPerMinute:
        countsPreemptions || numPreemptedWarnings === 0 || windowSeconds <= 0
          ? null
          : (60 * numPreemptedWarnings) / windowSeconds,
    }),
    quotes: quotes.slice(0, MAX_QUOTES),
  };
}

function parseStats(line: string): Line | null {
  const match = STATS.exec(line);
  if (match === null) return null;
  const [, engine = '000', prompt, generation, running, rest = ''] = match;
  const number = (pattern: RegExp): number | null => {
    const found = pattern.exec(rest)?.[1];
    return found === undefined ? null : Number(found);
  };
  const usage = number(KV_USAGE);
  const hits = number(HIT_RATE);
  return {
    engine,
    stampSeconds: stampOf(line),
    sample: {
      ...EMPTY_SAMPLE,
      promptTokensPerSecond: Number(prompt),
      generationTokensPerSecond: Number(generation),
      numRunning: Number(running),
      numWaiting: number(WAITING),
      kvUsage: usage === null ? null : usage / 100,
      // The engine leaves the field out when there was none.
      numPreemptions: number(PREEMPTIONS) ?? 0,
      prefixHitShare: hits === null ? null : hits / 100,
    },
  };
}

/** Seconds on a clock of the log's own; a year that is not there is the same for all lines. */
function stampOf(line: string): number | null {
  const match = CLOCK.exec(line);
  if (match === null) return null;
  const [, year, month, day, hour, minute, second, fraction] = match;
  const whole = Date.UTC(
    Number(year ?? 2024),
    Number(month) - 1,
    Number(day),
    Number(hour),
    Number(minute),
    Number(second),
  );
  return whole / 1000 + (fraction === undefined ? 0 : Number(`0.${fraction}`));
}

function readFacts(line: string, facts: ServerFacts): ServerFacts {
  const count = (text: string): number => Number(text.replaceAll(',', ''));
  const pool = POOL.exec(line);
  const concurrency = CONCURRENCY.exec(line);
  const flag = (name: string): string | null =>
    new RegExp(`\\b${name}['"]?\\s*[:=]\\s*['"]?([\\w.-]+)`).exec(line)?.[1] ?? null;
  const number = (name: string): number | null => {
    const text = flag(name);
    return text === null || !/^[\d.]+$/.test(text) ? null : Number(text);
  };
  // The start prints flags on few, long lines; everything else is left alone for speed and safety.
  const isStart = /args|max_num_batched_tokens|Initializing|config/i.test(line);
  if (pool === null && concurrency === null && !isStart) return facts;
  const eager = isStart ? flag('enforce_eager') : null;
  const read = (name: string): number | null => (isStart ? number(name) : null);
  return {
    maxNumSeqs: facts.maxNumSeqs ?? read('max_num_seqs'),
    maxNumBatchedTokens: facts.maxNumBatchedTokens ?? read('max_num_batched_tokens'),
    maxModelLen:
      facts.maxModelLen ??
      (concurrency === null ? null : count(concurrency[1]!)) ??
      read('max_model_len') ??
      read('max_seq_len'),
    gpuMemoryUtilization: facts.gpuMemoryUtilization ?? read('gpu_memory_utilization'),
    kvCacheDtype: facts.kvCacheDtype ?? (isStart ? flag('kv_cache_dtype') : null),
    tensorParallelSize: facts.tensorParallelSize ?? read('tensor_parallel_size'),
    enforceEager: facts.enforceEager ?? (eager === null ? null : eager === 'True' || eager === 'true'),
    watermark: facts.watermark ?? read('watermark'),
    poolTokens: facts.poolTokens ?? (pool === null ? null : count(pool[1]!)),
    fullLengthConcurrency: facts.fullLengthConcurrency ?? (concurrency === null ? null : Number(concurrency[2])),
  };
}

interface EngineSeries {
  readonly samples: readonly Sample[];
  readonly windowSeconds: number;
  readonly numEngines: number;
  readonly imbalance: number;
}

/** With several engines in one log: the one with the longest queue, since each has a cache and slots of its own. */
function fullestEngine(lines: readonly Line[]): EngineSeries {
  const byEngine = new Map<string, Line[]>();
  for (const line of lines) {
    const list = byEngine.get(line.engine);
    if (list === undefined) byEngine.set(line.engine, [line]);
    else list.push(line);
  }
  const mean = (list: readonly Line[], key: 'numRunning' | 'numWaiting'): number =>
    list.reduce((sum, { sample }) => sum + (sample[key] ?? 0), 0) / Math.max(1, list.length);
  const engines = [...byEngine.values()].sort(
    (a, b) => mean(b, 'numWaiting') - mean(a, 'numWaiting') || mean(b, 'numRunning') - mean(a, 'numRunning'),
  );
  const running = engines.map((list) => mean(list, 'numRunning'));
  const most = Math.max(0, ...running);
  const fullest = engines[0] ?? [];
  const begin = fullest[0]?.stampSeconds ?? null;
  const samples = fullest.map(({ stampSeconds, sample }, i) => ({
    ...sample,
    seconds: begin !== null && stampSeconds !== null ? stampSeconds - begin : i * INTERVAL_SECONDS,
  }));
  return {
    samples,
    // Each line tells of the interval before it.
    windowSeconds: samples.length === 0 ? 0 : samples.at(-1)!.seconds + INTERVAL_SECONDS,
    numEngines: engines.length,
    imbalance: most === 0 ? 0 : (most - Math.min(...running)) / most,
  };
}
