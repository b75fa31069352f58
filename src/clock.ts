// The one clock of front and engine: seconds since the epoch, monotonic within a process and equal across processes to well
// below a millisecond, so that an arrival time taken in the front can be compared with a time taken in the engine.

import { performance } from 'node:perf_hooks';

const { timeOrigin } = performance;

export function now(): number {
  return (timeOrigin + performance.now()) / 1000;
}
