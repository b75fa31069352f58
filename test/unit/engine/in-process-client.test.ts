import { describe, expect, it } from 'vitest';
import type { TokenEvent } from '../../../src/core/request.ts';
import { startInProcess } from '../../../src/engine/in-process-client.ts';
import { expectedTokens, request, scriptedEngine } from './scripted-engine.ts';

describe('the in-process client', () => {
  it('gives each listener its own events, and a listener that throws harms nobody', async () => {
    const logs: string[] = [];
    const client = await startInProcess({ onLog: (_level, message) => logs.push(message) }, async (outputs) =>
      scriptedEngine(outputs),
    );
    const good = request('good', [1, 2, 3]);
    const events: TokenEvent[] = [];
    client.submit([request('bad', [4])], () => {
      throw new Error('listener down');
    });
    await new Promise<void>((resolve) => {
      client.submit([good], (event) => {
        events.push(event);
        if (event.finish) resolve();
      });
    });
    expect(events.flatMap((event) => event.tokenIds)).toEqual(expectedTokens(good));
    expect(logs.some((line) => line.includes('listener down'))).toBe(true);
    await client.close({ drainSeconds: 1 });
    expect(client.isAlive).toBe(false);
  });

  it('refuses in the same call and forgets what was refused', async () => {
    const client = await startInProcess({}, async (outputs) => scriptedEngine(outputs, { maxNumQueuedReqs: 2 }));
    const ignore = () => undefined;
    expect(() => client.submit([request('long', new Array<number>(200).fill(1))], ignore)).toThrow(
      'maximum context length is 128',
    );
    expect(() => client.submit([request('a', [1]), request('b', [1]), request('c', [1])], ignore)).toThrow(
      'The queue is full',
    );
    client.submit([request('a', [1])], ignore);
    expect(() => client.submit([request('a', [1])], ignore)).toThrow('already in progress');
    await client.close({ drainSeconds: 1 });
  });

  it('a failed engine: one error for each open request, one report, no restart', async () => {
    const downs: Array<[string, boolean]> = [];
    const client = await startInProcess(
      { onDown: (reason, restarting) => downs.push([reason, restarting]) },
      async (outputs) =>
        scriptedEngine(
          outputs,
          {},
          {
            onStep: () => {
              throw new Error('broken');
            },
          },
        ),
    );
    const ends = await Promise.all(
      ['a', 'b'].map((id) => new Promise<TokenEvent>((resolve) => client.submit([request(id, [1, 2])], resolve))),
    );
    expect(ends.map((event) => event.finish?.reason)).toEqual(['error', 'error']);
    expect(downs).toEqual([['The engine failed: broken', false]]);
    expect(() => client.submit([request('c', [1])], () => undefined)).toThrow('The engine failed: broken');
    await client.close();
  });
});
