// One load over several processes: one event loop cannot stamp the tokens of thousands of streams in time. Requests are dealt out
// in turn, so that every process sees the same mix; the limit on requests under way is divided.

import { type ChildProcess, fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { PagodaError } from '../errors.ts';
import { type LagReport, worstLag } from './lag-monitor.ts';
import type { FromWorker, ToWorker } from './load-messages.ts';
import { type LoadJob, type LoadOptions, type LoadResult, runLoad } from './load-run.ts';
import type { RequestRecord } from './request-record.ts';

/** Starting processes takes a while: the load begins this much later for each run. */
const START_SECONDS = 1.5;

export interface ProcessesOptions extends LoadOptions {
  /** The worker's file, where it is not beside this one. */
  readonly workerEntry?: string;
}

/** `job.startSeconds` is when the load begins at the earliest; with several processes it is moved until all of them stand ready. */
export async function runLoadInProcesses(
  job: LoadJob,
  numProcesses: number,
  options: ProcessesOptions,
): Promise<LoadResult & { readonly startSeconds: number }> {
  const limit = job.maxConcurrency ?? Number.POSITIVE_INFINITY;
  const num = Math.max(1, Math.min(numProcesses, job.requests.length, limit));
  if (num === 1) return { ...(await runLoad(job, options)), startSeconds: job.startSeconds };
  const startSeconds = Math.max(job.startSeconds, options.clock() + START_SECONDS);
  const shares = dealOut({ ...job, startSeconds }, num);
  const records: RequestRecord[] = [];
  const onRecords = (more: readonly RequestRecord[]): void => {
    for (const record of more) {
      records.push(record);
      options.onRecord?.(record);
    }
  };
  const { signal, workerEntry = defaultEntry() } = options;
  const lags = await Promise.all(shares.map((share) => runShare(share, { onRecords, signal, workerEntry })));
  return { records: records.sort((a, b) => a.index - b.index), lag: worstLag(lags), startSeconds };
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

interface ShareOptions {
  readonly workerEntry: string;
  readonly signal: AbortSignal;
  onRecords(records: readonly RequestRecord[]): void;
}

function runShare(job: LoadJob, { signal, onRecords, workerEntry }: ShareOptions): Promise<LagReport> {
  const child = startWorker(workerEntry);
  const send = (message: ToWorker): void => {
    if (child.connected) child.send(message);
  };
  const stop = (): void => send({ kind: 'stop' });
  signal.addEventListener('abort', stop, { once: true });
  return new Promise<LagReport>((resolve, reject) => {
    child.on('error', (error) =>
      reject(new PagodaError('internal', `A load process could not start: ${error.message}.`, { cause: error })),
    );
    child.on('exit', (code, endSignal) =>
      reject(new PagodaError('internal', `A load process ended early (${endSignal ?? `exit code ${code}`}).`)),
    );
    child.on('message', (raw) => {
      const message = raw as FromWorker;
      if (message.kind === 'records') onRecords(message.records);
      else if (message.kind === 'done') resolve(message.lag);
      else reject(new PagodaError('internal', `A load process failed: ${message.message}`));
    });
    send({ kind: 'run', job });
    if (signal.aborted) stop();
  }).finally(() => {
    signal.removeEventListener('abort', stop);
    if (child.exitCode === null && child.signalCode === null) child.kill();
  });
}

function startWorker(entry: string): ChildProcess {
  return fork(entry, [], { serialization: 'advanced', stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
}

/** The same file in src/ (TypeScript, on a Node.js that runs it) and dist/ (JavaScript). */
function defaultEntry(): string {
  const suffix = import.meta.url.endsWith('.ts') ? 'ts' : 'js';
  return fileURLToPath(new URL(`./load-worker.${suffix}`, import.meta.url));
}
