// One load over several processes: one event loop cannot stamp the tokens of thousands of streams in time. Requests are dealt out
// in turn, so that every process sees the same mix; the limit on requests under way is divided.

import { type ChildProcess, fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { PagodaError } from '../errors.ts';
import { type LagReport, worstLag } from './lag-monitor.ts';
import type { FromWorker, ToWorker } from './load-messages.ts';
import { type LoadJob, type LoadOptions, type LoadResult, runLoad } from './load-run.ts';
import type { RequestRecord } from './request-record.ts';

/** Between the moment at which every process stands ready and the start of the load. */
const LEAD_SECONDS = 0.25;
/** A process that is not ready by then never will be. */
const START_SECONDS = 120;

export interface ProcessesOptions extends LoadOptions {
  /** The worker's file, where it is not beside this one. */
  readonly workerEntry?: string;
}

/** `job.startSeconds` is when the load begins at the earliest; with several processes it waits until all of them stand ready. */
export async function runLoadInProcesses(
  job: LoadJob,
  numProcesses: number,
  options: ProcessesOptions,
): Promise<LoadResult & { readonly startSeconds: number }> {
  const limit = job.maxConcurrency ?? Number.POSITIVE_INFINITY;
  const num = Math.max(1, Math.min(numProcesses, job.requests.length, limit));
  if (num === 1) return { ...(await runLoad(job, options)), startSeconds: job.startSeconds };
  const records: RequestRecord[] = [];
  const onRecords = (more: readonly RequestRecord[]): void => {
    for (const record of more) {
      records.push(record);
      options.onRecord?.(record);
    }
  };
  const entry = options.workerEntry ?? defaultEntry();
  const workers = Array.from({ length: num }, () => new LoadWorker(entry, onRecords));
  const stop = (): void => {
    for (const worker of workers) worker.send({ kind: 'stop' });
  };
  options.signal.addEventListener('abort', stop, { once: true });
  try {
    await Promise.all(workers.map((worker) => worker.ready));
    const startSeconds = Math.max(job.startSeconds, options.clock() + LEAD_SECONDS);
    const shares = dealOut({ ...job, startSeconds }, num);
    for (const [i, worker] of workers.entries()) worker.send({ kind: 'run', job: shares[i]! });
    if (options.signal.aborted) stop();
    const lags = await Promise.all(workers.map((worker) => worker.done));
    return { records: records.sort((a, b) => a.index - b.index), lag: worstLag(lags), startSeconds };
  } finally {
    options.signal.removeEventListener('abort', stop);
    for (const worker of workers) worker.end();
  }
}

/** Requests of one conversation stay together. Exported for its test. */
export function dealOut(job: LoadJob, num: number): LoadJob[] {
  return Array.from({ length: num }, (_, worker) => ({
    ...job,
    requests: job.requests.filter((request, i) => (request.sessionId ?? i) % num === worker),
    maxConcurrency:
      job.maxConcurrency === null
        ? null
        : Math.floor(job.maxConcurrency / num) + (worker < job.maxConcurrency % num ? 1 : 0),
  }));
}

/** One process, from its start to its last message. */
class LoadWorker {
  readonly ready: Promise<void>;
  readonly done: Promise<LagReport>;
  readonly #child: ChildProcess;

  constructor(entry: string, onRecords: (records: readonly RequestRecord[]) => void) {
    const child = fork(entry, [], { serialization: 'advanced', stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
    this.#child = child;
    let onReady: () => void = () => undefined;
    const isUp = new Promise<void>((resolve, reject) => {
      const timer = setTimeout(
        () => reject(new PagodaError('internal', `A load process was not ready after ${START_SECONDS} s.`)),
        START_SECONDS * 1000,
      );
      timer.unref();
      onReady = () => {
        clearTimeout(timer);
        resolve();
      };
    });
    this.done = new Promise<LagReport>((resolve, reject) => {
      const fail = (message: string, cause?: unknown): void =>
        reject(new PagodaError('internal', message, cause === undefined ? {} : { cause }));
      child.on('error', (error) => fail(`A load process could not start: ${error.message}.`, error));
      child.on('exit', (code, signal) => fail(`A load process ended early (${signal ?? `exit code ${code}`}).`));
      child.on('message', (raw) => {
        const message = raw as FromWorker;
        switch (message.kind) {
          case 'ready':
            onReady();
            break;
          case 'records':
            onRecords(message.records);
            break;
          case 'done':
            resolve(message.lag);
            break;
          case 'failed':
            fail(`A load process failed: ${message.message}`);
            break;
          default:
            message satisfies never;
        }
      });
    });
    // A process that ends before it is ready has failed; whoever waits for either hears of it once.
    this.ready = Promise.race([isUp, this.done.then(() => undefined)]);
    this.done.catch(() => undefined);
  }

  send(message: ToWorker): void {
    if (this.#child.connected) this.#child.send(message);
  }

  end(): void {
    if (this.#child.exitCode === null && this.#child.signalCode === null) this.#child.kill();
  }
}

/** The same file in src/ (TypeScript, on a Node.js that runs it) and dist/ (JavaScript). */
function defaultEntry(): string {
  const suffix = import.meta.url.endsWith('.ts') ? 'ts' : 'js';
  return fileURLToPath(new URL(`./load-worker.${suffix}`, import.meta.url));
}
