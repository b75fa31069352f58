// From the raw flags of `bench serve` to checked settings. Everything that can be refused without asking the server is refused here.

import type { GoodputTargets } from '../bench/load-metrics.ts';
import type { Backend } from '../bench/reply-reader.ts';
import type { RampUp } from '../bench/send-times.ts';
import { PERCENTILE_METRICS, type PercentileMetric } from '../bench/serve-result.ts';
import { PagodaError } from '../errors.ts';
import type { Workload } from '../workload/workload.ts';
import type { BenchServeFlags } from './bench-serve-flags.ts';
import {
  AT_LEAST_0,
  choiceValue,
  countValue,
  jsonValue,
  numberValue,
  POSITIVE,
  pairsValue,
  type Range,
  refuse,
  secondsValue,
  urlValue,
} from './bench-values.ts';
import { type WorkloadFlags, workloadOf } from './workload-flags.ts';

const DATASETS = ['random', 'sharegpt', 'custom', 'prefix_repetition', 'trace'] as const;
/** `workload`: by the flags of `simulate`. */
export type DatasetName = (typeof DATASETS)[number] | 'workload';

export interface ServeSettings {
  readonly backend: Backend;
  readonly baseUrl: string;
  /** The option that the address came from, for messages. */
  readonly urlOption: string;
  readonly endpoint: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly idleSeconds: number;
  readonly readySeconds: number;
  readonly dataset: DatasetName;
  /** Of the data set `workload`, else null. */
  readonly workload: Workload | null;
  readonly numPrompts: number;
  readonly seed: number;
  /** null = the times of the trace. */
  readonly requestRate: number | null;
  readonly burstiness: number;
  readonly maxConcurrency: number | null;
  readonly thinkSeconds: number;
  readonly rampUp: RampUp | null;
  readonly numWarmups: number;
  readonly numProcesses: number;
  readonly ignoreEos: boolean;
  readonly fields: Readonly<Record<string, unknown>>;
  readonly targets: GoodputTargets;
  readonly percentileMetrics: readonly PercentileMetric[];
  readonly metricPercentiles: readonly number[];
  readonly metadata: Readonly<Record<string, string>>;
}

export function serveSettings(flags: BenchServeFlags, env: NodeJS.ProcessEnv): ServeSettings {
  const backend = choiceValue<Backend>('backend', flags.backend, ['openai', 'vllm', 'openai-chat']);
  const workload = workloadFlagsOf(flags);
  const dataset = datasetOf(flags, workload);
  const needsFile = dataset === 'sharegpt' || dataset === 'custom' || dataset === 'trace';
  if (needsFile && flags.datasetPath === undefined) {
    throw new PagodaError('bad_config', `--dataset-name ${dataset} needs --dataset-path with its file.`, {
      param: '--dataset-path',
    });
  }
  if (!needsFile && flags.datasetPath !== undefined) {
    throw new PagodaError(
      'bad_config',
      `--dataset-path has no use with --dataset-name ${dataset}; choose sharegpt, custom or trace.`,
      {
        param: '--dataset-path',
      },
    );
  }
  const rampUp = rampUpOf(flags);
  const isSynthetic = dataset !== 'sharegpt' && dataset !== 'custom';
  return {
    backend,
    ...addressOf(flags, backend),
    headers: headersOf(flags, env),
    idleSeconds: secondsValue('request-timeout', flags.requestTimeout),
    readySeconds: numberValue('ready-check-timeout-sec', flags.readyCheckTimeoutSec, AT_LEAST_0),
    dataset,
    workload,
    numPrompts: workload === null ? countValue('num-prompts', flags.numPrompts, 1) : requestsOf(workload),
    seed: countValue('seed', flags.seed, 0),
    requestRate: workload === null ? rateOf(flags, dataset, rampUp) : rateOfWorkload(workload),
    burstiness: numberValue('burstiness', flags.burstiness ?? '1', POSITIVE, true),
    maxConcurrency: limitOf(flags, workload),
    thinkSeconds: workload?.closedLoop?.thinkSeconds ?? 0,
    rampUp,
    numWarmups: countValue('num-warmups', flags.numWarmups, 0),
    numProcesses: countValue('num-processes', flags.numProcesses, 1),
    ignoreEos: flags.ignoreEos === true || isSynthetic,
    fields: fieldsOf(flags, backend),
    targets: targetsOf(flags.goodput ?? []),
    percentileMetrics: metricsOf(flags.percentileMetrics),
    metricPercentiles: flags.metricPercentiles
      .split(',')
      .map((text) => numberValue('metric-percentiles', text.trim(), PERCENT)),
    metadata: pairsValue('metadata', flags.metadata ?? []),
  };
}

