// Served load against measurements: InferenceX runs of Llama-3.1-70B FP8 (set A) and runs of Qwen3-32B BF16 (set B), each replayed
// on the real scheduler and the roofline device. The engine's free constants are fitted to half of set A; the other half is held out.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { type ResolvedDeployment, resolveDeployment } from '../plan/resolve-deployment.ts';
import { type CalibrationRow, fitEngineProfile } from '../sim/cost/calibrate.ts';
import { ENGINE_PROFILES, type EngineProfile } from '../sim/cost/engine-profile.ts';
import { RooflineCost } from '../sim/cost/roofline-cost.ts';
import { simulate } from '../sim/simulation.ts';
import { parseLengths } from '../workload/parse-lengths.ts';
import { createSyntheticWorkload } from '../workload/synthetic-workload.ts';
import type { Workload } from '../workload/workload.ts';
import { meanAbsolute, median, percent, type ValidationContext, type ValidationPart } from './validation-part.ts';

interface Point {
  readonly gpu: string;
  readonly tp: number;
  readonly isl: number;
  readonly osl: number;
  readonly concurrency: number;
  readonly ttftSeconds: number;
  readonly tpotSeconds: number;
}

interface Replayed extends Point {
  readonly simTtftSeconds: number;
  readonly simTpotSeconds: number;
}

export const validateServing: ValidationPart = {
  name: 'serving',
  run(context) {
    setA(context, readPoints(context)('A_inferencex_llama70b_fp8'));
  },
};

export const validateSampling: ValidationPart = {
  name: 'sampling',
  run(context) {
    setB(context, readPoints(context)('B_qwen3_32b_bf16'));
  },
};

function setA(context: ValidationContext, points: readonly Point[]): void {
  const { gates } = context;
  const inSample = points.filter(({ osl }) => osl === 1024);
  const replayed = inSample.map((point) => replayA(point, ENGINE_PROFILES.vllm, 10));
  for (const gpu of ['h100', 'h200']) {
    const own = replayed.filter((point) => point.gpu === gpu);
    gates.atMost(`A ${gpu} TPOT, mean error`, round(meanAbsolute(own.map(tpotError))), 0.05);
    gates.atMost(`A ${gpu} TPOT, largest error`, round(Math.max(...own.map((each) => Math.abs(tpotError(each))))), 0.2);
    gates.atMost(`A ${gpu} mean TTFT, mean error`, round(meanAbsolute(own.map(ttftError))), 0.12);
  }
  for (const [name, gpu, tp, concurrency] of [
    ['A4', 'h100', 2, 32],
    ['A5', 'h100', 2, 64],
    ['A12', 'h200', 1, 64],
  ] as const) {
    const row = replayed.find(
      (each) => each.gpu === gpu && each.tp === tp && each.isl === 8192 && each.concurrency === concurrency,
    );
    gates.atMost(`${name} TTFT with a full KV cache, error`, row ? round(Math.abs(ttftError(row))) : 1, 0.35);
  }
  const heldOut = fitOnHalf(context, replayed);
  const outside = points
    .filter(({ osl, tp, concurrency }) => osl === 8192 && tp === 4 && concurrency <= 32)
    .map((point) => replayA(point, ENGINE_PROFILES.vllm, 3));
  const outsideError = round(meanAbsolute(outside.map(tpotError)));
  gates.atMost('A with 8,192 output tokens, TP 4, never fitted: TPOT, mean error', outsideError, 0.07);
  context.add({
    title: 'Set A: Llama-3.1-70B FP8 on H100 and H200, vLLM 0.11 (InferenceX, 2025-10-29)',
    text: [
      'Closed loop, lengths uniform in [0.8 L, L], ten prompts per user, no prefix cache, budget 8,192. Mean values; full-cache',
      `rows included. ${heldOut} With 8,192 output tokens (never fitted, TP 4, up to 32 users) the`,
      `error of TPOT is ${percent(outsideError)}; those runs are replayed with three prompts per user, so their TTFT, in which the`,
      'burst at the start then weighs more, is not compared.',
    ].join('\n'),
    ...pointTable(replayed),
  });
}

