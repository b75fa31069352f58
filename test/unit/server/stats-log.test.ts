import { describe, expect, it } from 'vitest';
import { createLogger } from '../../../src/server/logger.ts';
import { tokenBuckets } from '../../../src/server/metrics.ts';
import { StatsLog } from '../../../src/server/stats-log.ts';

const idle = { numRunning: 0, numWaiting: 0, kvUsage: 0 };

function logTo(lines: string[]) {
  return createLogger({ level: 'info', sink: { write: (line) => lines.push(line) } });
}

describe('the ten-second line', () => {
  it('has vLLM’s words and exact figures', () => {
    const lines: string[] = [];
    const log = new StatsLog(logTo(lines), 100);
    log.addPromptTokens(1234);
    log.addGeneratedTokens(567);
    log.addLookup(100, 25);
    log.line(110, { numRunning: 3, numWaiting: 1, kvUsage: 0.123 });
    expect(lines[0]).toMatch(/^INFO \d\d-\d\d \d\d:\d\d:\d\d \[loggers\] Engine 000: /);
    expect(lines[0]).toContain(
      'Engine 000: Avg prompt throughput: 123.4 tokens/s, Avg generation throughput: 56.7 tokens/s, Running: 3 reqs, ' +
        'Waiting: 1 reqs, GPU KV cache usage: 12.3%, Prefix cache hit rate: 25.0%\n',
    );
  });

  it('loses no token: intervals times throughput are all tokens, and idle intervals say nothing', () => {
    const lines: string[] = [];
    const log = new StatsLog(logTo(lines), 0);
    log.line(10, idle);
    log.addGeneratedTokens(700);
    log.line(20, { ...idle, numRunning: 1 });
    log.addGeneratedTokens(300);
    log.line(30.5, idle);
    log.line(40.5, idle);
    const rates = lines.map((line) => Number(/generation throughput: ([\d.]+)/.exec(line)?.[1]));
    expect(rates).toEqual([70, 28.6]);
  });

  it('counts preemptions and says each', () => {
    const lines: string[] = [];
    const log = new StatsLog(logTo(lines), 0);
    log.preempted({ requestId: 'cmpl-a-0', neededBy: 'cmpl-b-0', numBlocksFreed: 12, numTokensToRecompute: 187 });
    log.line(10, idle);
    expect(lines[0]).toContain(
      'Preempted request cmpl-a-0: no free KV block for request cmpl-b-0. Freed 12 blocks, 187 tokens to recompute.',
    );
    expect(lines[1]).toContain('Waiting: 0 reqs, Preemptions: 1, GPU KV cache usage');
  });
});

describe('log lines', () => {
  it('stay one line whatever the text holds', () => {
    const lines: string[] = [];
    logTo(lines).warn('x', 'a\nINFO fake\u001b[31m\u2028b');
    expect(lines).toHaveLength(1);
    expect(lines[0]).toMatch(/\[x\] a\\nINFO fake\\x1b\[31m\\x2028b\n$/);
  });
});

describe('token buckets', () => {
  it('are 1-2-5 up to the context', () => {
    expect(tokenBuckets(2048)).toEqual([1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000]);
  });
});
