import { describe, expect, it } from 'vitest';
import type { EngineInfo } from '../../../src/engine/engine-client.ts';
import { PendingListeners } from '../../../src/engine/pending-listeners.ts';

describe('PendingListeners', () => {
  it('keeps what happens before anybody listens, in its order, and passes on what comes later', () => {
    const heard: string[] = [];
    const pending = new PendingListeners();
    pending.onLog('warn', 'first');
    pending.onLoadProgress(1, 2);
    pending.onReady({ device: 'cpu' } as EngineInfo);
    expect(heard).toEqual([]);
    pending.bind({
      onLog: (level, message) => heard.push(`${level} ${message}`),
      onLoadProgress: (done, total) => heard.push(`${done} of ${total}`),
      onReady: (info) => heard.push(`ready ${info.device}`),
      onDown: (reason, restarting) => heard.push(`down ${reason} ${restarting}`),
    });
    expect(heard).toEqual(['warn first', '1 of 2', 'ready cpu']);
    pending.onDown('killed', true);
    expect(heard.at(-1)).toBe('down killed true');
    expect(heard).toHaveLength(4);
  });
});
