// Who listens to which open request. Delivers every event of a request up to and including its one terminal event, and can
// end all of them at once when the engine is gone. A listener that throws is reported and harms nobody else.

import { now } from '../clock.ts';
import type { GenerateRequest, TokenEvent } from '../core/request.ts';
import { PagodaError } from '../errors.ts';
import type { TokenListener } from './engine-client.ts';

interface OpenRequest {
  readonly key: number;
  readonly request: GenerateRequest;
  readonly listener: TokenListener;
}

export class ListenerTable {
  readonly #open = new Map<string, OpenRequest>();
  /** Requests are numbered in the order in which they come. */
  readonly #idOf = new Map<number, string>();
  #nextKey = 0;
  readonly #onListenerError: (error: unknown) => void;

  constructor(onListenerError: (error: unknown) => void) {
    this.#onListenerError = onListenerError;
  }

  get size(): number {
    return this.#open.size;
  }

  ids(): string[] {
    return [...this.#open.keys()];
  }

  /** The id of the open request with this key, or null. */
  idOf(key: number): string | null {
    return this.#idOf.get(key) ?? null;
  }

  /** Returns the key of the first one; those of the others follow it. */
  add(requests: readonly GenerateRequest[], listener: TokenListener): number {
    for (const request of requests) {
      if (this.#open.has(request.id)) {
        throw new PagodaError('bad_request', `A request with the id ${request.id} is already in progress.`, {
          param: 'request_id',
        });
      }
    }
    const firstKey = this.#nextKey;
    for (const request of requests) {
      const key = this.#nextKey++;
      this.#open.set(request.id, { key, request, listener });
      this.#idOf.set(key, request.id);
    }
    return firstKey;
  }

  /** For requests that were added and then refused. */
  forget(requests: readonly GenerateRequest[]): void {
    for (const request of requests) {
      const open = this.#open.get(request.id);
      if (open !== undefined) this.#close(open);
    }
  }

  deliver(events: readonly TokenEvent[]): void {
    for (const event of events) {
      const open = this.#open.get(event.id);
      if (open === undefined) continue;
      if (event.finish !== null) this.#close(open);
      try {
        open.listener(event);
      } catch (error) {
        this.#onListenerError(error);
      }
    }
  }

  #close({ key, request }: OpenRequest): void {
    this.#open.delete(request.id);
    this.#idOf.delete(key);
  }

  /** The engine is gone: one error event for each open request. */
  failAll(message: string): void {
    this.fail(this.ids(), message);
  }

  /** One error event for each of these that is open. */
  fail(ids: readonly string[], message: string): void {
    const open = ids.map((id) => this.#open.get(id)).filter((each) => each !== undefined);
    this.deliver(open.map(({ request }) => errorEvent(request, message)));
  }
}

export function errorEvent(request: GenerateRequest, message: string): TokenEvent {
  return {
    id: request.id,
    tokenIds: [],
    logprobs: request.sampling.logprobs === null ? null : [],
    promptLogprobs: null,
    numCachedTokens: 0,
    finish: {
      reason: 'error',
      stopTokenId: null,
      message,
      timing: {
        arrivalTime: request.arrivalTime,
        firstScheduledTime: null,
        firstTokenTime: null,
        finishTime: now(),
        numPreemptions: 0,
      },
    },
  };
}
