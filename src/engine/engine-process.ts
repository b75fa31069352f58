// The engine process of `pagoda serve`: an engine behind messages. Started by ProcessClient with fork(); ends with its parent.
// SIGINT and SIGTERM are the parent's to handle (a terminal sends them to both): it tells us when to close.

import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import type { TokenEvent } from '../core/request.ts';
import { PagodaError } from '../errors.ts';
import type { StepRecord } from '../trace/step-record.ts';
import { createEngine } from './create-engine.ts';
import type { Engine, EngineOutputs } from './engine.ts';
import type { FromEngine, ToEngine } from './engine-messages.ts';
import type { EngineOptions } from './engine-options.ts';
import { MessageWriter } from './message-pipe.ts';
import { encodeStep } from './step-frame.ts';

let engine: Engine | null = null;
/** Events wait for the record of their step, so that both travel in one message. */
let pending: TokenEvent[] = [];
/** What open requests are called in frames. */
const keyOf = new Map<string, number>();

const writer = new MessageWriter();

function send(message: FromEngine): void {
  writer.send(message);
}

function flush(record: StepRecord | null): void {
  if (pending.length === 0 && record === null) return;
  const events = pending;
  pending = [];
  const frame = record === null ? null : encodeStep(events, record, keyOf);
  if (frame !== null) {
    send(frame);
    return;
  }
  for (const event of events) if (event.finish !== null) keyOf.delete(event.id);
  send({ kind: 'step', events, record });
}

const outputs: EngineOutputs = {
  onEvents: (events) => {
    pending.push(...events);
    // Aborts have no record; what a step adds follows in the same turn of the event loop.
    // A promise's reaction is a microtask without the asynchronous context that queueMicrotask makes for each.
    if (pending.length === events.length) void Promise.resolve().then(() => flush(null));
  },
  onStep: (record) => flush(record),
  onLog: (level, message) => send({ kind: 'log', level, message }),
  onDown: (reason) => {
    flush(null);
    send({ kind: 'down', reason });
    // The message must leave first; the parent starts another process.
    setTimeout(() => process.exit(1), 50);
  },
};

/** Names, vocabulary and merges of the file's header are garbage now, tens of megabytes that V8 would keep for long. */
function freeWhatLoadingLeft(): void {
  setFlagsFromString('--expose-gc');
  (runInNewContext('gc') as () => void)();
  setFlagsFromString('--no-expose-gc');
}

async function start(options: EngineOptions): Promise<void> {
  try {
    let lastPercent = -1;
    const created = await createEngine(options, {
      outputs,
      onLoadProgress: (doneBytes, totalBytes) => {
        const percent = Math.floor((doneBytes / Math.max(1, totalBytes)) * 100);
        if (percent === lastPercent) return;
        lastPercent = percent;
        send({ kind: 'progress', doneBytes, totalBytes });
      },
    });
    engine = created.engine;
    freeWhatLoadingLeft();
    engine.start();
    send({ kind: 'ready', info: created.info });
  } catch (error) {
    const code = error instanceof PagodaError ? error.code : 'internal';
    const param = error instanceof PagodaError ? error.param : null;
    const detail = error instanceof PagodaError ? error.message : error instanceof Error ? error.stack : String(error);
    send({ kind: 'failed', code, message: detail ?? 'unknown error', param });
    setTimeout(() => process.exit(1), 50);
  }
}

function handle(message: ToEngine): void {
  switch (message.kind) {
    case 'start':
      void start(message.options);
      return;
    case 'submit':
      try {
        if (engine === null) throw new PagodaError('engine_dead', 'The engine is not ready.');
        engine.submit(message.requests);
        for (const [i, request] of message.requests.entries()) keyOf.set(request.id, message.firstKey + i);
      } catch (error) {
        const reason = error instanceof Error ? error.message : String(error);
        send({ kind: 'refused', ids: message.requests.map((request) => request.id), message: reason });
      }
      return;
    case 'abort':
      engine?.abort(message.ids, message.reason);
      return;
    case 'close':
      void close(message.drainSeconds);
      return;
    default:
      message satisfies never;
  }
}

async function close(drainSeconds: number): Promise<void> {
  await engine?.close(drainSeconds);
  flush(null);
  send({ kind: 'closed' });
  setTimeout(() => process.exit(0), 10);
}

process.on('SIGINT', () => undefined);
process.on('SIGTERM', () => undefined);
process.on('disconnect', () => process.exit(0));
process.on('message', (message) => handle(message as ToEngine));
