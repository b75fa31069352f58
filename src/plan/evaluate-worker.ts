// A worker thread that evaluates configurations one after the other for evaluate-all.ts.

import { parentPort } from 'node:worker_threads';
import { PagodaError } from '../errors.ts';
import type { EvaluationTask } from './evaluate.ts';
import { evaluateTask } from './max-rate.ts';

parentPort?.on('message', ({ index, task }: { index: number; task: EvaluationTask }) => {
  try {
    parentPort!.postMessage({ index, evaluation: evaluateTask(task) });
  } catch (error) {
    const code = error instanceof PagodaError ? error.code : 'internal';
    const param = error instanceof PagodaError ? error.param : null;
    parentPort!.postMessage({ index, failure: { code, param, message: (error as Error).message } });
  }
});
