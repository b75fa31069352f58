import { closeSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { FromEngine } from '../../../src/engine/engine-messages.ts';
import { MessageReader, MessageWriter } from '../../../src/engine/message-pipe.ts';

/** What a writer puts on the pipe. */
function written(messages: readonly FromEngine[]): Buffer {
  const folder = mkdtempSync(join(tmpdir(), 'pagoda-message-pipe-'));
  const file = join(folder, 'pipe');
  try {
    const fd = openSync(file, 'w');
    const writer = new MessageWriter(fd);
    for (const message of messages) writer.send(message);
    closeSync(fd);
    return readFileSync(file);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

describe('the pipe between engine and front', () => {
  const frame = fc.array(fc.double(), { maxLength: 700 }).map((numbers) => Float64Array.from(numbers));
  const object = fc.record({
    kind: fc.constant('log' as const),
    level: fc.constantFrom('info' as const, 'warn' as const),
    message: fc.string({ maxLength: 3000, unit: 'binary' }),
  });

  it('gives back messages in their order, however the bytes are cut', () => {
    fc.assert(
      fc.property(
        fc.array(fc.oneof(frame, object), { maxLength: 6 }),
        fc.array(fc.integer({ min: 1, max: 4000 }), { minLength: 1, maxLength: 10 }),
        (messages, sizes) => {
          const bytes = written(messages);
          const found: FromEngine[] = [];
          // A frame lives only as long as the call.
          const reader = new MessageReader((message) =>
            found.push(message instanceof Float64Array ? message.slice() : message),
          );
          for (let at = 0, i = 0; at < bytes.length; i++) {
            const size = sizes[i % sizes.length]!;
            reader.take(bytes.subarray(at, at + size));
            at += size;
          }
          expect(found).toEqual(messages);
        },
      ),
      { numRuns: 60 },
    );
  });
});
