// Results of runs as observations: the JSON of `vllm bench serve` or `pagoda bench serve`, and of `pagoda simulate --json`. Several
// bench results are also compared with each other.

import { PagodaError } from '../errors.ts';
import type { Distribution } from '../workload/streaming-distribution.ts';
import { highOf } from './derive-signals.ts';
import { NO_FACTS, type Observation, type ServerFacts } from './observation.ts';
import { observeSimulation, type SimulatedRun } from './observe-simulation.ts';
import { isRising } from './rising.ts';
import { known, type Signals } from './signals.ts';

type Json = Readonly<Record<string, unknown>>;

export interface RecordFile {
  readonly path: string;
  readonly text: string;
}

const asObject = (value: unknown): Json | null =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Json) : null;
const asNumber = (value: unknown): number | null =>
  typeof value === 'number' && Number.isFinite(value) ? value : null;
const asNumbers = (value: unknown): number[] | null =>
  Array.isArray(value) && value.every((each) => typeof each === 'number') ? value : null;
const asList = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);

/** One observation per run. Throws bad_config that names the file and what is known. */
export function observeRecords(files: readonly RecordFile[], facts: ServerFacts = NO_FACTS): Observation[] {
  const observations: Observation[] = [];
  const runs: Json[] = [];
  for (const file of files) {
    for (const json of parse(file)) {
      if (Array.isArray(json.configurations)) {
        for (const each of json.configurations) observations.push(simulationOf(asObject(each) ?? {}, file));
      } else if (asNumber(json.mean_ttft_ms) !== null || asNumber(json.completed) !== null) {
        runs.push(json);
        observations.push(benchOf(json, file, facts));
      } else throw notRecord(file);
    }
  }
  const compared = compareRuns(runs);
  // What only several runs show belongs to the last of them.
  return observations.map((observation, i) =>
    i === observations.length - 1 ? { ...observation, figures: { ...observation.figures, ...compared } } : observation,
  );
}

/** One object, or one per line as --append-result writes them. */
function parse(file: RecordFile): Json[] {
  try {
    const whole = asObject(JSON.parse(file.text));
    if (whole !== null) return [whole];
  } catch {
    // Perhaps one per line.
  }
  try {
    const lines = file.text.split('\n').filter((line) => line.trim() !== '');
    const objects = lines.map((line) => asObject(JSON.parse(line)));
    if (objects.length > 0 && objects.every((each) => each !== null)) return objects;
  } catch {
    // Said below.
  }
  throw notRecord(file);
}

function notRecord({ path }: RecordFile): PagodaError {
  return new PagodaError(
    'bad_config',
    `--result ${path} is neither a result of bench serve (--save-result) nor of simulate (--json).`,
    { param: '--result' },
  );
}

function benchOf(json: Json, { path }: RecordFile, facts: ServerFacts): Observation {
  const duration = asNumber(json.duration) ?? 0;
  const seconds = (name: string): number | null => {
    const value = asNumber(json[name]);
    return value === null ? null : value / 1000;
  };
  const flag = (value: unknown): number | null => (typeof value === 'boolean' ? Number(value) : null);
  const finish = asObject(json.finish_reasons);
  const numLength = asNumber(finish?.length) ?? 0;
  const numStop = asNumber(finish?.stop) ?? 0;
  const lag = seconds('event_loop_lag_p99_ms');
  const completed = asNumber(json.completed);
  const inputs = asNumber(json.total_input_tokens);
  const outputs = asNumber(json.total_output_tokens);
  return {
    source: path,
    kind: 'record',
    engine: 'unknown',
    windowSeconds: duration,
    samples: [],
    facts,
    figures: known({
      ttftMean: seconds('mean_ttft_ms'),
      ttftP50: seconds('median_ttft_ms'),
      ttftP99: seconds('p99_ttft_ms'),
      itlP25: seconds('p25_itl_ms'),
      itlP50: seconds('median_itl_ms'),
      itlP99: seconds('p99_itl_ms'),
      requestsPerSecond: asNumber(json.request_throughput),
      generationTokensPerSecond: asNumber(json.output_throughput),
      promptMean: completed === null || completed === 0 || inputs === null ? null : inputs / completed,
      outputMean: completed === null || completed === 0 || outputs === null ? null : outputs / completed,
      clientBound: flag(json.client_bound),
      clientLagP99: lag,
      lengthFinishShare: numLength + numStop === 0 ? null : numLength / (numLength + numStop),
      ...outputLengths(json),
      ...courseOf(json),
    }),
    quotes: [],
  };
}

