// Hands out a workload's requests when their time has come: by the clock, or when a user's last request has ended. A turn of a
// conversation waits for the answer to the one before it. Holds only what is live.

import { TimeHeap } from '../workload/time-heap.ts';
import type { Workload, WorkloadRequest } from '../workload/workload.ts';

/** One request on its way through the simulator. */
export interface LiveRequest {
  /** Counts requests in the order in which they were sent. */
  readonly number: number;
  readonly request: WorkloadRequest;
  /** When the user sent it; the engine sees it later by what tokenizing and HTTP take. */
  readonly arrivalSeconds: number;
}

interface Session {
  /** Turns whose time may have come, behind one that is live. */
  readonly held: WorkloadRequest[];
}

export class RequestSource {
  readonly #overheadSeconds: number;
  readonly #thinkSeconds: number;
  readonly #isClosed: boolean;
  readonly #iterator: Iterator<WorkloadRequest>;
  readonly #sessions = new Map<number, Session>();
  /** Sent, and not yet with the engine. */
  readonly #ready = new TimeHeap<{ readonly request: WorkloadRequest; readonly arrivalSeconds: number }>();
  /** Open loop: the next one of the workload. */
  #next: WorkloadRequest | null = null;
  #numSent = 0;

  constructor(workload: Workload, overheadSeconds: number) {
    this.#overheadSeconds = overheadSeconds;
    this.#iterator = workload.requests()[Symbol.iterator]();
    this.#isClosed = workload.closedLoop !== null;
    this.#thinkSeconds = workload.closedLoop?.thinkSeconds ?? 0;
    if (workload.closedLoop === null) this.#next = this.#pull();
    else for (let user = 0; user < workload.closedLoop.concurrency; user++) this.#sendNext(0);
  }

  /** When the next request reaches the engine; Infinity when none is due before another one ends. */
  get nextSeconds(): number {
    const open = this.#next === null ? Number.POSITIVE_INFINITY : this.#next.arrivalSeconds + this.#overheadSeconds;
    return Math.min(open, this.#ready.nextTime);
  }

  /** The request due at `nextSeconds`. */
  take(): LiveRequest {
    const next = this.#next;
    if (next === null || this.#ready.nextTime <= next.arrivalSeconds + this.#overheadSeconds) {
      const { request, arrivalSeconds } = this.#ready.pop();
      return { number: this.#numSent++, request, arrivalSeconds };
    }
    this.#next = this.#pull();
    return { number: this.#numSent++, request: next, arrivalSeconds: next.arrivalSeconds };
  }

  /** Tells that a request has ended, well or not. */
  onEnd({ request }: LiveRequest, now: number): void {
    if (request.sessionId !== null) this.#endTurn(request.sessionId, now);
    if (this.#isClosed) this.#sendNext(now + this.#thinkSeconds);
  }

  /** Closed loop: a user sends the next request; one that has to wait for its conversation keeps the user waiting. */
  #sendNext(seconds: number): void {
    const result = this.#iterator.next();
    if (result.done === true) return;
    if (this.#isHeld(result.value)) return;
    this.#ready.push(seconds + this.#overheadSeconds, { request: result.value, arrivalSeconds: seconds });
  }

  /** Open loop: the next request that need not wait for its conversation. */
  #pull(): WorkloadRequest | null {
    for (;;) {
      const result = this.#iterator.next();
      if (result.done === true) return null;
      if (!this.#isHeld(result.value)) return result.value;
    }
  }

  #isHeld(request: WorkloadRequest): boolean {
    if (request.sessionId === null) return false;
    const session = this.#sessions.get(request.sessionId);
    if (session === undefined) {
      this.#sessions.set(request.sessionId, { held: [] });
      return false;
    }
    session.held.push(request);
    return true;
  }

  #endTurn(sessionId: number, now: number): void {
    const session = this.#sessions.get(sessionId);
    const request = session?.held.shift();
    if (request === undefined) {
      this.#sessions.delete(sessionId);
      return;
    }
    // Whoever answers thinks first; in an open loop the turn also has its own earliest time.
    const arrivalSeconds = this.#isClosed ? now + this.#thinkSeconds : Math.max(now, request.arrivalSeconds);
    this.#ready.push(arrivalSeconds + this.#overheadSeconds, { request, arrivalSeconds });
  }
}
