// `pagoda bench serve`: a load on a running server. Prepares everything, warms up, runs, reports; see src/bench/ for how it
// measures. Ctrl-C ends the run and reports what there is.

import { randomUUID } from 'node:crypto';
import { clientVerdict } from '../bench/client-verdict.ts';
import type { BenchPrompt } from '../bench/datasets/dataset.ts';
import { loadMetrics } from '../bench/load-metrics.ts';
import { runLoadInProcesses } from '../bench/load-processes.ts';
import { type LoadJob, type PlannedRequest, runLoad } from '../bench/load-run.ts';
import { overSaturatedAt } from '../bench/over-saturation.ts';
import type { PromptSource } from '../bench/prompt-source.ts';
import { requestBody } from '../bench/request-body.ts';
import { type RequestRecord, ttftSeconds } from '../bench/request-record.ts';
import { serveReport } from '../bench/serve-report.ts';
import { type ServeFacts, type ServeRun, serveResult } from '../bench/serve-result.ts';
import { chooseModel, listModels, type ServerAddress } from '../bench/server-probe.ts';
import { now } from '../clock.ts';
import { PagodaError } from '../errors.ts';
import { definitionsJson, definitionsText } from './bench-definitions.ts';
import { saveResult } from './bench-serve-file.ts';
import type { BenchServeFlags } from './bench-serve-flags.ts';
import { makePrompts, promptSource } from './bench-serve-prompts.ts';
import { type ServeSettings, serveSettings } from './bench-serve-settings.ts';
import { CliExit, type CliIo } from './cli-io.ts';
import { runBar } from './run-bar.ts';

const INTERRUPTED = 130;
/** The load begins so much after everything is ready. */
const LEAD_SECONDS = 0.1;
const SATURATION_CHECK_SECONDS = 5;

export async function benchServe(flags: BenchServeFlags, io: CliIo): Promise<void> {
  const settings = serveSettings(flags, io.env);
  const address: ServerAddress = { ...settings, insecure: flags.insecure === true };
  const names = await listModels(address, settings.readySeconds);
  const model = chooseModel(flags.servedModelName ?? flags.model, names, address);
  const source = await promptSource(flags, settings, { address, model });
  const { timed, warmups } = makePrompts(flags, settings, source);
  const planned = plan({ flags, settings, model }, timed);
  const interrupt = new AbortController();
  let numInterrupts = 0;
  const forget = io.onInterrupt(() => {
    numInterrupts++;
    interrupt.abort();
  });
  try {
    const job = jobOf(flags, settings, planned);
    await warmUp(job, plan({ flags, settings, model }, warmups), interrupt.signal);
    const run = await measure(job, { flags, settings, io, interrupt });
    const facts = factsOf({ flags, settings, model, source }, planned.length);
    output(facts, run, { flags, io });
    if (numInterrupts > 0) throw new CliExit(INTERRUPTED);
    if (run.metrics.summary.numCompleted === 0) throw new CliExit(1);
  } finally {
    forget();
  }
}

interface Setup {
  readonly flags: BenchServeFlags;
  readonly settings: ServeSettings;
  readonly model: string;
}

function plan(setup: Setup, prompts: ReadonlyArray<BenchPrompt>): PlannedRequest[] {
  const { flags, settings, model } = setup;
  const prefix = flags.requestIdPrefix ?? `bench-${randomUUID().slice(0, 8)}-`;
  const { backend, ignoreEos, fields } = settings;
  return prompts.map((prompt, index) => ({
    index,
    sendSeconds: prompt.sendSeconds ?? 0,
    sessionId: prompt.sessionId ?? null,
    body: requestBody(prompt, { backend, model, ignoreEos, fields }),
    numPromptTokens: prompt.numPromptTokens,
    headers: { 'x-request-id': `${prefix}${index}` },
  }));
}

function jobOf(flags: BenchServeFlags, settings: ServeSettings, requests: readonly PlannedRequest[]): LoadJob {
  const { baseUrl, endpoint, backend, headers, idleSeconds, maxConcurrency, requestRate, rampUp } = settings;
  return {
    target: { url: `${baseUrl}${endpoint}`, backend, headers, idleSeconds, insecure: flags.insecure === true },
    // In order of time, also where a trace is not.
    requests: [...requests].sort((a, b) => a.sendSeconds - b.sendSeconds),
    maxConcurrency,
    isUnpaced: requestRate === Number.POSITIVE_INFINITY && rampUp === null,
    thinkSeconds: settings.thinkSeconds,
    startSeconds: 0,
  };
}