/** Every second row decides the constants, the others are predicted with them. */
function fitOnHalf({ gates }: ValidationContext, replayed: readonly Replayed[]): string {
  const fitted = fitEngineProfile(ENGINE_PROFILES.vllm, replayed.filter((_, i) => i % 2 === 0).map(calibrationRow));
  const held = replayed.filter((_, i) => i % 2 === 1).map((point) => replayA(point, fitted, 10));
  const constants = `${(fitted.stepSeconds * 1e3).toFixed(2)} ms per step, ${(fitted.sequenceSeconds * 1e6).toFixed(0)} us per sequence, ${(fitted.requestSeconds * 1e3).toFixed(0)} ms per request`;
  const errors = `TPOT ${percent(meanAbsolute(held.map(tpotError)))}, mean TTFT ${percent(meanAbsolute(held.map(ttftError)))}`;
  gates.note(`A, engine constants fitted to half of the rows: ${constants}; the other half: ${errors}`);
  gates.atMost('A held out, TPOT, mean error', round(meanAbsolute(held.map(tpotError))), 0.07);
  return `Engine constants fitted to every second row give ${constants}; the rows held out then have errors of ${errors}.`;
}

function calibrationRow(point: Replayed): CalibrationRow {
  return {
    numSequences: point.concurrency,
    measuredTpotSeconds: point.tpotSeconds,
    predictedTpotSeconds: point.simTpotSeconds,
    // Beyond that it is prefill and queueing.
    measuredTtftSeconds: point.concurrency <= 16 && point.isl <= 1024 ? point.ttftSeconds : null,
    predictedTtftSeconds: point.simTtftSeconds,
  };
}

function setB(context: ValidationContext, points: readonly Point[]): void {
  const replayed = points.map((point) => {
    const request = { model: 'qwen3-32b', engineProfile: 'vllm-sampling' } as const;
    return replay(
      point,
      serve(point, { ...request, kvCacheDtype: 'bf16', maxNumSeqs: 256 }),
      closedLoop(point, { share: 1, perUser: 4 }),
    );
  });
  const errors = replayed.map(tpotError);
  context.gates.atMost('B TPOT, median error', round(median(errors.map(Math.abs))), 0.05);
  context.gates.note(`B TPOT, mean error ${percent(meanAbsolute(errors))}`);
  context.add({
    title: 'Set B: Qwen3-32B BF16 on H100, vLLM 0.12 (aiconfigurator corpus)',
    text: [
      `The client is not known, so only the time per token counts: median error ${percent(median(errors.map(Math.abs)))}, mean`,
      `${percent(meanAbsolute(errors))}. Sampling is as the model's generation_config asks (top-k and top-p over all logits).`,
    ].join('\n'),
    ...pointTable(replayed),
  });
}

function replayA(point: Point, engine: EngineProfile, perUser: number): Replayed {
  // Which KV format was used is not recorded; 16 bit on H100 and fp8 on H200 agree with the rows that fill the cache.
  const kvCacheDtype = point.gpu === 'h100' ? 'bf16' : 'fp8';
  const resolved = serve(point, {
    model: 'llama-3.1-70b',
    weightDtype: 'fp8',
    kvCacheDtype,
    maxNumSeqs: Math.max(point.concurrency, 1),
  });
  return replay(point, withEngine(resolved, engine), closedLoop(point, { share: 0.8, perUser }));
}

function serve(point: Point, more: Partial<Parameters<typeof resolveDeployment>[0]> & { model: string }) {
  return resolveDeployment({
    gpu: `${point.gpu}:${point.tp}`,
    tensorParallelSize: point.tp,
    gpuMemoryUtilization: 0.9,
    maxModelLen: point.isl + point.osl + 256,
    maxNumBatchedTokens: 8192,
    enablePrefixCaching: false,
    ...more,
  });
}

