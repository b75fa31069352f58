// `pagoda calibrate engine`: replays each measured run on the model of the hardware (or on a calibrated device, to which serving is
// then added), and fits the engine's constants to the difference. From a log every line with running requests and hardly any prompt is a measurement of a decode step.

import { readFileSync, statSync, writeFileSync } from 'node:fs';
import type { Command } from 'commander';
import { PagodaError } from '../errors.ts';
import { calibrationText, type DeviceCalibration, readCalibration } from '../plan/calibration-file.ts';
import { type ResolvedDeployment, resolveDeployment } from '../plan/resolve-deployment.ts';
import { type CalibrationRow, fitEngineProfile } from '../sim/cost/calibrate.ts';
import type { EngineProfile } from '../sim/cost/engine-profile.ts';
import { simulate } from '../sim/simulation.ts';
import { parseLengths } from '../workload/parse-lengths.ts';
import { createSyntheticWorkload } from '../workload/synthetic-workload.ts';
import type { CalibrateEngineFlags } from './calibrate-flags.ts';
import type { CliIo } from './cli-io.ts';
import { deploymentRequestOf } from './deployment-flags.ts';

const MAX_FILE_BYTES = 256 * 2 ** 20;
/** Enough to reach the steady state; a bench of thousands of requests says no more. */
const MOST_REQUESTS = 512;
/** Lines with more prompt than this share of the output are no pure decode steps. */
const MOST_PROMPT_SHARE = 0.05;

export function calibrateEngine(
  command: Command,
  model: string | undefined,
  flags: CalibrateEngineFlags,
  io: CliIo,
): void {
  const request = deploymentRequestOf(command, model);
  const device = deviceCalibration(request.calibration ?? null);
  if ((request.gpu ?? null) === null && device === null)
    throw badFlag('--gpu', 'is needed: the GPUs that it was measured on (or --calibration with a device)');
  const { bench = [], log } = flags;
  if (bench.length === 0 && log === undefined)
    throw badFlag('--bench', 'or --log is needed: it says what was measured');
  const resolved = resolveDeployment(request);
  const decodes = device === null ? [] : bench.map((path) => decodeRow(resolved, path));
  const runs = device === null ? bench.map((path) => benchRow(resolved, path)) : decodes;
  const rows = [...runs, ...(log === undefined ? [] : logRows(resolved, log))];
  // A device's prices know nothing of serving: all of that is fitted, from nothing.
  const profile =
    device === null
      ? resolved.engine
      : {
          name: device.device,
          stepSeconds: 0,
          sequenceSeconds: 0,
          logitSeconds: 0,
          requestSeconds: device.requestSeconds,
        };
  const fitted = fitEngineProfile(profile, rows);
  const text = calibrationText(
    device === null ? { kind: 'engine', engine: fitted } : servedDevice(device, fitted, decodes),
    {
      deployment: resolved.deployment.name,
      num_measurements: rows.length,
      mean_tpot_error_share: meanError(rows, profile, fitted),
    },
  );
  if (flags.out === undefined) io.stdout.write(text);
  else writeOut(flags.out, text);
  io.stderr.write(
    `${rows.length} measurements: ${(1e3 * fitted.stepSeconds).toFixed(2)} ms per step, ${(1e6 * fitted.sequenceSeconds).toFixed(0)} us per sequence, ${(1e3 * fitted.requestSeconds).toFixed(0)} ms per request\n`,
  );
}

function deviceCalibration(path: string | null): DeviceCalibration | null {
  const calibration = path === null ? null : readCalibration(path);
  return calibration?.kind === 'device' ? calibration : null;
}

/** The device with what serving adds to a step, a sequence, a prompt token and a request. */
function servedDevice(device: DeviceCalibration, served: EngineProfile, rows: readonly DecodeRow[]): DeviceCalibration {
  const { prices } = device;
  const { intercept, slope } = missingTtft(rows, served);
  return {
    ...device,
    prices: {
      ...prices,
      stepSeconds: prices.stepSeconds + served.stepSeconds,
      sequenceSeconds: prices.sequenceSeconds + served.sequenceSeconds,
      tokenSeconds: prices.tokenSeconds + slope,
    },
    requestSeconds: Math.max(0, device.requestSeconds + intercept),
  };
}

