// Rules about the load and about how it was measured: runaway outputs, overload, and benchmarks that deceive.

import { addReplica, advise } from './proposals.ts';
import type { Rule } from './rule.ts';

export const LOAD_RULES: readonly Rule[] = [
  {
    id: 'R17',
    title: 'Runaway generations: many requests end at their token limit',
    severity: 'warning',
    when: {
      any: [
        { signal: 'lengthFinishJump', is: '>=', than: 0.2 },
        {
          all: [
            { signal: 'lengthFinishShare', is: '>=', than: 0.05 },
            { signal: 'lengthFinishShare', is: '<', than: 0.95 },
            { signal: 'outputTailRatio', is: '>=', than: 4 },
          ],
        },
      ],
    },
    cause:
      'Requests do not stop by themselves (a wrong end token, no stop string, a loop) and run to max_tokens: a few take most of the capacity.',
    changes: [
      ({ outputP50, maxTokensMean }) => {
        // Those that end by themselves are around the median; a cap well above it only meets the others.
        if (outputP50 === undefined) return null;
        const to = Math.max(16, Math.ceil((2 * outputP50) / 16) * 16);
        return {
          flag: null,
          words: `a default max_tokens of about ${to}, and stop strings`,
          from: maxTokensMean === undefined ? null : String(Math.round(maxTokensMean)),
          to: String(to),
          change: { maxTokens: to },
          sideEffect: 'long answers that were wanted are cut; let such requests set max_tokens themselves',
        };
      },
      advise("check the model's end tokens (generation_config.json) and the chat template", 'none'),
    ],
    improves: 'e2e',
    links: ['https://github.com/vllm-project/vllm/issues/4180'],
  },
  {
    id: 'R18',
    title: 'Overload: latency keeps rising',
    severity: 'critical',
    when: {
      all: [
        { signal: 'windowSeconds', is: '>=', than: 30 },
        { signal: 'ttftRising', is: '>=', than: 1 },
        { signal: 'concurrencyRising', is: '>=', than: 1 },
        { signal: 'ttftLate', is: '>', than: 2.5 },
      ],
    },
    cause:
      'More requests come than are finished, so the queue grows without end; averages only say how long somebody looked.',
    changes: [
      addReplica,
      ({ requestsPerSecond }) => ({
        flag: null,
        words:
          requestsPerSecond === undefined
            ? 'limit the rate of requests to what is finished'
            : `limit the rate to what is finished, about ${requestsPerSecond.toFixed(2)} requests/s`,
        from: null,
        to: null,
        change: { loadFactor: 0.5 },
        sideEffect: 'requests beyond it are refused or wait elsewhere',
      }),
    ],
    explainedBy: ['R1', 'R3', 'R4', 'R22'],
    improves: 'ttft',
    links: ['https://github.com/vllm-project/guidellm'],
  },
  {
    id: 'R19',
    title: 'The second run met a warm prefix cache',
    severity: 'info',
    when: {
      all: [
        { signal: 'rerunGain', is: '>=', than: 0.1 },
        { signal: 'prefixHitShare', is: '>', than: 0, ifKnown: true },
      ],
    },
    cause:
      'Two runs with the same seed send the same prompts; the second finds them in the cache and looks quicker than the server is.',
    changes: [advise('another --seed for every run, or restart the server in between', 'none')],
    improves: 'none',
    links: ['https://docs.vllm.ai/en/latest/benchmarking/cli.html'],
  },
  {
    id: 'R20',
    title: 'The load client was too slow',
    severity: 'warning',
    when: {
      any: [
        { signal: 'clientBound', is: '>=', than: 1 },
        { signal: 'clientTtftExcess', is: '>=', than: 0.5 },
      ],
    },
    supports: [{ signal: 'clientLagP99', is: '>=', than: 0.005 }],
    cause: 'Latencies at the client are longer than at the server: the client sent late or stamped late.',
    changes: [advise('more client processes (--num-processes), or another machine for the client', 'none')],
    improves: 'none',
    links: ['https://github.com/vllm-project/guidellm/issues/136'],
  },
  {
    id: 'R21',
    title: 'Mean time to first token falls while the load rises',
    severity: 'info',
    when: { all: [{ signal: 'meanTtftFalls', is: '>=', than: 1 }] },
    cause: 'An artefact of reporting: under load only the lucky requests finish in time and enter the mean.',
    changes: [advise('compare percentiles, count failures, and look at queue and prefill apart', 'none')],
    improves: 'none',
    links: ['https://docs.vllm.ai/en/latest/benchmarking/cli.html'],
  },
];
