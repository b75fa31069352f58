// Flags that say what is asked of a deployment: lengths, arrivals, users, prefixes, or a recorded trace. A flag that would do nothing
// beside another one is refused.

import { type Command, Option as Flag } from 'commander';
import { PagodaError } from '../errors.ts';
import type { ArrivalSpec } from '../workload/arrivals.ts';
import type { LengthSpec } from '../workload/lengths.ts';
import { parseLengths } from '../workload/parse-lengths.ts';
import type { PrefixSpec } from '../workload/prefixes.ts';
import { type ClosedLoopSpec, createSyntheticWorkload } from '../workload/synthetic-workload.ts';
import { TRACE_FORMATS } from '../workload/trace-formats.ts';
import { openTrace } from '../workload/trace-workload.ts';
import type { Workload } from '../workload/workload.ts';
import { WORKLOAD_PRESETS, type WorkloadPreset } from '../workload/workload-presets.ts';
import { parseArrivals } from './arrival-flags.ts';
import { choiceValue, countValue, numberValue, secondsValue } from './bench-values.ts';

/** As commander gives them. */
export interface WorkloadFlags {
  readonly workload?: string;
  readonly prompt?: string;
  readonly output?: string;
  readonly lengthCorrelation?: string;
  readonly rate?: string;
  readonly arrival?: string;
  readonly burstiness?: string;
  readonly concurrency?: string;
  readonly thinkTime?: string;
  readonly sharedPrefix?: string;
  readonly sharedPrefixShare?: string;
  readonly sharedPrefixPrompts?: string;
  readonly turns?: string;
  readonly trace?: string;
  readonly traceFormat?: string;
  readonly traceScale?: string;
  readonly traceWindow?: string;
  readonly traceSpread?: string;
  readonly numRequests?: string;
  readonly duration?: string;
  readonly seed?: string;
}

const DEFAULT_PROMPT = '512';
const DEFAULT_OUTPUT = '128';
const OPEN_REQUESTS = 1000;
const LEAST_CLOSED_REQUESTS = 200;
const CLOSED_REQUESTS_PER_USER = 10;
/** With --duration the time ends the workload. */
const UNLIMITED_REQUESTS = 1_000_000_000;

export function addWorkloadFlags(command: Command): void {
  const add = (flag: string, help: string) => command.addOption(new Flag(flag, help).helpGroup('Workload:'));
  add('--workload <name>', `published lengths and arrivals: ${Object.keys(WORKLOAD_PRESETS).join(', ')}`);
  add(
    '--prompt <lengths>',
    'prompt tokens: 800, 640-800, lognormal(p50=1020,p95=4083), gamma(0.93,2201), … (default: 512)',
  );
  add('--output <lengths>', 'output tokens, in the same notation (default: 128)');
  add('--length-correlation <rho>', 'rank correlation of prompt and output lengths, -1 to 1 (default: 0)');
  add('--rate <n>', 'requests per second, or inf for all at once');
  add(
    '--arrival <process>',
    'poisson, constant, gamma, weibull(shape), on-off(on/s,off/s,s on,s off) (default: poisson)',
  );
  add('--burstiness <b>', "shape of gamma gaps, vLLM's: 1 = Poisson, smaller = burstier");
  add('--concurrency <n>', 'so many users, each sends the next request when the last one has ended');
  add('--think-time <seconds>', 'what a user waits between an answer and the next request (default: 0)');
  add('--shared-prefix <n>', 'tokens of a system prompt before the prompts');
  add('--shared-prefix-share <x>', 'share of the prompts that have it (default: 1)');
  add('--shared-prefix-prompts <n>', 'number of different system prompts (default: 1)');
  add('--turns <lengths>', 'conversations of so many turns: each prompt repeats all that was said');
  add('--trace <file>', `recorded requests: ${TRACE_FORMATS.join(', ')}`);
  add('--trace-format <format>', 'when the first line does not say it');
  add('--trace-scale <x>', 'so many times the recorded rate (default: 1)');
  add('--trace-window <from-to>', 'part of the trace in seconds: 600-1200 (default: all)');
  add('--trace-spread <seconds>', 'spread requests with the same time over so many seconds');
  add('--num-requests <n>', 'requests to send (default: 1000, 10 per user, or all of the trace)');
  add('--duration <seconds>', 'send requests for so long, instead of a number of them');
  add('--seed <n>', 'of everything random (default: 0)');
}