/** What is missing in the time to the first token of lone requests, as a line over the length of their prompts; no falling one. */
function missingTtft(rows: readonly DecodeRow[], served: EngineProfile): { intercept: number; slope: number } {
  const lone = rows.flatMap(({ measuredTtftSeconds, predictedTtftSeconds, promptTokens }) => {
    if (measuredTtftSeconds === null) return [];
    const missing = measuredTtftSeconds - predictedTtftSeconds - served.stepSeconds - served.sequenceSeconds;
    return [{ promptTokens, missing }];
  });
  if (lone.length === 0) return { intercept: 0, slope: 0 };
  const mean = (of: (each: (typeof lone)[number]) => number) =>
    lone.reduce((sum, each) => sum + of(each), 0) / lone.length;
  const [tokens, missing] = [mean((each) => each.promptTokens), mean((each) => each.missing)];
  const spread = mean((each) => (each.promptTokens - tokens) ** 2);
  const covariance = mean((each) => (each.promptTokens - tokens) * (each.missing - missing));
  const slope = spread > 0 ? Math.max(0, covariance / spread) : 0;
  return { intercept: missing - slope * tokens, slope };
}

/** Of the time per token, with the fitted constants. */
function meanError(rows: readonly CalibrationRow[], engine: EngineProfile, fitted: EngineProfile): number {
  const errors = rows.map((row) => {
    const shift =
      fitted.stepSeconds - engine.stepSeconds + (fitted.sequenceSeconds - engine.sequenceSeconds) * row.numSequences;
    return Math.abs((row.predictedTpotSeconds + shift) / row.measuredTpotSeconds - 1);
  });
  return errors.reduce((a, b) => a + b, 0) / errors.length;
}

function benchRow(resolved: ResolvedDeployment, path: string): CalibrationRow {
  const fields = benchFields(path);
  const number = (key: string): number => positive(fields, key, path);
  const completed = number('completed');
  const users = typeof fields.max_concurrency === 'number' ? fields.max_concurrency : null;
  const rate = Number(fields.request_rate);
  const workload = createSyntheticWorkload({
    name: path,
    seed: 0,
    numRequests: Math.min(MOST_REQUESTS, Math.max(completed, 1)),
    closedLoop: users === null ? null : { concurrency: users, thinkSeconds: 0 },
    arrivals:
      users !== null
        ? null
        : Number.isFinite(rate) && rate > 0
          ? { kind: 'poisson', requestsPerSecond: rate }
          : { kind: 'at-once' },
    maxSeconds: null,
    prompt: parseLengths(String(Math.max(1, Math.round(number('total_input_tokens') / completed))), '--bench'),
    output: parseLengths(String(Math.max(1, Math.round(number('total_output_tokens') / completed))), '--bench'),
    rankCorrelation: 0,
    prefix: { kind: 'none' },
  });
  const { summary, scheduler } = simulate(resolved.deployment, workload);
  const isUnloaded = scheduler.queueSeconds.p50 < 0.1 * summary.ttftSeconds.p50;
  return {
    numSequences: Math.max(1, scheduler.meanRunning),
    measuredTpotSeconds: number('mean_tpot_ms') / 1e3,
    predictedTpotSeconds: summary.tpotSeconds.mean,
    measuredTtftSeconds: isUnloaded ? number('mean_ttft_ms') / 1e3 : null,
    predictedTtftSeconds: summary.ttftSeconds.mean,
  };
}

interface DecodeRow extends CalibrationRow {
  readonly promptTokens: number;
}

/**
 * What a device lacks of its own decode step: users who decode side by side see one step between two tokens. The median leaves
 * out the steps in which others begin.
 */