/** The same deployment with other engine constants. */
export function withEngine(resolved: ResolvedDeployment, engine: EngineProfile): ResolvedDeployment {
  const { gpu, found, weightDtype, kvDtype, isEager, tensorParallelSize, pipelineParallelSize } = resolved;
  if (gpu === null) return resolved;
  const parallelism = { tensorParallelSize, pipelineParallelSize };
  const cost = new RooflineCost(found.shape, { gpu, parallelism, weightDtype, kvDtype, engine, isEager });
  return { ...resolved, engine, deployment: { ...resolved.deployment, cost } };
}

function closedLoop(point: Point, { share, perUser }: { share: number; perUser: number }): Workload {
  const lengths = (tokens: number, option: string) =>
    parseLengths(share === 1 ? String(tokens) : `${Math.floor(share * tokens)}-${tokens}`, option);
  return createSyntheticWorkload({
    name: `${point.isl}/${point.osl} x ${point.concurrency}`,
    seed: 1,
    numRequests: perUser * point.concurrency,
    arrivals: null,
    closedLoop: { concurrency: point.concurrency, thinkSeconds: 0 },
    maxSeconds: null,
    prompt: lengths(point.isl, '--prompt'),
    output: lengths(point.osl, '--output'),
    rankCorrelation: 0,
    prefix: { kind: 'none' },
  });
}

function replay(point: Point, { deployment }: ResolvedDeployment, workload: Workload): Replayed {
  const { summary } = simulate(deployment, workload);
  return { ...point, simTtftSeconds: summary.ttftSeconds.mean, simTpotSeconds: summary.tpotSeconds.mean };
}

const tpotError = (point: Replayed) => point.simTpotSeconds / point.tpotSeconds - 1;
const ttftError = (point: Replayed) => point.simTtftSeconds / point.ttftSeconds - 1;
const round = (value: number) => Math.round(value * 1e4) / 1e4;

function pointTable(points: readonly Replayed[]) {
  const ms = (seconds: number, digits: number) => (seconds * 1e3).toFixed(digits);
  const signed = (share: number) => `${share >= 0 ? '+' : ''}${percent(share)}`;
  return {
    header: ['GPU', 'TP', 'prompt/output', 'users', 'TTFT ms', 'simulated', 'error', 'TPOT ms', 'simulated', 'error'],
    rows: points.map((point) => [
      point.gpu,
      String(point.tp),
      `${point.isl}/${point.osl}`,
      String(point.concurrency),
      ms(point.ttftSeconds, 0),
      ms(point.simTtftSeconds, 0),
      signed(ttftError(point)),
      ms(point.tpotSeconds, 2),
      ms(point.simTpotSeconds, 2),
      signed(tpotError(point)),
    ]),
  };
}

/** Rows of one set, in order of GPU, TP, lengths and concurrency. */
function readPoints({ sharedRoot }: ValidationContext): (set: string) => Point[] {
  const path = join(sharedRoot, 'planning/vllm_silicon_points.csv');
  const [header = '', ...lines] = readFileSync(path, 'utf8').trim().split(/\r?\n/);
  const columns = header.split(',');
  const at = (cells: readonly string[], column: string) => cells[columns.indexOf(column)] ?? '';
  const all = lines.map((line) => {
    const cells = line.split(',');
    const number = (column: string) => Number(at(cells, column));
    return {
      set: at(cells, 'set'),
      gpu: at(cells, 'system').replace('_sxm', ''),
      tp: number('tp'),
      isl: number('isl'),
      osl: number('osl'),
      concurrency: number('concurrency'),
      ttftSeconds: number('ttft_ms') / 1e3,
      tpotSeconds: number('tpot_ms') / 1e3,
    };
  });
  const key = (point: Point) =>
    [point.gpu, ...[point.tp, point.isl, point.osl, point.concurrency].map((n) => String(n).padStart(6, '0'))].join();
  return (set) => all.filter((point) => point.set === set).sort((a, b) => (key(a) < key(b) ? -1 : 1));
}
