// The engine in this process: for the LLM class, the command line and tests. Same contract as the child process, except that
// an engine that failed stays down.

import type { Checkpoint } from '../checkpoint/checkpoint.ts';
import type { GenerateRequest } from '../core/request.ts';
import { createEngine } from './create-engine.ts';
import type { Engine, EngineOutputs } from './engine.ts';
import type { EngineClient, EngineInfo, EngineListeners, TokenListener } from './engine-client.ts';
import type { EngineOptions } from './engine-options.ts';
import { ListenerTable } from './listener-table.ts';

const DEFAULT_DRAIN_SECONDS = 30;

export interface InProcessExtras {
  /** An open checkpoint to read the weights from; it stays the caller's. */
  readonly checkpoint?: Checkpoint;
}

/** Loads the model and starts the engine. Throws what createEngine throws. */
export async function createInProcessClient(
  options: EngineOptions,
  listeners: EngineListeners = {},
  extras: InProcessExtras = {},
): Promise<EngineClient> {
  return startInProcess(listeners, (outputs) =>
    createEngine(options, {
      outputs,
      ...extras,
      ...(listeners.onLoadProgress === undefined ? {} : { onLoadProgress: listeners.onLoadProgress }),
    }),
  );
}

/** The same around any engine, e.g. one with a scripted device. */
export async function startInProcess(
  listeners: EngineListeners,
  create: (outputs: EngineOutputs) => Promise<{ engine: Engine; info: EngineInfo }>,
): Promise<EngineClient> {
  const table = new ListenerTable((error) => listeners.onLog?.('error', `A listener failed: ${String(error)}`));
  const { engine, info } = await create({
    onEvents: (events) => table.deliver(events),
    onStep: (record) => listeners.onStep?.(record),
    onLog: (level, message) => listeners.onLog?.(level, message),
    onDown: (reason) => {
      table.failAll(reason);
      listeners.onDown?.(reason, false);
    },
  });
  engine.start();
  listeners.onReady?.(info);
  return new InProcessClient(engine, info, table);
}

class InProcessClient implements EngineClient {
  readonly info: EngineInfo;
  readonly #engine: Engine;
  readonly #table: ListenerTable;
  #closing: Promise<void> | null = null;

  constructor(engine: Engine, info: EngineInfo, table: ListenerTable) {
    this.#engine = engine;
    this.info = info;
    this.#table = table;
  }

  get isAlive(): boolean {
    return this.#engine.isAlive;
  }

  submit(requests: readonly GenerateRequest[], listener: TokenListener): void {
    this.#table.add(requests, listener);
    try {
      this.#engine.submit(requests);
    } catch (error) {
      this.#table.forget(requests);
      throw error;
    }
  }

  abort(ids: readonly string[], reason: 'abort' | 'stop'): void {
    this.#engine.abort(ids, reason);
  }

  close(options: { drainSeconds?: number } = {}): Promise<void> {
    this.#closing ??= this.#engine.close(options.drainSeconds ?? DEFAULT_DRAIN_SECONDS);
    return this.#closing;
  }
}
