// The highest request rate at which a configuration meets its targets, by bisection: double until it fails, then halve the
// interval on a logarithmic scale. What a search hands to its workers starts here.

import { type Evaluation, type EvaluationTask, evaluate } from './evaluate.ts';

const SLOWEST = 1 / 64;
const MAX_DOUBLINGS = 24;
const NUM_HALVINGS = 8;
/** Close enough. */
const LEAST_RATIO = 1.01;

/** As the task says: at its own rate, or at the highest one. */
export function evaluateTask(task: EvaluationTask): Evaluation {
  return task.findsRate ? maxRate(task) : evaluate(task);
}

/** The run at the highest rate; `maxRequestsPerSecond` is 0 when not even the slowest rate is met. */
function maxRate(task: EvaluationTask): Evaluation {
  const at = (requestsPerSecond: number): Evaluation => evaluate({ ...task, requestsPerSecond });
  const first = at(1);
  if (first.problem !== null) return { ...first, maxRequestsPerSecond: 0 };
  const start = first.isMet ? { rate: 1, run: first } : { rate: SLOWEST, run: at(SLOWEST) };
  if (!start.run.isMet) return { ...start.run, maxRequestsPerSecond: 0 };
  let low = start.rate;
  let best = start.run;
  let high = first.isMet ? 2 : 1;
  // Without targets, or with few requests, no rate is too high.
  for (let i = 0; first.isMet && i < MAX_DOUBLINGS; i++) {
    const next = at(high);
    if (!next.isMet) break;
    low = high;
    high *= 2;
    best = next;
  }
  for (let i = 0; i < NUM_HALVINGS && high / low > LEAST_RATIO; i++) {
    const middle = Math.sqrt(low * high);
    const next = at(middle);
    if (next.isMet) {
      low = middle;
      best = next;
    } else high = middle;
  }
  return { ...best, maxRequestsPerSecond: low };
}