function outputLengths(json: Json): Signals {
  const lengths = asNumbers(json.output_lens)?.filter((length) => length > 0) ?? [];
  if (lengths.length > 0) {
    const at = (share: number) => highOf(lengths, share);
    return known({ outputP50: at(0.5), outputP95: at(0.95), outputP99: at(0.99) });
  }
  const given = asObject(json.output_len_percentiles);
  return known({ outputP50: asNumber(given?.p50), outputP95: asNumber(given?.p95), outputP99: asNumber(given?.p99) });
}

/** Whether latency and the number under way kept rising: as the client judged, else from the detailed lists of vLLM. */
function courseOf(json: Json): Signals {
  const starts = asNumbers(json.start_times);
  const ttfts = asNumbers(json.ttfts);
  const latencies = asNumbers(json.latencies) ?? asNumbers(json.e2els);
  if (starts !== null && ttfts !== null && starts.length === ttfts.length && ttfts.length > 0) {
    const order = starts.map((start, i) => ({ start, ttft: ttfts[i]! })).filter(({ ttft }) => ttft > 0);
    order.sort((a, b) => a.start - b.start);
    const late = order.slice(-Math.max(1, Math.floor(order.length / 3)));
    const flag = (value: boolean | null): number | null => (value === null ? null : Number(value));
    const seconds = order.map(({ start }) => start);
    const underWay = latencies === null ? null : numUnderWay(starts, latencies, seconds);
    return known({
      ttftRising: flag(
        isRising(
          seconds,
          order.map(({ ttft }) => ttft),
        ),
      ),
      concurrencyRising: underWay === null ? null : flag(isRising(seconds, underWay)),
      ttftLate: late.reduce((sum, { ttft }) => sum + ttft, 0) / Math.max(1, late.length),
    });
  }
  if (typeof json.over_saturated !== 'boolean') return {};
  const p99 = asNumber(json.p99_ttft_ms);
  const risen = Number(json.over_saturated);
  return known({ ttftRising: risen, concurrencyRising: risen, ttftLate: p99 === null ? null : p99 / 1000 });
}

function numUnderWay(starts: readonly number[], latencies: readonly number[], at: readonly number[]): number[] {
  const begins = [...starts].sort((a, b) => a - b);
  const ends = starts.map((start, i) => start + (latencies[i] ?? 0)).sort((a, b) => a - b);
  let numBegun = 0;
  let numEnded = 0;
  return at.map((time) => {
    while (numBegun < begins.length && begins[numBegun]! <= time) numBegun++;
    while (numEnded < ends.length && ends[numEnded]! <= time) numEnded++;
    return numBegun - numEnded;
  });
}

/** The load of a run, for sorting: its rate, else its limit of requests under way. */
const loadOf = (json: Json): number | null => asNumber(json.request_rate) ?? asNumber(json.max_concurrency);

