// A worker process of `bench serve`: runs its share of the load and sends the records up in batches. Started by load-processes.ts
// with fork(); ends with its parent.

import { now } from '../clock.ts';
import type { FromWorker, ToWorker } from './load-messages.ts';
import { runLoad } from './load-run.ts';
import type { RequestRecord } from './request-record.ts';

const BATCH_SECONDS = 0.25;

const stop = new AbortController();
let pending: RequestRecord[] = [];

function send(message: FromWorker): void {
  if (process.connected) process.send?.(message);
}

function flush(): void {
  if (pending.length === 0) return;
  send({ kind: 'records', records: pending });
  pending = [];
}

// A terminal sends its interrupt to the whole group; the parent decides.
process.on('SIGINT', () => undefined);
// Also when the parent is gone.
process.on('disconnect', () => process.exit(0));
process.on('message', (raw) => {
  const message = raw as ToWorker;
  if (message.kind === 'stop') {
    stop.abort();
    return;
  }
  const timer = setInterval(flush, BATCH_SECONDS * 1000);
  runLoad(message.job, { clock: now, signal: stop.signal, onRecord: (record) => pending.push(record) })
    .then(({ lag }) => {
      flush();
      send({ kind: 'done', lag });
    })
    .catch((error: unknown) =>
      send({ kind: 'failed', message: error instanceof Error ? error.message : String(error) }),
    )
    .finally(() => {
      clearInterval(timer);
      // Leaves once the messages have left.
      process.disconnect();
    });
});

send({ kind: 'ready' });
