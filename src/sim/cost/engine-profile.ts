// What an engine adds to the device's time: per step, per sequence of the step, per logit that a sampler sorts, and per
// request before its first token. Three free constants; calibrate.ts fits them to measurements.

export interface EngineProfile {
  readonly name: string;
  readonly stepSeconds: number;
  readonly sequenceSeconds: number;
  readonly logitSeconds: number;
  readonly requestSeconds: number;
}

/**
 * vllm: V1 with asynchronous scheduling, greedy or fused sampling; fitted to every second of 70 InferenceX runs of 2025-10 by
 * `npm run validate`, which prints the error on the others. vllm-sync: V1 before that. vllm-sampling: V1 sorting all logits for
 * top-k and top-p in PyTorch, as a model's generation_config may demand unasked.
 */
export const ENGINE_PROFILES = {
  vllm: {
    name: 'vllm',
    stepSeconds: 0.36e-3,
    sequenceSeconds: 13e-6,
    logitSeconds: 0,
    requestSeconds: 13e-3,
  },
  'vllm-sync': {
    name: 'vllm-sync',
    stepSeconds: 1e-3,
    sequenceSeconds: 30e-6,
    logitSeconds: 0,
    requestSeconds: 13e-3,
  },
  'vllm-sampling': {
    name: 'vllm-sampling',
    stepSeconds: 1e-3,
    sequenceSeconds: 30e-6,
    logitSeconds: 0.1e-9,
    requestSeconds: 13e-3,
  },
} as const satisfies Readonly<Record<string, EngineProfile>>;

export type EngineProfileName = keyof typeof ENGINE_PROFILES;