function compareRuns(runs: readonly Json[]): Signals {
  if (runs.length < 2) return {};
  const [before, after] = [runs.at(-2)!, runs.at(-1)!];
  const same = ['seed', 'dataset_name', 'model_id', 'num_prompts', 'request_rate', 'max_concurrency'];
  const isRerun = asNumber(before.seed) !== null && same.every((name) => before[name] === after[name]);
  const [slow, quick] = [asNumber(before.mean_ttft_ms), asNumber(after.mean_ttft_ms)];
  const sorted = runs.filter((run) => loadOf(run) !== null).sort((a, b) => loadOf(a)! - loadOf(b)!);
  const [light, heavy] = [sorted[0], sorted.at(-1)];
  const falls =
    light !== undefined &&
    heavy !== undefined &&
    loadOf(heavy)! > 1.5 * loadOf(light)! &&
    (asNumber(heavy.mean_ttft_ms) ?? 0) < 0.9 * (asNumber(light.mean_ttft_ms) ?? 0);
  return known({
    rerunGain: isRerun && slow !== null && quick !== null && slow > 0 ? (slow - quick) / slow : null,
    meanTtftFalls: sorted.length < 2 ? null : Number(falls),
  });
}

function simulationOf(json: Json, file: RecordFile): Observation {
  const scheduler = asObject(json.scheduler);
  const realised = asObject(json.realised_workload);
  if (scheduler === null || realised === null || asNumber(json.duration_seconds) === null) throw notRecord(file);
  const count = (owner: Json, name: string): number => asNumber(owner[name]) ?? 0;
  const run: SimulatedRun = {
    name: `${file.path}: ${String(json.label ?? json.deployment ?? 'simulated')}`,
    durationSeconds: count(json, 'duration_seconds'),
    arrivalSpanSeconds: count(realised, 'span_seconds'),
    numCompleted: count(json, 'num_completed'),
    numRefused: count(json, 'num_refused'),
    requestsPerSecond: count(json, 'requests_per_second'),
    ttftSeconds: spreadOf(json.ttft_seconds),
    itlSeconds: spreadOf(json.itl_seconds),
    itlP25Seconds: null,
    queueMeanSeconds: spreadOf(scheduler.queue_seconds).mean,
    numSteps: count(scheduler, 'num_steps'),
    numStepsBoundBySeqs: count(scheduler, 'num_steps_bound_by_seqs'),
    numStepsBoundByTokens: count(scheduler, 'num_steps_bound_by_tokens'),
    numStepsBoundByKv: count(scheduler, 'num_steps_bound_by_kv'),
    numStepsWithPrefill: count(scheduler, 'num_prefill_only_steps') + count(scheduler, 'num_mixed_steps'),
    meanPrefillTokens: count(scheduler, 'mean_prefill_tokens_per_step'),
    meanDecodeTokens: count(scheduler, 'mean_decode_tokens_per_step'),
    numPreemptions: count(scheduler, 'num_preemptions'),
    numRecomputedTokens: count(scheduler, 'recomputed_tokens'),
    prefixHitShare: count(scheduler, 'prefix_hit_share'),
    sharedBlockShare: asNumber(realised.shared_block_share),
    promptTokens: spreadOf(realised.prompt_tokens),
    outputTokens: spreadOf(realised.output_tokens),
    series: asList(json.series).flatMap((each) => {
      const point = asObject(each);
      if (point === null) return [];
      return {
        seconds: count(point, 'seconds'),
        windowSeconds: count(point, 'window_seconds'),
        numRunning: count(point, 'running'),
        numWaiting: count(point, 'waiting'),
        kvUsage: count(point, 'kv_usage_share'),
        prefillTokensPerSecond: count(point, 'prefill_tokens_per_second'),
        decodeTokensPerSecond: count(point, 'decode_tokens_per_second'),
        preemptionsPerSecond: count(point, 'preemptions_per_second'),
      };
    }),
  };
  return observeSimulation(run);
}

function spreadOf(value: unknown): Distribution {
  const json = asObject(value) ?? {};
  const of = (name: string): number => asNumber(json[name]) ?? 0;
  return { mean: of('mean'), p50: of('p50'), p90: of('p90'), p95: of('p95'), p99: of('p99'), max: of('max') };
}