/** Flags that only the simulator's workloads have. */
const WORKLOAD_KEYS = [
  'workload',
  'prompt',
  'output',
  'lengthCorrelation',
  'rate',
  'arrival',
  'concurrency',
  'thinkTime',
  'sharedPrefix',
  'sharedPrefixShare',
  'sharedPrefixPrompts',
  'trace',
  'numRequests',
  'duration',
] as const satisfies ReadonlyArray<keyof WorkloadFlags>;
/** What both notations have, each for itself. */
const BENCH_KEYS = ['datasetPath', 'requestRate', 'maxConcurrency', 'rampUpStrategy', 'inputLen', 'outputLen'] as const;

/** Null when none of the simulator's flags is given. */
function workloadFlagsOf(flags: BenchServeFlags): Workload | null {
  const [first] = WORKLOAD_KEYS.filter((key) => flags[key] !== undefined);
  if (first === undefined) return null;
  const other = (['datasetName', ...BENCH_KEYS] as const).find((key) => flags[key] !== undefined);
  if (other !== undefined) {
    throw new PagodaError(
      'bad_config',
      `${optionOf(first)} and ${optionOf(other)} belong to two ways of saying what to send (that of simulate and that of vllm bench serve); take one.`,
      { param: optionOf(other) },
    );
  }
  return workloadOf(flags);
}

const optionOf = (key: string): string => `--${key.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;

function datasetOf({ datasetName }: BenchServeFlags, workload: Workload | null): DatasetName {
  if (workload !== null) return 'workload';
  return choiceValue('dataset-name', datasetName === 'timed_trace' ? 'trace' : (datasetName ?? 'random'), DATASETS);
}

/** A client keeps what it sent. */
const MOST_REQUESTS = 200_000;

function requestsOf(workload: Workload): number {
  let num = 0;
  for (const _request of workload.requests()) {
    if (++num > MOST_REQUESTS) {
      throw new PagodaError('bad_config', `--num-requests must be at most ${MOST_REQUESTS} for a load on a server.`, {
        param: '--num-requests',
      });
    }
  }
  return num;
}

/** Null = its own times. */
function rateOfWorkload({ closedLoop }: Workload): number | null {
  return closedLoop === null ? null : Number.POSITIVE_INFINITY;
}

function limitOf({ maxConcurrency }: BenchServeFlags, workload: Workload | null): number | null {
  if (workload?.closedLoop) return workload.closedLoop.concurrency;
  return maxConcurrency === undefined ? null : countValue('max-concurrency', maxConcurrency, 1);
}

const PERCENT: Range = {
  rule: 'percentiles from 0 to 100, separated by commas',
  accepts: (value) => value >= 0 && value <= 100,
};

function addressOf(flags: BenchServeFlags, backend: Backend) {
  if (flags.url !== undefined && flags.baseUrl !== undefined && flags.url !== flags.baseUrl) {
    throw new PagodaError('bad_config', '--url and --base-url are the same option; give one of them.', {
      param: '--url',
    });
  }
  const given = flags.url ?? flags.baseUrl;
  const urlOption =
    flags.url !== undefined ? '--url' : flags.baseUrl !== undefined ? '--base-url' : '--host and --port';
  const host = flags.host.includes(':') && !flags.host.startsWith('[') ? `[${flags.host}]` : flags.host;
  const port = countValue('port', flags.port, 1);
  const text = given === undefined ? urlValue('host', `http://${host}:${port}`) : urlValue(urlOption.slice(2), given);
  const endpoint = flags.endpoint ?? (backend === 'openai-chat' ? '/v1/chat/completions' : '/v1/completions');
  if (!endpoint.startsWith('/')) throw refuse('endpoint', 'a path like /v1/completions', endpoint);
  // People paste the address that OpenAI clients take, which ends in /v1.
  const baseUrl = endpoint.startsWith('/v1/') ? text.replace(/\/v1$/, '') : text;
  return { baseUrl, urlOption, endpoint };
}

