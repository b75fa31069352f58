// Rules about what a step is made of: slots, token budget, prefill among decodes, and queues that have another reason.

import {
  addReplica,
  advise,
  doubleTensorParallel,
  lowerMaxNumSeqs,
  lowerTokenBudget,
  raiseMaxNumSeqs,
  raiseTokenBudget,
} from './proposals.ts';
import type { Rule } from './rule.ts';

export const SCHEDULE_RULES: readonly Rule[] = [
  {
    id: 'R3',
    title: 'All slots are taken while the KV cache has room',
    severity: 'critical',
    when: {
      all: [
        { signal: 'kvUsageHigh', is: '<', than: 0.7 },
        { signal: 'waitingMean', is: '>=', than: 1 },
        { signal: 'slotsFullShare', is: '>=', than: 0.8 },
      ],
    },
    cause: 'max-num-seqs limits how many requests run; memory would take more.',
    changes: [raiseMaxNumSeqs],
    improves: 'ttft',
    links: ['https://github.com/vllm-project/vllm/issues/13508', 'https://github.com/microsoft/vidur'],
  },
  {
    id: 'R4',
    title: 'Prefill-bound: steps are full of prompt tokens',
    severity: 'critical',
    when: {
      all: [
        { signal: 'kvUsageHigh', is: '<', than: 0.9 },
        { signal: 'waitingMean', is: '>=', than: 1 },
        { signal: 'slotsFullShare', is: '<', than: 0.5 },
        { signal: 'preemptionsPerMinute', is: '<=', than: 1, ifKnown: true },
        {
          any: [
            { signal: 'budgetStepShare', is: '>', than: 0.8 },
            // Where nobody counts tokens per step: nearly all that is computed is prompts, and others wait.
            {
              all: [
                { signal: 'prefillTokenShare', is: '>=', than: 0.9 },
                { signal: 'budgetStepShare', is: '>', than: 0.8, ifKnown: true },
              ],
            },
          ],
        },
      ],
    },
    cause:
      "Requests wait because prompts are computed no faster: the step's token budget, or the compute behind it, is the limit. Slots and memory are free.",
    changes: [
      raiseTokenBudget,
      doubleTensorParallel,
      addReplica,
      advise(
        'fp8 weights and activations where the GPU has them',
        'a small loss of accuracy, to be measured on your task',
      ),
    ],
    improves: 'ttft',
    links: ['https://docs.vllm.ai/en/latest/configuration/optimization.html'],
  },
  {
    id: 'R5',
    title: 'Prompts slow down those who are decoding',
    severity: 'warning',
    when: {
      all: [
        { signal: 'itlTailRatio', is: '>=', than: 3 },
        { signal: 'itlTailOfTarget', is: '>', than: 1 },
        { signal: 'itlBodyRatio', is: '<=', than: 1.5, ifKnown: true },
        { signal: 'preemptionsPerMinute', is: '<=', than: 1, ifKnown: true },
        {
          any: [
            { signal: 'prefillTokensPerMixedStep', is: '>=', than: 256 },
            { signal: 'promptP95', is: '>=', than: 1024 },
            { signal: 'promptMean', is: '>=', than: 512 },
          ],
        },
      ],
    },
    cause:
      'A step that computes a large piece of a prompt takes long, and everybody who decodes waits for it: most tokens come quickly, the tail does not.',
    changes: [
      lowerTokenBudget,
      advise(
        '--long-prefill-token-threshold, so that one long prompt takes only part of a step',
        'that prompt takes longer',
      ),
      advise('separate pools for prefill and decode', 'two kinds of replicas, and the transfer of the KV cache'),
    ],
    explainedBy: ['R20'],
    improves: 'itl',
    links: ['https://arxiv.org/abs/2403.02310', 'https://github.com/vllm-project/vllm/pull/10235'],
  },
  {
    id: 'R6',
    title: 'Every token is slow: the model is too slow at this batch size',
    severity: 'warning',
    when: { all: [{ signal: 'itlP25OfTarget', is: '>', than: 0.75 }] },
    cause:
      'Even the quickest quarter of the tokens is near the target, so it is the plain decode step and not interference.',
    changes: [
      doubleTensorParallel,
      lowerMaxNumSeqs,
      advise('quantized weights, fp8 KV cache, speculative decoding', 'accuracy, to be measured on your task'),
    ],
    explainedBy: ['R7', 'R8', 'R9', 'R10'],
    improves: 'itl',
    links: ['https://github.com/microsoft/vidur'],
  },
  {
    id: 'R13',
    title: 'Time to first token is the computing of prompts',
    severity: 'warning',
    when: {
      all: [
        { signal: 'ttftOfTarget', is: '>', than: 1 },
        { signal: 'prefillShare', is: '>', than: 0.5 },
        { signal: 'queueShare', is: '<', than: 0.2 },
      ],
    },
    supports: [{ signal: 'promptP95', is: '>=', than: 4096 }],
    cause: 'Nobody waits in the queue; the prompts are long and take their time.',
    changes: [
      doubleTensorParallel,
      raiseTokenBudget,
      advise('fp8, the prefix cache, or separate replicas for prefill', 'accuracy, or more machines'),
    ],
    explainedBy: ['R4'],
    improves: 'ttft',
    links: ['https://github.com/vllm-project/vllm/issues/8086', 'https://github.com/vllm-project/vllm/issues/6781'],
  },
  {
    id: 'R14',
    title: 'Time to first token is lost in front of the engine',
    severity: 'warning',
    when: {
      all: [
        { signal: 'frontShare', is: '>', than: 0.3 },
        { signal: 'queueShare', is: '<', than: 0.2 },
        { signal: 'ttftMean', is: '>=', than: 0.2 },
      ],
    },
    cause: 'Neither queue nor prefill: tokenizer, chat template, HTTP or image processing.',
    changes: [advise('--api-server-count, or a quicker CPU; caches of the input processor', 'more CPU cores in use')],
    explainedBy: ['R20'],
    improves: 'ttft',
    links: ['https://docs.vllm.ai/en/latest/configuration/optimization.html'],
  },
  {
    id: 'R15',
    title: 'Requests wait although slots, memory and step budget are free',
    severity: 'warning',
    when: {
      any: [
        {
          all: [
            { signal: 'waitingMean', is: '>=', than: 1 },
            { signal: 'numSamples', is: '>=', than: 3 },
            { signal: 'waitingShare', is: '>=', than: 0.8 },
            { signal: 'kvUsageHigh', is: '<', than: 0.3 },
            { signal: 'slotsFullShare', is: '<', than: 0.5 },
            { signal: 'prefillTokenShare', is: '<', than: 0.9 },
            { signal: 'budgetStepShare', is: '<=', than: 0.8, ifKnown: true },
          ],
        },
        {
          all: [
            { signal: 'dpImbalance', is: '>=', than: 0.5 },
            { signal: 'waitingMean', is: '>=', than: 1 },
          ],
        },
      ],
    },
    cause:
      'Something other than memory holds them: grammars being compiled, slots of adapters, the encoder budget, or uneven replicas.',
    changes: [
      advise(
        'look at structured output (grammar compilation), max_loras, the encoder cache and the router',
        'depends on which it is',
      ),
    ],
    improves: 'ttft',
    links: ['https://github.com/vllm-project/vllm/issues/13508'],
  },
];
