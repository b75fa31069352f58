// `pagoda serve`: the front process. Starts the engine process, loads the front meanwhile, prints where it answers, and drains
// when it is told to end; a second signal ends it at once.

import type { ResolvedOptions } from '../config/options.ts';
import { engineOptions } from '../config.ts';
import { PendingListeners } from '../engine/pending-listeners.ts';
import { createProcessClient } from '../engine/process-client.ts';
import { CliExit, type CliIo } from './cli-io.ts';
import type { ServeFront } from './serve-front.ts';

const DRAIN_SECONDS = 30;

export async function serve(config: ResolvedOptions, io: CliIo): Promise<void> {
  const interrupted = interruption(io);
  const starting = new AbortController();
  void interrupted.first.then(() => starting.abort());
  const listeners = new PendingListeners();
  const engineStart = createProcessClient(engineOptions(config), listeners, { signal: starting.signal }).catch(
    (error) => {
      throw interrupted.count > 0 ? new CliExit(130) : error;
    },
  );
  // The heavy modules come in while the engine loads.
  const frontStart = import('./serve-front.ts').then(({ createFront }) => createFront(config, io));
  let front: ServeFront | null = null;
  try {
    // The engine may be the first to see that the model cannot be used.
    front = await Promise.race([frontStart, engineStart.then(() => frontStart)]);
    listeners.bind(front.listeners);
    const engine = await engineStart;
    const server = await front.open(engine);
    await interrupted.first;
    front.logger.info(
      'server',
      `Shutting down: waiting up to ${DRAIN_SECONDS} seconds for open requests; a second signal ends at once.`,
    );
    await Promise.race([server.close(DRAIN_SECONDS), interrupted.second]);
  } finally {
    starting.abort();
    const engine = await engineStart.catch(() => null);
    await engine?.close({ drainSeconds: 0 });
    const closed = frontStart.then(
      (each) => each.close(),
      () => undefined,
    );
    // A front that still loads when the model is refused is not waited for.
    if (front !== null) await closed;
    interrupted.forget();
  }
  if (interrupted.count > 1) throw new CliExit(1);
}

interface Interruption {
  readonly first: Promise<void>;
  readonly second: Promise<void>;
  readonly count: number;
  forget(): void;
}

function interruption(io: CliIo): Interruption {
  const waiting: Array<() => void> = [];
  const first = new Promise<void>((resolve) => waiting.push(resolve));
  const second = new Promise<void>((resolve) => waiting.push(resolve));
  let count = 0;
  const forget = io.onInterrupt(() => waiting[count++]?.());
  return {
    first,
    second,
    get count() {
      return count;
    },
    forget,
  };
}