function headersOf(flags: BenchServeFlags, env: NodeJS.ProcessEnv): Record<string, string> {
  const headers = pairsValue('header', flags.header ?? []);
  for (const [name, value] of Object.entries(headers)) {
    if (!/^[\w!#$%&'*+.^`|~-]+$/.test(name) || /[^\t\x20-\x7e\x80-\xff]/.test(value)) {
      throw refuse('header', 'a valid HTTP header NAME=VALUE', `${name}=${value}`);
    }
  }
  const key = env.OPENAI_API_KEY;
  const hasAuth = Object.keys(headers).some((name) => name.toLowerCase() === 'authorization');
  return key === undefined || key === '' || hasAuth ? headers : { ...headers, authorization: `Bearer ${key}` };
}

function rateOf(flags: BenchServeFlags, dataset: string, rampUp: RampUp | null): number | null {
  if (flags.requestRate === undefined) return dataset === 'trace' ? null : Number.POSITIVE_INFINITY;
  const rate = numberValue('request-rate', flags.requestRate, POSITIVE, true);
  if (rampUp !== null && rate !== Number.POSITIVE_INFINITY) {
    throw new PagodaError('bad_config', '--ramp-up-strategy sets the rate; drop --request-rate.', {
      param: '--request-rate',
    });
  }
  return rate;
}

function rampUpOf(flags: BenchServeFlags): RampUp | null {
  const { rampUpStrategy, rampUpStartRps, rampUpEndRps } = flags;
  if (rampUpStrategy === undefined) {
    if (rampUpStartRps !== undefined || rampUpEndRps !== undefined) {
      throw new PagodaError(
        'bad_config',
        '--ramp-up-start-rps and --ramp-up-end-rps need --ramp-up-strategy linear or exponential.',
        {
          param: '--ramp-up-strategy',
        },
      );
    }
    return null;
  }
  if (rampUpStartRps === undefined || rampUpEndRps === undefined) {
    throw new PagodaError('bad_config', '--ramp-up-strategy needs --ramp-up-start-rps and --ramp-up-end-rps.', {
      param: '--ramp-up-start-rps',
    });
  }
  const ramp: RampUp = {
    strategy: choiceValue('ramp-up-strategy', rampUpStrategy, ['linear', 'exponential'] as const),
    startRps: numberValue('ramp-up-start-rps', rampUpStartRps, POSITIVE),
    endRps: numberValue('ramp-up-end-rps', rampUpEndRps, POSITIVE),
  };
  if (ramp.startRps > ramp.endRps)
    throw refuse('ramp-up-end-rps', `at least --ramp-up-start-rps (${ramp.startRps})`, rampUpEndRps);
  return ramp;
}

const ANY: Range = { rule: 'a number', accepts: () => true };

function fieldsOf(flags: BenchServeFlags, backend: Backend): Record<string, unknown> {
  const fields: Record<string, unknown> = {};
  const numbers = {
    temperature: ['temperature', flags.temperature],
    top_p: ['top-p', flags.topP],
    top_k: ['top-k', flags.topK],
    min_p: ['min-p', flags.minP],
    presence_penalty: ['presence-penalty', flags.presencePenalty],
    frequency_penalty: ['frequency-penalty', flags.frequencyPenalty],
    repetition_penalty: ['repetition-penalty', flags.repetitionPenalty],
  } as const;
  for (const [field, [option, text]] of Object.entries(numbers)) {
    if (text !== undefined) fields[field] = numberValue(option, text, ANY);
  }
  if (flags.logprobs !== undefined) {
    const num = countValue('logprobs', flags.logprobs, 0);
    Object.assign(fields, backend === 'openai-chat' ? { logprobs: true, top_logprobs: num } : { logprobs: num });
  }
  if (flags.chatTemplateKwargs !== undefined) {
    if (backend !== 'openai-chat') {
      throw new PagodaError('bad_config', '--chat-template-kwargs needs --backend openai-chat.', {
        param: '--chat-template-kwargs',
      });
    }
    fields.chat_template_kwargs = jsonValue('chat-template-kwargs', flags.chatTemplateKwargs);
  }
  return flags.extraBody === undefined ? fields : { ...fields, ...jsonValue('extra-body', flags.extraBody) };
}

const TARGET_NAMES = new Map<string, keyof GoodputTargets>([
  ['ttft', 'ttftSeconds'],
  ['tpot', 'tpotSeconds'],
  ['e2el', 'e2eSeconds'],
]);

function targetsOf(texts: readonly string[]): GoodputTargets {
  const targets: { ttftSeconds?: number; tpotSeconds?: number; e2eSeconds?: number } = {};
  for (const text of texts) {
    const [key = '', value = ''] = text.split(':');
    const name = TARGET_NAMES.get(key);
    if (name === undefined) throw refuse('goodput', 'KEY:MILLISECONDS with the keys ttft, tpot, e2el', text);
    targets[name] = secondsValue('goodput', value, 0.001);
  }
  return targets;
}

function metricsOf(text: string): PercentileMetric[] {
  return text.split(',').map((name) => choiceValue('percentile-metrics', name.trim(), PERCENTILE_METRICS));
}
