import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import type { TokenEvent } from '../../../src/core/request.ts';
import type { EngineInfo, EngineListeners } from '../../../src/engine/engine-client.ts';
import { DEFAULT_ENGINE_OPTIONS } from '../../../src/engine/engine-options.ts';
import { createProcessClient, type ProcessClient } from '../../../src/engine/process-client.ts';
import { request } from './scripted-engine.ts';

const entry = join(import.meta.dirname, 'fake-engine-process.mjs');
const started: ProcessClient[] = [];

async function start(listeners: EngineListeners = {}, options = {}): Promise<ProcessClient> {
  const client = await createProcessClient({ ...DEFAULT_ENGINE_OPTIONS, ...options }, listeners, { entry });
  started.push(client);
  return client;
}

/** Every event of one request, when it has ended. */
function run(client: ProcessClient, id: string, promptTokenIds: number[], seed = 0n): Promise<TokenEvent[]> {
  const events: TokenEvent[] = [];
  return new Promise((resolve) => {
    client.submit([request(id, promptTokenIds, { seed })], (event) => {
      events.push(event);
      if (event.finish !== null) resolve(events);
    });
  });
}

/** A promise for a listener's call. */
function signal<T>() {
  let resolve: (value: T) => void = () => undefined;
  const promise = new Promise<T>((done) => {
    resolve = done;
  });
  return { promise, resolve };
}

const isRunning = (pid: number): boolean => {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
};

afterEach(async () => {
  await Promise.all(started.splice(0).map((client) => client.close({ drainSeconds: 0 })));
});

describe('ProcessClient', () => {
  it('carries requests and events, 64-bit seeds included, and passes logs and records on', async () => {
    const logs: string[] = [];
    let numRecords = 0;
    const client = await start({ onLog: (_level, message) => logs.push(message), onStep: () => numRecords++ });
    const events = await run(client, 'a', [1, 2], 2n ** 64n - 1n);
    expect(events.flatMap((event) => event.tokenIds)).toEqual([1, 2, 615]);
    expect([logs, numRecords, client.info.maxModelLen, client.isAlive]).toEqual([['loading'], 1, 32, true]);
  });

  it('refuses in the same call what can never fit, and a full queue', async () => {
    const client = await start({}, { maxNumQueuedReqs: 2 });
    const ignore = () => undefined;
    expect(() => client.submit([request('a', new Array<number>(32).fill(1))], ignore)).toThrow(
      'maximum context length is 32 tokens',
    );
    expect(() => client.submit([request('a', [])], ignore)).toThrow('The prompt is empty');
    client.submit([request('b', [668]), request('c', [668])], ignore);
    expect(() => client.submit([request('d', [1])], ignore)).toThrow('The queue is full: 2 of at most 2');
  });

  it.each([
    ['kill -9', 666, 'The engine process ended by signal SIGKILL.'],
    ['a failed step', 667, 'The engine failed: as told'],
  ])('%s: one error for each open request, then a new engine', async (_name, token, reason) => {
    const down = signal<[string, boolean]>();
    const ready = [signal<EngineInfo>(), signal<EngineInfo>()];
    let numReady = 0;
    const errors: string[] = [];
    const client = await start({
      onLog: (level, message) => level === 'error' && errors.push(message),
      onDown: (why, restarting) => down.resolve([why, restarting]),
      onReady: (info) => ready[numReady++]?.resolve(info),
    });
    const waiting = run(client, 'waiting', [668]);
    const deadly = run(client, 'deadly', [token]);
    for (const events of await Promise.all([waiting, deadly])) {
      expect(events).toHaveLength(1);
      expect(events[0]!.finish).toMatchObject({ reason: 'error', message: reason });
    }
    expect(await down.promise).toEqual([reason, true]);
    expect(client.isAlive).toBe(false);
    expect(() => client.submit([request('early', [1])], () => undefined)).toThrow('It is being restarted.');
    await ready[1]!.promise;
    expect((await run(client, 'again', [5])).flatMap((event) => event.tokenIds)).toEqual([5, 0]);
    // That the new one ends when it is told to is no failure.
    await client.close();
    expect(errors).toEqual([]);
  });

  it('throws the error with which the engine could not start', async () => {
    await expect(start({}, { model: 'unstartable' })).rejects.toMatchObject({
      code: 'bad_model_file',
      message: 'no such model',
    });
  });

  it('close ends the child and what is open; nothing is accepted afterwards', async () => {
    const client = await start();
    const pid = client.pid!;
    const pending = run(client, 'a', [668]);
    await client.close({ drainSeconds: 0 });
    expect((await pending)[0]!.finish!.reason).toBe('abort');
    expect(isRunning(pid)).toBe(false);
    expect(() => client.submit([request('b', [1])], () => undefined)).toThrow('shutting down');
    await client.close();
  });

  it('gives up a start when told', async () => {
    const options = { ...DEFAULT_ENGINE_OPTIONS, model: 'slow' };
    const controller = new AbortController();
    const starting = createProcessClient(options, {}, { entry, signal: controller.signal });
    setTimeout(() => controller.abort(), 50);
    await expect(starting).rejects.toMatchObject({ code: 'engine_dead' });
    await expect(createProcessClient(options, {}, { entry, signal: controller.signal })).rejects.toMatchObject({
      code: 'aborted',
    });
  });
});
