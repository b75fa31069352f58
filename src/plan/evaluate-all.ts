// Many evaluations on all cores. Results come back in the order of the tasks, whatever finished first, so a search is deterministic.

import { availableParallelism } from 'node:os';
import { Worker } from 'node:worker_threads';
import { type ErrorCode, PagodaError } from '../errors.ts';
import type { Evaluation, EvaluationTask } from './evaluate.ts';
import { evaluateTask } from './max-rate.ts';

export interface EvaluateAllOptions {
  /** 0 = in this thread. */
  readonly numWorkers: number;
  onDone?(numDone: number): void;
}

/** As many as there are cores, but none where the sources run uncompiled: a worker needs a .js file. */
export function defaultNumWorkers(): number {
  return import.meta.url.endsWith('.js') ? Math.min(8, availableParallelism()) : 0;
}

interface Reply {
  readonly index: number;
  readonly evaluation?: Evaluation;
  readonly failure?: { readonly code: ErrorCode; readonly param: string | null; readonly message: string };
}

export async function evaluateAll(
  tasks: readonly EvaluationTask[],
  options: EvaluateAllOptions,
): Promise<Evaluation[]> {
  const numWorkers = Math.min(options.numWorkers, tasks.length);
  if (numWorkers < 2) {
    const evaluations: Evaluation[] = [];
    for (const task of tasks) {
      evaluations.push(evaluateTask(task));
      options.onDone?.(evaluations.length);
      // Interrupts and the progress bar get their turn.
      await new Promise((resolve) => setImmediate(resolve));
    }
    return evaluations;
  }
  const workers = Array.from(
    { length: numWorkers },
    () => new Worker(new URL('./evaluate-worker.js', import.meta.url)),
  );
  try {
    return await runOn(workers, tasks, options);
  } finally {
    await Promise.all(workers.map((worker) => worker.terminate()));
  }
}

function runOn(
  workers: readonly Worker[],
  tasks: readonly EvaluationTask[],
  { onDone }: EvaluateAllOptions,
): Promise<Evaluation[]> {
  return new Promise((resolve, reject) => {
    const results = new Array<Evaluation>(tasks.length);
    let next = 0;
    let numDone = 0;
    const give = (worker: Worker) => {
      if (next < tasks.length) worker.postMessage({ index: next, task: tasks[next++] });
    };
    for (const worker of workers) {
      worker.on('error', reject);
      worker.on('exit', (code) => {
        if (code !== 0) reject(new PagodaError('internal', `A planning worker ended with code ${code}.`));
      });
      worker.on('message', ({ index, evaluation, failure }: Reply) => {
        if (evaluation === undefined) {
          const { code = 'internal', message = 'no result', param = null } = failure ?? {};
          reject(new PagodaError(code, message, param === null ? {} : { param }));
          return;
        }
        results[index] = evaluation;
        onDone?.(++numDone);
        if (numDone === tasks.length) resolve(results);
        else give(worker);
      });
      give(worker);
    }
  });
}
