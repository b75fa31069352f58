// Published workloads as distributions, for when the trace itself is not at hand. Figures are fits to public data; the source of
// each stands beside it. Rates are the recorded ones and can be overridden.

import type { ArrivalSpec } from './arrivals.ts';
import type { LengthShape, LengthSpec } from './lengths.ts';
import { MOST_TOKENS } from './lengths.ts';

export interface WorkloadPreset {
  readonly about: string;
  /** As recorded; null where the source has no times. */
  readonly arrivals: ArrivalSpec | null;
  readonly prompt: LengthSpec;
  readonly output: LengthSpec;
  /** Spearman's rho. */
  readonly rankCorrelation: number;
}

const lengths = (shape: LengthShape, min = 1, max = MOST_TOKENS): LengthSpec => ({ shape, min, max });

const quantiles = (...knots: number[]): LengthSpec => lengths({ kind: 'quantiles', knots });

export const WORKLOAD_PRESETS = {
  // AzurePublicDataset, AzureLLMInferenceTrace_conv (2023, CC-BY), 19,366 requests: quantiles in steps of 5 %. The two rates of the
  // arrivals reproduce its index of dispersion, 1.4, 4.0 and 20.6 in windows of 1, 10 and 60 s.
  'azure-conv': {
    about:
      'Azure, conversations, November 2023: prompts of about 1,000 tokens, two kinds of answers (90 and 410 tokens)',
    arrivals: {
      kind: 'on-off',
      onRequestsPerSecond: 6.94,
      offRequestsPerSecond: 4.12,
      meanOnSeconds: 400,
      meanOffSeconds: 400,
    },
    prompt: quantiles(
      ...[2, 181, 207, 372, 387, 396, 403, 414, 703, 984, 1020, 1045, 1071, 1097, 1130, 1189, 1315, 1876, 2734, 4083],
      14050,
    ),
    output: quantiles(
      ...[7, 41, 54, 67, 77, 85, 91, 96, 103, 113, 129, 151, 177, 217, 384, 395, 400, 411, 424, 451, 1000],
    ),
    rankCorrelation: 0.07,
  },
  // AzureLLMInferenceTrace_code (2023), 8,819 requests; index of dispersion 13, 71 and 161.
  'azure-code': {
    about: 'Azure, code completion, November 2023: prompts of about 1,500 tokens, answers of 13, in bursts',
    arrivals: {
      kind: 'on-off',
      onRequestsPerSecond: 12.2,
      offRequestsPerSecond: 0,
      meanOnSeconds: 12.7,
      meanOffSeconds: 47.4,
    },
    prompt: quantiles(
      ...[3, 75, 147, 232, 386, 578, 770, 938, 1075, 1261, 1469, 1690, 1909, 2164, 2433, 2745, 3192, 3919, 5186, 7302],
      7437,
    ),
    output: quantiles(...[6, 6, 7, 7, 8, 9, 9, 10, 11, 12, 13, 14, 16, 18, 20, 24, 29, 39, 55, 90, 1899]),
    rankCorrelation: 0,
  },
  // Mooncake's conversation trace (2024), 12,031 requests, without its shared blocks.
  'mooncake-conversation': {
    about: 'Mooncake, conversations with long histories: prompts of about 7,000 tokens, answers of 350',
    arrivals: { kind: 'poisson', requestsPerSecond: 3.4 },
    prompt: quantiles(
      ...[891, 901, 964, 1261, 1662, 2307, 3263, 4250, 4993, 5871, 6909, 8186, 9570, 11239, 13196, 15366, 17869, 21467],
      ...[27367, 39549, 126195],
    ),
    output: quantiles(
      ...[1, 10, 24, 46, 100, 157, 213, 256, 291, 323, 350, 375, 399, 423, 447, 472, 504, 543, 597, 698, 2000],
    ),
    rankCorrelation: 0.07,
  },
  // PagedAttention (Kwon et al. 2023), section 6.1: means 161.3 and 338.0, the shapes of vLLM's benchmark.
  sharegpt: {
    about: 'ShareGPT as in the PagedAttention paper: 161 prompt and 338 output tokens on average',
    arrivals: null,
    prompt: lengths({ kind: 'lognormal', mu: Math.log(161.31) - 0.605, sigma: 1.1 }, 4, 1024),
    output: lengths({ kind: 'lognormal', mu: Math.log(337.99) - 0.405, sigma: 0.9 }, 4, 1024),
    rankCorrelation: 0,
  },
  // Sarathi-Serve (Agrawal et al. 2024), table 2: medians 1,730 and 415, 90th percentiles 5,696 and 834.
  'openchat-sharegpt4': {
    about: 'openchat_sharegpt4 as in the Sarathi-Serve paper: chats with a long history',
    arrivals: null,
    prompt: lengths({ kind: 'lognormal', mu: 7.456, sigma: 0.93 }, 8, 8192),
    output: lengths({ kind: 'lognormal', mu: 6.028, sigma: 0.545 }, 4, 8192),
    rankCorrelation: 0,
  },
  // The same table: medians 7,059 and 208, 90th percentiles 12,985 and 371.
  'arxiv-summarization': {
    about: 'arxiv_summarization as in the Sarathi-Serve paper: long prompts, short answers',
    arrivals: null,
    prompt: lengths({ kind: 'lognormal', mu: 8.862, sigma: 0.476 }, 8, 16384),
    output: lengths({ kind: 'lognormal', mu: 5.338, sigma: 0.452 }, 4, 16384),
    rankCorrelation: 0,
  },
} satisfies Readonly<Record<string, WorkloadPreset>>;

export type WorkloadPresetName = keyof typeof WORKLOAD_PRESETS;
