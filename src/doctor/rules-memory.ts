// Rules about the KV cache: too small, thrashing, evicted prefixes, requests that never fit, a start that ran out of memory.

import {
  addReplica,
  advise,
  doubleTensorParallel,
  halveKvBytes,
  lowerMaxModelLen,
  lowerMaxNumSeqs,
  raiseMemoryUtilization,
  raiseWatermark,
} from './proposals.ts';
import type { Rule } from './rule.ts';

export const MEMORY_RULES: readonly Rule[] = [
  {
    id: 'R1',
    title: 'KV cache too small for the load',
    severity: 'critical',
    when: {
      all: [
        {
          any: [
            {
              all: [
                { signal: 'kvUsageHigh', is: '>=', than: 0.95 },
                { signal: 'kvUsageMean', is: '>=', than: 0.8 },
              ],
            },
            // A watermark or a large next prompt leaves blocks free that nobody can use.
            { signal: 'kvBoundStepShare', is: '>=', than: 0.5 },
          ],
        },
        { signal: 'waitingMean', is: '>=', than: 0.5 },
        { signal: 'slotsFullShare', is: '<', than: 0.5, ifKnown: true },
        { signal: 'queueShare', is: '>', than: 0.5, ifKnown: true },
      ],
    },
    supports: [{ signal: 'preemptionsPerMinute', is: '>', than: 1 }],
    cause:
      'The KV cache is full: requests wait for blocks although slots are free, and running ones are preempted when they grow. More slots would make it worse.',
    changes: [halveKvBytes, raiseMemoryUtilization, addReplica, doubleTensorParallel, lowerMaxModelLen],
    explainedBy: ['R22'],
    improves: 'ttft',
    links: ['https://docs.vllm.ai/en/latest/configuration/optimization.html'],
  },
  {
    id: 'R2',
    title: 'Preemptions: the same tokens are computed again and again',
    severity: 'warning',
    when: {
      all: [
        { signal: 'preemptionsPerMinute', is: '>', than: 1 },
        { signal: 'recomputedShare', is: '>', than: 0.1 },
      ],
    },
    supports: [
      { signal: 'kvUsageHigh', is: '>=', than: 0.9 },
      { signal: 'itlTailRatio', is: '>=', than: 3 },
    ],
    cause:
      'Requests are admitted up to the last block and thrown out again when they grow; what they had is computed a second time. The gap shows in the time between tokens, not in the queue.',
    changes: [raiseWatermark, lowerMaxNumSeqs, halveKvBytes],
    explainedBy: ['R22'],
    improves: 'itl',
    links: ['https://github.com/vllm-project/vllm/pull/44594', 'https://github.com/vllm-project/vllm/pull/37307'],
  },
  {
    id: 'R11',
    title: 'Cached prefixes are evicted',
    severity: 'warning',
    when: {
      all: [
        { signal: 'prefixHitDrop', is: '>=', than: 0.1 },
        { signal: 'kvUsageHigh', is: '>=', than: 0.95 },
      ],
    },
    cause:
      'The hit rate fell while the KV cache was full: running requests take the blocks of prefixes that would be needed again.',
    changes: [
      halveKvBytes,
      raiseMemoryUtilization,
      advise('route requests with the same prefix to the same replica', 'uneven load when one prefix dominates'),
      advise('keep the order of the parts of a prompt stable', 'none'),
    ],
    improves: 'ttft',
    links: ['https://github.com/kvcache-ai/Mooncake'],
  },
  {
    id: 'R12',
    title: 'Shared prompts, and yet no hits in the prefix cache',
    severity: 'warning',
    when: {
      all: [
        { signal: 'sharedPrefixShare', is: '>=', than: 0.2 },
        { signal: 'prefixHitShare', is: '<', than: 0.05 },
      ],
    },
    cause:
      'Much of the prompts is the same, but they differ in their first block (a date, an id, a salt, an adapter name), and a prefix ends at the first difference.',
    changes: [
      () => ({
        flag: null,
        words: 'put the static text first and what changes last; prefixes count in whole blocks of 16 tokens',
        from: null,
        to: null,
        change: { sharedPrefixFirst: true, enablePrefixCaching: true },
        sideEffect: 'none',
      }),
    ],
    improves: 'ttft',
    links: ['https://docs.vllm.ai/en/latest/design/prefix_caching.html'],
  },
  {
    id: 'R16',
    title: 'The KV cache cannot hold one request of full length',
    severity: 'critical',
    when: {
      any: [
        { signal: 'numBootErrors', is: '>=', than: 1 },
        { signal: 'fullLengthConcurrency', is: '<', than: 1 },
      ],
    },
    cause:
      'What is left for the KV cache after weights and activations is too small for max-model-len, or another process holds the memory.',
    changes: [
      lowerMaxModelLen,
      raiseMemoryUtilization,
      halveKvBytes,
      advise('look for other processes on the GPU (nvidia-smi)', 'none'),
    ],
    explainedBy: ['R22'],
    improves: 'none',
    links: ['https://github.com/vllm-project/vllm/issues/10517', 'https://github.com/vllm-project/vllm/issues/7028'],
  },
  {
    id: 'R22',
    title: 'Requests that can never fit hold up the others',
    severity: 'critical',
    when: {
      any: [
        { signal: 'numNeverFit', is: '>=', than: 1 },
        {
          all: [
            { signal: 'preemptionsPerMinute', is: '>', than: 1 },
            { signal: 'generationTokensPerSecond', is: '<', than: 0.5 },
            { signal: 'runningMax', is: '>=', than: 1 },
          ],
        },
      ],
    },
    cause:
      'A prompt with its output is larger than the whole KV cache: it is admitted, preempted and admitted again without getting anywhere.',
    changes: [
      halveKvBytes,
      raiseMemoryUtilization,
      lowerMaxModelLen,
      () => ({
        flag: null,
        words: 'refuse what can never fit at the door (prompt + max_tokens against the pool)',
        from: null,
        to: null,
        change: { rejectTooLong: true },
        sideEffect: 'such requests get an error at once, instead of never',
      }),
    ],
    improves: 'ttft',
    links: ['https://github.com/vllm-project/vllm/issues/25538'],
  },
];