/** Sent before the start, counted nowhere; all of them failing ends the run, with the reason. */
async function warmUp(job: LoadJob, warmups: readonly PlannedRequest[], signal: AbortSignal): Promise<void> {
  if (warmups.length === 0) return;
  const requests = warmups.map((request) => ({ ...request, sendSeconds: 0, sessionId: null }));
  const maxConcurrency = job.maxConcurrency ?? WARMUP_CONCURRENCY;
  const warm: LoadJob = { ...job, requests, maxConcurrency, isUnpaced: true, thinkSeconds: 0 };
  const { records } = await runLoad({ ...warm, startSeconds: now() }, { clock: now, signal });
  if (records.length === 0 || records.some((record) => record.outcome === 'completed')) return;
  throw new PagodaError('bad_request', `Every warm-up request failed. ${records[0]!.error}`);
}

const WARMUP_CONCURRENCY = 8;

interface Running {
  readonly flags: BenchServeFlags;
  readonly settings: ServeSettings;
  readonly io: CliIo;
  readonly interrupt: AbortController;
}

async function measure(job: LoadJob, { flags, settings, io, interrupt }: Running): Promise<ServeRun> {
  const bar = runBar(io.stderr, job.requests.length, flags.disableTqdm === true);
  const startSeconds = now() + LEAD_SECONDS;
  const seen: RequestRecord[] = [];
  let stoppedBySaturation = false;
  const watch = (): void => {
    const planned = job.requests.map((request) => startSeconds + request.sendSeconds);
    if (job.isUnpaced || saturationOf(planned, seen, now()) === null) return;
    stoppedBySaturation = true;
    interrupt.abort();
  };
  const timer = flags.stopOverSaturated === true ? setInterval(watch, SATURATION_CHECK_SECONDS * 1000) : null;
  try {
    const result = await runLoadInProcesses({ ...job, startSeconds }, settings.numProcesses, {
      clock: now,
      signal: interrupt.signal,
      onRecord: (record) => {
        seen.push(record);
        bar.update(seen.length);
      },
    });
    const { records, lag } = result;
    const metrics = loadMetrics({ records, lag, startSeconds: result.startSeconds, targets: settings.targets });
    const scheduled = records.map((record) => record.scheduledSeconds).sort((a, b) => a - b);
    const saturated = job.isUnpaced ? null : saturationOf(scheduled, records, Number.POSITIVE_INFINITY);
    return {
      records,
      metrics,
      lag,
      verdict: clientVerdict(metrics, lag),
      startSeconds: result.startSeconds,
      overSaturatedSeconds: saturated === null ? null : saturated - result.startSeconds,
      wasStopped: stoppedBySaturation || interrupt.signal.aborted,
    };
  } finally {
    if (timer !== null) clearInterval(timer);
    bar.stop();
  }
}

function saturationOf(
  scheduledSeconds: readonly number[],
  records: readonly RequestRecord[],
  untilSeconds: number,
): number | null {
  const firstTokens = records.flatMap((record) => {
    const ttft = ttftSeconds(record);
    return ttft === null ? [] : [{ seconds: record.tokenSeconds[0]!, ttftSeconds: ttft }];
  });
  const endSeconds = records.map((record) => record.endSeconds);
  return overSaturatedAt({ scheduledSeconds, firstTokens, endSeconds, untilSeconds });
}

function factsOf(setup: Setup & { readonly source: PromptSource }, numPrompts: number): ServeFacts {
  const { flags, settings, model, source } = setup;
  return {
    date: timestamp(new Date()),
    backend: settings.backend,
    label: flags.label ?? null,
    modelId: flags.model ?? model,
    tokenizerId: flags.tokenizer ?? flags.model ?? model,
    numPrompts,
    requestRate: settings.requestRate,
    burstiness: settings.burstiness,
    maxConcurrency: settings.maxConcurrency,
    rampUp: settings.rampUp,
    metadata: settings.metadata,
    seed: settings.seed,
    datasetName: settings.dataset,
    numProcesses: settings.numProcesses,
    promptLengths: source.kind,
    percentileMetrics: settings.percentileMetrics,
    metricPercentiles: settings.metricPercentiles,
    saveDetailed: flags.saveDetailed === true,
  };
}

function timestamp(date: Date): string {
  const two = (value: number): string => String(value).padStart(2, '0');
  const day = `${date.getFullYear()}${two(date.getMonth() + 1)}${two(date.getDate())}`;
  return `${day}-${two(date.getHours())}${two(date.getMinutes())}${two(date.getSeconds())}`;
}

function output(facts: ServeFacts, run: ServeRun, { flags, io }: { flags: BenchServeFlags; io: CliIo }): void {
  const result = {
    ...serveResult(facts, run),
    ...(flags.definitions === true ? { definitions: definitionsJson(run.records) } : {}),
  };
  if (flags.json === true) io.stdout.write(`${JSON.stringify(result, null, 2)}\n`);
  else {
    io.stdout.write(serveReport(facts, run));
    if (flags.definitions === true) io.stdout.write(`\n${definitionsText(run.records)}`);
  }
  if (flags.saveResult === true || flags.appendResult === true) {
    const path = saveResult(result, facts, flags);
    io.stderr.write(`Result saved in ${path}\n`);
  }
}