/** Throws PagodaError `bad_config` that names the flag. */
export function workloadOf(flags: WorkloadFlags): Workload {
  const seed = flags.seed === undefined ? 0 : countValue('seed', flags.seed, 0);
  return flags.trace === undefined ? syntheticOf(flags, seed) : traceOf(flags, flags.trace, seed);
}

function traceOf(flags: WorkloadFlags, path: string, seed: number): Workload {
  const unused = ['workload', 'prompt', 'output', 'lengthCorrelation', 'sharedPrefix', 'sharedPrefixShare'] as const;
  refuseBeside(flags, [...unused, 'sharedPrefixPrompts', 'turns', 'duration'], '--trace says it');
  const { arrivals, closedLoop } = loadOf(flags, null);
  if (arrivals !== null || closedLoop !== null)
    refuseBeside(flags, ['traceScale'], 'it changes the times of the trace, which are not used');
  return openTrace({
    path,
    seed,
    arrivals,
    closedLoop,
    format: flags.traceFormat === undefined ? null : choiceValue('trace-format', flags.traceFormat, TRACE_FORMATS),
    scale: positive('trace-scale', flags.traceScale) ?? 1,
    ...windowOf(flags.traceWindow),
    spreadSeconds: flags.traceSpread === undefined ? null : secondsValue('trace-spread', flags.traceSpread),
    maxRequests: flags.numRequests === undefined ? null : countValue('num-requests', flags.numRequests, 1),
  });
}

function syntheticOf(flags: WorkloadFlags, seed: number): Workload {
  refuseBeside(flags, ['traceFormat', 'traceScale', 'traceWindow', 'traceSpread'], 'it needs --trace');
  const preset = presetOf(flags.workload);
  const { arrivals, closedLoop } = loadOf(flags, preset);
  if (arrivals === null && closedLoop === null) {
    throw new PagodaError(
      'bad_config',
      'How do requests come? Give --rate 5 (per second), --rate inf, --concurrency 50 (users), --workload azure-conv or --trace FILE.',
      { param: '--rate' },
    );
  }
  if (flags.numRequests !== undefined) refuseBeside(flags, ['duration'], 'give one of it and --num-requests');
  if (closedLoop !== null || arrivals?.kind === 'at-once')
    refuseBeside(flags, ['duration'], 'it needs arrivals over time; give --num-requests');
  const maxSeconds = flags.duration === undefined ? null : secondsValue('duration', flags.duration);
  const ownNumber =
    closedLoop === null
      ? OPEN_REQUESTS
      : Math.max(LEAST_CLOSED_REQUESTS, CLOSED_REQUESTS_PER_USER * closedLoop.concurrency);
  const prompt = lengthsOf('prompt', flags.prompt, preset?.prompt, DEFAULT_PROMPT);
  const output = lengthsOf('output', flags.output, preset?.output, DEFAULT_OUTPUT);
  const lengthNames = `${flags.prompt ?? flags.workload ?? DEFAULT_PROMPT} in, ${flags.output ?? flags.workload ?? DEFAULT_OUTPUT} out`;
  return createSyntheticWorkload({
    name: `${lengthNames}, ${arrivalName(flags, closedLoop)}`,
    seed,
    numRequests:
      flags.numRequests === undefined
        ? maxSeconds === null
          ? ownNumber
          : UNLIMITED_REQUESTS
        : countValue('num-requests', flags.numRequests, 1),
    arrivals,
    closedLoop,
    maxSeconds,
    prompt,
    output,
    rankCorrelation: correlationOf(flags, preset),
    prefix: prefixOf(flags, closedLoop),
  });
}

/** How requests come: a rate, users, or what the preset recorded; both null when nothing says it. */
function loadOf(
  flags: WorkloadFlags,
  preset: WorkloadPreset | null,
): { arrivals: ArrivalSpec | null; closedLoop: ClosedLoopSpec | null } {
  if (flags.concurrency !== undefined) {
    refuseBeside(flags, ['rate', 'arrival', 'burstiness'], 'users of --concurrency send when they are answered');
    const concurrency = countValue('concurrency', flags.concurrency, 1);
    return { arrivals: null, closedLoop: { concurrency, thinkSeconds: thinkSecondsOf(flags) } };
  }
  if (flags.turns === undefined) refuseBeside(flags, ['thinkTime'], 'it needs --concurrency or --turns');
  const arrivals: ArrivalSpec | null = parseArrivals(flags, preset?.arrivals ?? null);
  return { arrivals, closedLoop: null };
}

