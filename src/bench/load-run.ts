// Sends the requests of a load at their times and collects what came of them. Open loop: the schedule never waits for replies, and
// latency counts from the scheduled time, so that a slow server (or a held-up client) cannot hide behind requests not sent.

import { type Clock, HttpExchanger, type RequestTarget } from './http-exchange.ts';
import { LagMonitor, type LagReport } from './lag-monitor.ts';
import type { RequestRecord } from './request-record.ts';
import { waitUntil } from './wait-until.ts';

export interface PlannedRequest {
  readonly index: number;
  /** Seconds after the start. */
  readonly sendSeconds: number;
  /** Requests of one conversation go one after the other: a later one waits for the end of the one before. */
  readonly sessionId: number | null;
  /** JSON text. */
  readonly body: string;
  /** What the client believes, for servers that report no usage. */
  readonly numPromptTokens: number;
  readonly headers: Readonly<Record<string, string>>;
}

/** Plain data: it also goes to worker processes. */
export interface LoadJob {
  readonly target: RequestTarget;
  readonly requests: readonly PlannedRequest[];
  /** Most requests under way; null = no limit. */
  readonly maxConcurrency: number | null;
  /**
   * There is no schedule: all requests are due at once, and what paces them is the limit, or the client itself. Then a request's
   * time begins when it is sent, since no user waited before. False = the schedule paces, and waiting for a place counts.
   */
  readonly isUnpaced: boolean;
  /** How long a place stays empty between two requests: what a user waits before the next one. */
  readonly thinkSeconds: number;
  /** On the clock that all processes share. */
  readonly startSeconds: number;
}

export interface LoadResult {
  readonly records: readonly RequestRecord[];
  readonly lag: LagReport;
}

export interface LoadOptions {
  readonly clock: Clock;
  readonly signal: AbortSignal;
  onRecord?(record: RequestRecord): void;
}

/** Fulfilled when every request that was sent has ended. After an abort, requests not yet sent are left out. */
export async function runLoad(job: LoadJob, options: LoadOptions): Promise<LoadResult> {
  const { clock, signal } = options;
  const exchanger = new HttpExchanger(job.target, clock);
  const places = new Places(job.maxConcurrency ?? Number.POSITIVE_INFINITY);
  const lag = new LagMonitor(clock);
  const records: RequestRecord[] = [];
  const running: Promise<void>[] = [];
  const sessions = new Map<number, Promise<void>>();
  let lineMoved = Number.NEGATIVE_INFINITY;
  const stop = (): void => {
    exchanger.close();
    places.close();
  };
  signal.addEventListener('abort', stop, { once: true });
  lag.start();
  try {
    for (const request of job.requests) {
      // Made ready before its time, so that nothing but the write remains then.
      const body = new TextEncoder().encode(request.body);
      const due = job.startSeconds + request.sendSeconds;
      await waitUntil(due, { clock, signal });
      if (signal.aborted) break;
      const hadToWait = await places.take();
      if (signal.aborted) break;
      // Who stood in line behind one that waited for a place has waited for a place too.
      if (hadToWait) lineMoved = clock();
      const admitted = job.isUnpaced ? clock() : Math.max(due, lineMoved);
      const times = { scheduled: job.isUnpaced ? admitted : due, admitted };
      const send = async (scheduled: number): Promise<void> => {
        const reply = await exchanger.send(body, request.headers);
        if (job.thinkSeconds > 0) setTimeout(() => places.giveBack(), job.thinkSeconds * 1000);
        else places.giveBack();
        const record = recordOf(request, { scheduled, admitted: Math.max(scheduled, times.admitted) }, reply);
        records.push(record);
        options.onRecord?.(record);
      };
      // Nobody asks on before the answer has come: then the request's time begins.
      const before = request.sessionId === null ? undefined : sessions.get(request.sessionId);
      const done =
        before === undefined ? send(times.scheduled) : before.then(() => send(Math.max(times.scheduled, clock())));
      if (request.sessionId !== null) sessions.set(request.sessionId, done);
      running.push(done);
    }
    await Promise.all(running);
  } finally {
    lag.stop();
    signal.removeEventListener('abort', stop);
    exchanger.close();
  }
  return { records: records.sort((a, b) => a.index - b.index), lag: lag.report() };
}

function recordOf(
  request: PlannedRequest,
  times: { scheduled: number; admitted: number },
  reply: Awaited<ReturnType<HttpExchanger['send']>>,
): RequestRecord {
  const { numPromptTokens, ...rest } = reply;
  return {
    ...rest,
    index: request.index,
    scheduledSeconds: times.scheduled,
    admittedSeconds: times.admitted,
    numPromptTokens: numPromptTokens ?? request.numPromptTokens,
  };
}

/** A counter of places with a queue in order of arrival. */
class Places {
  #numFree: number;
  readonly #waiting: Array<() => void> = [];

  constructor(numPlaces: number) {
    this.#numFree = numPlaces;
  }

  /** Tells whether it had to wait. */
  async take(): Promise<boolean> {
    if (this.#numFree > 0) {
      this.#numFree--;
      return false;
    }
    await new Promise<void>((resolve) => this.#waiting.push(resolve));
    return true;
  }

  giveBack(): void {
    const next = this.#waiting.shift();
    if (next) next();
    else this.#numFree++;
  }

  /** Lets everybody go. */
  close(): void {
    for (const next of this.#waiting.splice(0)) next();
  }
}
