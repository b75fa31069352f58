// The bar while a load runs: on stderr, and only when somebody looks at a terminal.

import cliProgress from 'cli-progress';
import type { OutputStream } from './cli-io.ts';

export interface RunBar {
  update(numDone: number): void;
  stop(): void;
}

export function runBar(stream: OutputStream, numRequests: number, isDisabled: boolean): RunBar {
  if (stream.isTTY !== true || isDisabled) return { update: () => undefined, stop: () => undefined };
  const bar = new cliProgress.SingleBar({
    format: 'Requests [{bar}] {value}/{total} | {duration_formatted}',
    stream: stream as unknown as NodeJS.WriteStream,
    clearOnComplete: true,
    hideCursor: true,
  });
  bar.start(numRequests, 0);
  return { update: (numDone) => bar.update(numDone), stop: () => bar.stop() };
}
