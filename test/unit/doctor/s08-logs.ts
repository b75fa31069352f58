// Four logs of vLLM that look alike and have four different reasons; figures made up, consistent with the pool and the lengths.

const two = (value: number): string => String(value).padStart(2, '0');

interface Row {
  readonly prompt: number;
  readonly generation: number;
  readonly running: number;
  readonly waiting: number;
  readonly preemptions?: number;
  readonly kvPercent: number;
  readonly hitPercent: number;
}

function log(pool: string, length: string, times: string, rows: readonly Row[]): string {
  const start = [
    `INFO 11-20 08:59:40 [kv_cache_utils.py:524] GPU KV cache size: ${pool} tokens`,
    `INFO 11-20 08:59:40 [kv_cache_utils.py:527] Maximum concurrency for ${length} tokens per request: ${times}x`,
  ];
  const lines = rows.map(
    (row, i) =>
      `INFO 11-20 09:${two(Math.floor(i / 6))}:${two((i % 6) * 10)} [loggers.py:258] Engine 000: Avg prompt throughput: ${row.prompt.toFixed(1)} tokens/s, ` +
      `Avg generation throughput: ${row.generation.toFixed(1)} tokens/s, Running: ${row.running} reqs, Waiting: ${row.waiting} reqs` +
      `${row.preemptions === undefined ? '' : `, Preemptions: ${row.preemptions}`}, GPU KV cache usage: ${row.kvPercent.toFixed(1)}%, Prefix cache hit rate: ${row.hitPercent.toFixed(1)}%`,
  );
  return `${[...start, ...lines].join('\n')}\n`;
}

const rows = (num: number, row: (i: number) => Row): Row[] => Array.from({ length: num }, (_, i) => row(i));

export const KV_BOUND = log(
  '61,440',
  '8,192',
  '7.50',
  rows(18, (i) => ({
    prompt: i % 3 ? 0 : 2900,
    generation: 610 - i,
    running: 18 + (i % 2),
    waiting: 44 - Math.floor(i / 3),
    preemptions: 1 + (i % 3),
    kvPercent: 96.5 + (i % 3),
    hitPercent: 0,
  })),
);

export const PREFILL_BOUND = log(
  '2,070,000',
  '65,536',
  '31.59',
  rows(5, (i) => ({
    prompt: 23990 + i,
    generation: 18 + 17 * i,
    running: 10 + 6 * i,
    waiting: 90 - 6 * i,
    kvPercent: 19.3 + 11.6 * i,
    hitPercent: 0,
  })),
);

export const SLOT_BOUND = log(
  '900,000',
  '8,192',
  '109.86',
  rows(18, (i) => ({
    prompt: 310 + (i % 7),
    generation: 905 + (i % 5),
    running: 32,
    waiting: 60 + i,
    kvPercent: 21 + (i % 2),
    hitPercent: 0,
  })),
);

export const HEALTHY = log(
  '900,000',
  '8,192',
  '109.86',
  rows(18, (i) => ({
    prompt: 120 + (i % 7),
    generation: 88 + (i % 5),
    running: 3,
    waiting: 0,
    kvPercent: 1.1,
    hitPercent: 61,
  })),
);
