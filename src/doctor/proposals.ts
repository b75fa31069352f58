// Changes that several rules propose, with the numbers of what was seen filled in.

import type { Proposal, Propose } from './rule.ts';

/** A change that is not a flag, or that no simulator can try. */
export function advise(words: string, sideEffect: string): Propose {
  return () => ({ flag: null, words, from: null, to: null, change: null, sideEffect });
}

function flagChange(
  flag: string,
  values: { readonly from: string | null; readonly to: string },
  rest: Pick<Proposal, 'change' | 'sideEffect'>,
): Proposal {
  const from = values.from === null ? '' : ` (now ${values.from})`;
  return { flag, words: `--${flag} ${values.to}${from}`, ...values, ...rest };
}

const MOST_UTILIZATION = 0.95;

export const raiseMemoryUtilization: Propose = (_signals, { facts, engine }) => {
  const from = facts.gpuMemoryUtilization;
  // Pagoda's share is of what is really free; there is nothing to gain near 1.
  if (engine === 'pagoda' || (from !== null && from >= MOST_UTILIZATION)) return null;
  return flagChange(
    'gpu-memory-utilization',
    { from: from === null ? null : String(from), to: String(MOST_UTILIZATION) },
    {
      change: { gpuMemoryUtilization: MOST_UTILIZATION },
      sideEffect:
        'less room for spikes of activations and for other processes: out of memory if something else uses the GPU',
    },
  );
};

export const halveKvBytes: Propose = (_signals, { facts, engine }) => {
  const from = facts.kvCacheDtype;
  if (from !== null && /fp8|int8/.test(from)) return null;
  const to = engine === 'pagoda' ? 'int8' : 'fp8';
  return flagChange(
    'kv-cache-dtype',
    { from, to },
    {
      change: { kvCacheDtype: to, kvPoolFactor: 2 },
      sideEffect: 'twice the tokens fit; a small loss of accuracy, to be measured on your task',
    },
  );
};

export const addReplica: Propose = () => ({
  flag: null,
  words: 'add a replica behind a router',
  from: null,
  to: null,
  change: { numReplicas: 2 },
  sideEffect: 'the cost of one more',
});

export const doubleTensorParallel: Propose = (_signals, { facts }) => {
  const from = facts.tensorParallelSize;
  const to = 2 * (from ?? 1);
  return flagChange(
    'tensor-parallel-size',
    { from: from === null ? null : String(from), to: String(to) },
    {
      change: { tensorParallelSize: to },
      sideEffect: 'twice the GPUs, and collectives in every layer: only over NVLink',
    },
  );
};

/** Down to what fits, so that nobody is thrown out again. */
export const lowerMaxNumSeqs: Propose = (signals) => {
  const { requestsThatFit, runningMean, maxNumSeqs, poolTokens, promptMean, outputMean } = signals;
  // At their full length where it is known: what they hold on average is less than what they grow to.
  const atFullLength =
    poolTokens === undefined || promptMean === undefined || outputMean === undefined
      ? undefined
      : Math.floor(poolTokens / (promptMean + outputMean));
  const fits = atFullLength ?? requestsThatFit ?? runningMean;
  if (fits === undefined) return null;
  const to = Math.max(1, Math.floor(0.9 * fits));
  if (maxNumSeqs !== undefined && to >= maxNumSeqs) return null;
  return flagChange(
    'max-num-seqs',
    { from: maxNumSeqs === undefined ? null : String(maxNumSeqs), to: String(to) },
    { change: { maxNumSeqs: to }, sideEffect: 'those beyond wait in the queue: longer TTFT, steadier tokens' },
  );
};

/** Largest common numbers of slots below what the KV cache can take. */
const SLOTS = [16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048];

export const raiseMaxNumSeqs: Propose = ({ numSlots, runningMax, waitingMean, kvUsageHigh, requestsThatFit }) => {
  const from = numSlots ?? runningMax;
  if (from === undefined) return null;
  const room = requestsThatFit ?? (kvUsageHigh !== undefined && kvUsageHigh > 0 ? from / kvUsageHigh : 4 * from);
  // What is needed to take in everybody who waits, and no more than what fits with a tenth to spare.
  const wanted = Math.min(0.9 * room, 2 * (from + (waitingMean ?? from)));
  const to = SLOTS.findLast((slots) => slots <= wanted && slots > from) ?? Math.max(from + 1, Math.floor(wanted));
  return flagChange(
    'max-num-seqs',
    { from: String(Math.round(from)), to: String(to) },
    { change: { maxNumSeqs: to }, sideEffect: 'more sequences per step: each token takes longer (watch TPOT)' },
  );
};

export const raiseTokenBudget: Propose = ({ maxNumBatchedTokens }) => {
  const from = maxNumBatchedTokens ?? null;
  const to = from === null ? 8192 : Math.min(16384, 4 * from);
  if (from !== null && to <= from) return null;
  return flagChange(
    'max-num-batched-tokens',
    { from: from === null ? null : String(from), to: String(to) },
    {
      change: { maxNumBatchedTokens: to },
      sideEffect: 'longer steps while prompts are computed: higher ITL p99; more memory for activations',
    },
  );
};

/** The largest budget that keeps the tail within its target, when step time goes with the tokens in it. */
export const lowerTokenBudget: Propose = ({ maxNumBatchedTokens, itlTailOfTarget, prefillTokensPerMixedStep }) => {
  const from = maxNumBatchedTokens ?? prefillTokensPerMixedStep;
  if (from === undefined || from <= 512) return null;
  const wanted = from / Math.max(2, itlTailOfTarget ?? 2);
  const to = [256, 512, 1024, 2048, 4096, 8192].findLast((tokens) => tokens <= wanted) ?? 256;
  return flagChange(
    'max-num-batched-tokens',
    { from: String(Math.round(from)), to: String(to) },
    {
      change: { maxNumBatchedTokens: to },
      sideEffect: 'prompts take more steps: longer TTFT, somewhat less throughput',
    },
  );
};

export const raiseWatermark: Propose = (_signals, { facts, engine }) => {
  const from = facts.watermark;
  if (from !== null && from >= 0.02) return null;
  return flagChange(
    'watermark',
    { from: from === null ? null : String(from), to: '0.02' },
    {
      change: { watermark: 0.02 },
      sideEffect: `requests are admitted later: longer TTFT${engine === 'vllm' ? '; in vLLM only in versions that have the flag' : ''}`,
    },
  );
};

export const lowerMaxModelLen: Propose = ({ maxModelLen, poolTokens, promptP95, outputP99 }) => {
  const seen = promptP95 !== undefined && outputP99 !== undefined ? 1.25 * (promptP95 + outputP99) : null;
  const fits = poolTokens ?? null;
  const to = seen !== null && (fits === null || seen < fits) ? seen : fits;
  if (to === null || (maxModelLen !== undefined && to >= maxModelLen)) return null;
  const rounded = Math.max(16, Math.floor(to / 16) * 16);
  return flagChange(
    'max-model-len',
    { from: maxModelLen === undefined ? null : String(maxModelLen), to: String(rounded) },
    {
      change: { maxModelLen: rounded, rejectTooLong: true },
      sideEffect: 'longer requests are refused at the door with a clear error',
    },
  );
};