function thinkSecondsOf(flags: WorkloadFlags): number {
  return flags.thinkTime === undefined || flags.thinkTime === '0' ? 0 : secondsValue('think-time', flags.thinkTime);
}

function prefixOf(flags: WorkloadFlags, closedLoop: ClosedLoopSpec | null): PrefixSpec {
  const numShared = flags.sharedPrefix === undefined ? null : countValue('shared-prefix', flags.sharedPrefix, 1);
  if (numShared === null) refuseBeside(flags, ['sharedPrefixShare', 'sharedPrefixPrompts'], 'it needs --shared-prefix');
  if (flags.turns !== undefined) {
    refuseBeside(flags, ['sharedPrefixShare', 'sharedPrefixPrompts'], 'conversations of --turns all share one prefix');
    return {
      kind: 'multi-turn',
      turns: parseLengths(flags.turns, '--turns'),
      // A closed loop's users think between any two requests.
      thinkSeconds: closedLoop === null ? thinkSecondsOf(flags) : 0,
      numSharedTokens: numShared ?? 0,
      maxTokens: 1_000_000,
    };
  }
  if (numShared === null) return { kind: 'none' };
  const inShare = { rule: 'a number from 0 to 1', accepts: (value: number) => value >= 0 && value <= 1 };
  return {
    kind: 'shared',
    numTokens: numShared,
    share:
      flags.sharedPrefixShare === undefined ? 1 : numberValue('shared-prefix-share', flags.sharedPrefixShare, inShare),
    numPrompts:
      flags.sharedPrefixPrompts === undefined ? 1 : countValue('shared-prefix-prompts', flags.sharedPrefixPrompts, 1),
  };
}

function presetOf(name: string | undefined): WorkloadPreset | null {
  if (name === undefined) return null;
  const names = Object.keys(WORKLOAD_PRESETS) as Array<keyof typeof WORKLOAD_PRESETS>;
  return WORKLOAD_PRESETS[choiceValue('workload', name, names)];
}

function lengthsOf(
  name: string,
  text: string | undefined,
  preset: LengthSpec | undefined,
  otherwise: string,
): LengthSpec {
  if (text === undefined && preset !== undefined) return preset;
  return parseLengths(text ?? otherwise, `--${name}`);
}

function correlationOf(flags: WorkloadFlags, preset: WorkloadPreset | null): number {
  const rule = { rule: 'a number from -1 to 1', accepts: (value: number) => Math.abs(value) <= 1 };
  if (flags.lengthCorrelation !== undefined) return numberValue('length-correlation', flags.lengthCorrelation, rule);
  // The preset's holds for its own pair of lengths.
  return preset === null || flags.prompt !== undefined || flags.output !== undefined ? 0 : preset.rankCorrelation;
}

function positive(option: string, text: string | undefined): number | null {
  if (text === undefined) return null;
  return numberValue(option, text, { rule: 'a number above 0', accepts: (value) => value > 0 });
}

function windowOf(text: string | undefined): { windowStartSeconds: number; windowSeconds: number | null } {
  if (text === undefined) return { windowStartSeconds: 0, windowSeconds: null };
  const match = /^(\d+(?:\.\d+)?)-(\d+(?:\.\d+)?)$/.exec(text);
  const [start, end] = [Number(match?.[1]), Number(match?.[2])];
  if (match === null || !(end > start)) {
    throw new PagodaError('bad_config', `--trace-window must be two times in seconds like 600-1200, got '${text}'.`, {
      param: '--trace-window',
    });
  }
  return { windowStartSeconds: start, windowSeconds: end - start };
}

function arrivalName(flags: WorkloadFlags, closedLoop: ClosedLoopSpec | null): string {
  if (closedLoop !== null) return `${closedLoop.concurrency} users`;
  if (flags.rate === undefined) return flags.arrival ?? `arrivals of ${flags.workload}`;
  const process = flags.burstiness === undefined ? (flags.arrival ?? '') : `burstiness ${flags.burstiness}`;
  return `${flags.rate} requests/s${process === '' ? '' : `, ${process}`}`;
}

function refuseBeside(flags: WorkloadFlags, keys: ReadonlyArray<keyof WorkloadFlags>, why: string): void {
  for (const key of keys) {
    if (flags[key] === undefined) continue;
    const option = `--${key.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
    throw new PagodaError('bad_config', `${option} does nothing here: ${why}.`, { param: option });
  }
}
