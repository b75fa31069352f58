// Rules about where the time of a step goes, when something measures it: CPU, sampler, collectives, kernel launches.

import { advise } from './proposals.ts';
import type { Rule } from './rule.ts';

export const STEP_RULES: readonly Rule[] = [
  {
    id: 'R7',
    title: 'CPU-bound: the device waits for the scheduler',
    severity: 'warning',
    when: { all: [{ signal: 'overheadShare', is: '>', than: 0.2 }] },
    cause: 'Scheduling, detokenizing and the API server take a large part of each step; one core is at its limit.',
    changes: [
      advise(
        'asynchronous scheduling, --api-server-count, fewer events per stream (stream_interval)',
        'tokens arrive in larger pieces',
      ),
      advise('a quicker CPU', 'cost'),
    ],
    improves: 'itl',
    links: ['https://blog.vllm.ai/2024/09/05/perf-update.html'],
  },
  {
    id: 'R8',
    title: 'The sampler sorts the whole vocabulary',
    severity: 'warning',
    when: { all: [{ signal: 'samplingShare', is: '>', than: 0.1 }] },
    cause:
      "top-k, top-p or penalties over the full vocabulary take a share of every step that grows with the batch. The model's generation_config may have set them without anybody asking.",
    changes: [
      () => ({
        flag: 'generation-config',
        words:
          '--generation-config vllm (drops the sampling defaults of the model), or a sampler that does not sort (FlashInfer)',
        from: null,
        to: 'vllm',
        change: { greedySampler: true },
        sideEffect: "requests that set nothing are sampled by the server's defaults: other texts",
      }),
      advise('drop penalties where they are not needed', 'other texts'),
    ],
    improves: 'itl',
    links: [
      'https://github.com/vllm-project/vllm/pull/11394',
      'https://github.com/vllm-project/vllm/pull/40376',
      'https://github.com/vllm-project/vllm/issues/13247',
    ],
  },
  {
    id: 'R9',
    title: 'GPUs wait for each other',
    severity: 'warning',
    when: {
      all: [
        { signal: 'tensorParallelSize', is: '>=', than: 2 },
        { signal: 'allReduceShare', is: '>', than: 0.25 },
      ],
    },
    cause: 'Collectives over a slow link (PCIe) take more of the step than the division of the work saves.',
    changes: [
      (_signals, { facts }) => {
        const from = facts.tensorParallelSize ?? 2;
        const to = Math.max(1, Math.floor(from / 2));
        return {
          flag: 'tensor-parallel-size',
          words: `--tensor-parallel-size ${to} (now ${from}), and ${from / to} replicas instead`,
          from: String(from),
          to: String(to),
          change: { tensorParallelSize: to, numReplicas: from / to },
          sideEffect: 'each GPU holds more of the weights: less KV cache per replica',
        };
      },
      advise('check that the custom all-reduce is active, or use pipeline parallelism', 'none'),
    ],
    improves: 'itl',
    links: ['https://github.com/vllm-project/vllm/issues/732', 'https://github.com/vllm-project/vllm/issues/16300'],
  },
  {
    id: 'R10',
    title: 'No CUDA graphs: every kernel is launched by the CPU',
    severity: 'warning',
    when: {
      all: [
        {
          any: [
            { signal: 'enforceEager', is: '>=', than: 1 },
            { signal: 'launchShare', is: '>', than: 0.2 },
          ],
        },
        { signal: 'runningMean', is: '<=', than: 256, ifKnown: true },
      ],
    },
    cause:
      'With enforce-eager, or a batch beyond the captured sizes, a decode step has a fixed high price at small batches.',
    changes: [
      () => ({
        flag: 'enforce-eager',
        words: 'drop --enforce-eager; or raise max_cudagraph_capture_size above the batch',
        from: 'true',
        to: 'false',
        change: { enforceEager: false },
        sideEffect: 'a longer start, and memory for the graphs',
      }),
    ],
    improves: 'itl',
    links: ['https://docs.vllm.ai/en/latest/design/cuda_graphs.html'],
  },
];