function decodeRow({ deployment }: ResolvedDeployment, path: string): DecodeRow {
  const fields = benchFields(path);
  const number = (key: string): number => positive(fields, key, path);
  const completed = number('completed');
  const [prompt, output] = [number('total_input_tokens') / completed, number('total_output_tokens') / completed];
  const users = number('max_concurrency');
  const { cost } = deployment;
  const none = { numPrefillTokens: 0, numDecodes: 0, decodeContextTokens: 0, prefillPairs: 0 };
  const decode = {
    ...none,
    numSequences: users,
    numTokens: users,
    numDecodes: users,
    decodeContextTokens: users * (prompt + output / 2),
  };
  const prefill = {
    ...none,
    numSequences: 1,
    numTokens: prompt,
    numPrefillTokens: prompt,
    prefillPairs: (prompt * (prompt + 1)) / 2,
  };
  return {
    promptTokens: prompt,
    numSequences: users,
    measuredTpotSeconds: number('median_itl_ms') / 1e3,
    predictedTpotSeconds: cost.stepSeconds(decode),
    measuredTtftSeconds: users === 1 ? number('median_ttft_ms') / 1e3 : null,
    predictedTtftSeconds: cost.requestOverheadSeconds + cost.stepSeconds(prefill),
  };
}

function positive(fields: Readonly<Record<string, unknown>>, key: string, path: string): number {
  const value = fields[key];
  if (typeof value === 'number' && Number.isFinite(value) && value > 0) return value;
  throw badFlag('--bench', `${path}: ${key} must be a number above 0, as bench serve saves it`);
}

function benchFields(path: string): Readonly<Record<string, unknown>> {
  let json: unknown = null;
  try {
    json = JSON.parse(readText('--bench', path));
  } catch (error) {
    if (error instanceof PagodaError) throw error;
    throw badFlag('--bench', `${path}: is not JSON`);
  }
  if (typeof json !== 'object' || json === null || Array.isArray(json))
    throw badFlag('--bench', `${path}: is not a saved result of bench serve`);
  return json as Readonly<Record<string, unknown>>;
}

const LOG_LINE =
  /prompt throughput: ([\d.]+) tokens\/s.*generation throughput: ([\d.]+) tokens\/s.*Running: (\d+) reqs.*KV cache usage: ([\d.]+)%/;

function logRows({ deployment, ledger }: ResolvedDeployment, path: string): CalibrationRow[] {
  const rows: CalibrationRow[] = [];
  for (const line of readText('--log', path).split('\n')) {
    const match = LOG_LINE.exec(line);
    if (match === null) continue;
    const [prompt = 0, generation = 0, running = 0, usage = 0] = match.slice(1).map(Number);
    if (running < 1 || generation <= 0 || prompt > MOST_PROMPT_SHARE * generation) continue;
    const contextTokens = Math.max(running, (usage / 100) * (ledger.kvTokens ?? 0));
    rows.push({
      numSequences: running,
      measuredTpotSeconds: running / generation,
      predictedTpotSeconds: deployment.cost.stepSeconds({
        numSequences: running,
        numTokens: running,
        numPrefillTokens: 0,
        numDecodes: running,
        decodeContextTokens: contextTokens,
        prefillPairs: 0,
      }),
      measuredTtftSeconds: null,
      predictedTtftSeconds: 0,
    });
  }
  if (rows.length > 0) return rows;
  throw badFlag('--log', `${path}: has no line with running requests that mostly decode`);
}

function readText(option: string, path: string): string {
  const stats = statSync(path, { throwIfNoEntry: false });
  if (!stats?.isFile()) throw badFlag(option, `${path}: no such file`);
  if (stats.size > MAX_FILE_BYTES) throw badFlag(option, `${path}: is larger than ${MAX_FILE_BYTES} bytes`);
  return readFileSync(path, 'utf8');
}

export function writeOut(path: string, text: string): void {
  try {
    writeFileSync(path, text);
  } catch (error) {
    throw badFlag('--out', `${path}: cannot be written (${(error as NodeJS.ErrnoException).code ?? 'error'})`);
  }
}

function badFlag(option: string, what: string): PagodaError {
  return new PagodaError('bad_config', `${option} ${what}.`, { param: option });
}
