// Waiting for a moment on the client's clock to well below a millisecond. Timers of the event loop are up to a millisecond or two
// late; the last stretch goes turn by turn, in which sockets are still read.

import type { Clock } from './http-exchange.ts';

/** The last stretch, in seconds. */
const FINE_SECONDS = 0.003;

export interface WaitOptions {
  readonly clock: Clock;
  readonly signal: AbortSignal;
}

/** Fulfilled at that time, or when the signal is raised. What is late already goes on after one turn, in which sockets are read. */
export async function waitUntil(seconds: number, { clock, signal }: WaitOptions): Promise<void> {
  if (seconds <= clock()) await turn();
  for (;;) {
    const left = seconds - clock();
    if (left <= 0 || signal.aborted) return;
    if (left > FINE_SECONDS) await pause(left - FINE_SECONDS, signal);
    else await turn();
  }
}

/** Through the event loop once. */
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** Longest time a timer takes in one piece. */
const MAX_TIMER_SECONDS = 1e6;

function pause(seconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const end = (): void => {
      clearTimeout(timer);
      signal.removeEventListener('abort', end);
      resolve();
    };
    const timer = setTimeout(end, Math.min(seconds, MAX_TIMER_SECONDS) * 1000);
    signal.addEventListener('abort', end, { once: true });
  });
}
