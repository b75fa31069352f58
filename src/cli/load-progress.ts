// The bar while weights are loaded: on stderr, and only when somebody looks at a terminal.

import cliProgress from 'cli-progress';
import type { OutputStream } from './cli-io.ts';

export interface LoadBar {
  update(doneBytes: number, totalBytes: number): void;
  /** Removes the bar; it can begin again. */
  stop(): void;
}

export function loadBar(stream: OutputStream): LoadBar {
  if (stream.isTTY !== true) return { update: () => undefined, stop: () => undefined };
  let bar: cliProgress.SingleBar | null = null;
  return {
    update: (doneBytes, totalBytes) => {
      const megabytes = (bytes: number) => Math.round(bytes / 1e6);
      if (bar === null) {
        bar = new cliProgress.SingleBar({
          format: 'Loading weights [{bar}] {percentage}% | {value}/{total} MB',
          stream: stream as unknown as NodeJS.WriteStream,
          clearOnComplete: true,
          hideCursor: true,
        });
        bar.start(megabytes(totalBytes), 0);
      }
      bar.update(megabytes(doneBytes));
    },
    stop: () => {
      bar?.stop();
      bar = null;
    },
  };
}
