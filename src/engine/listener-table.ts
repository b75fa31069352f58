// Who listens to which open request. Delivers every event of a request up to and including its one terminal event, and can
// end all of them at once when the engine is gone. A listener that throws is reported and harms nobody else.

import { now } from '../clock.ts';
import type { GenerateRequest, TokenEvent } from '../core/request.ts';
import { PagodaError } from '../errors.ts';
import type { TokenListener } from './engine-client.ts';

interface OpenRequest {
  readonly request: GenerateRequest;
  readonly listener: TokenListener;
}

export class ListenerTable {
  readonly #open = new Map<string, OpenRequest>();
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

  add(requests: readonly GenerateRequest[], listener: TokenListener): void {
    for (const request of requests) {
      if (this.#open.has(request.id)) {
        throw new PagodaError('bad_request', `A request with the id ${request.id} is already in progress.`, {
          param: 'request_id',
        });
      }
    }
    for (const request of requests) this.#open.set(request.id, { request, listener });
  }

  /** For requests that were added and then refused. */
  forget(requests: readonly GenerateRequest[]): void {
    for (const request of requests) this.#open.delete(request.id);
  }

  deliver(events: readonly TokenEvent[]): void {
    for (const event of events) {
      const open = this.#open.get(event.id);
      if (open === undefined) continue;
      if (event.finish !== null) this.#open.delete(event.id);
      try {
        open.listener(event);
      } catch (error) {
        this.#onListenerError(error);
      }
    }
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
