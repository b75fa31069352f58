// Sampling, defined to the last bit: every device must choose the same token from the same float32 logits. With a filter all arithmetic is
// IEEE double without fused operations, exponentials and sums are those of exact-exp.ts; without one the choice is that of
// choose-in-chunks.ts. Random numbers are those of rng.ts. The order is vLLM's: allowed tokens, bad words, min tokens, bias, repetition, frequency, presence, temperature, min_p,
// top_k, top_p, choice. A token is "kept" while its value x is above -infinity.

import type { SamplingParams } from '../../core/sampling-params.ts';
import { randomUniform } from '../../rng.ts';
import { chooseInChunks } from './choose-in-chunks.ts';
import { chunkedSum, exactExp, laneSum, SUM_CHUNK } from './exact-exp.ts';
import type { TokenHistory } from './token-history.ts';

/** Below this temperature the best token is taken and the filters do not apply. */
export const GREEDY_TEMPERATURE = 1e-5;
/** Positive temperatures below this one count as this one. */
export const MIN_TEMPERATURE = 0.01;
const MAX_BIAS = 100;

/** Working memory of one vocabulary, reused from row to row. */
export class SamplerScratch {
  /** Adjusted logits. */
  readonly x: Float64Array;
  /** The same in float32. */
  readonly rounded: Float32Array;
  /** exp((x - max) / temperature); 0 where not kept. */
  readonly weights: Float64Array;

  constructor(vocabSize: number) {
    this.x = new Float64Array(vocabSize);
    this.rounded = new Float32Array(vocabSize);
    this.weights = new Float64Array(vocabSize);
  }
}

/** Chooses the next token. `logits` is one row of the vocabulary, free of NaN and +infinity; it is not changed. */
export function sampleToken(
  logits: Float32Array,
  sampling: SamplingParams,
  history: TokenHistory,
  scratch: SamplerScratch,
): number {
  adjustLogits(logits, sampling, history, scratch.x);
  const best = argmax(scratch.x);
  if (best < 0) return lastResort(logits, sampling);
  if (sampling.temperature < GREEDY_TEMPERATURE) return best;
  const u = randomUniform(sampling.seed, history.numOutputs);
  if (!hasFilter(sampling, logits.length)) {
    scratch.rounded.set(scratch.x);
    return chooseInChunks(scratch.rounded, Math.max(sampling.temperature, MIN_TEMPERATURE), u);
  }
  filter(scratch, sampling, scratch.x[best]);
  return choose(scratch.weights, u);
}

/** x = logits with masks, biases and penalties applied. Tokens that nothing touches keep their logit exactly. */
export function adjustLogits(
  logits: Float32Array,
  sampling: SamplingParams,
  history: TokenHistory,
  x: Float64Array,
): void {
  if (sampling.allowedTokenIds) {
    x.fill(Number.NEGATIVE_INFINITY);
    for (const token of sampling.allowedTokenIds) x[token] = logits[token];
  } else {
    x.set(logits);
  }
  for (const word of sampling.badWords) {
    if (word.length > 0 && history.outputEndsWith(word.slice(0, -1)))
      x[word[word.length - 1]] = Number.NEGATIVE_INFINITY;
  }
  if (history.numOutputs < sampling.minTokens) {
    for (const token of sampling.eosTokenIds) x[token] = Number.NEGATIVE_INFINITY;
    for (const token of sampling.stopTokenIds) x[token] = Number.NEGATIVE_INFINITY;
  }
  for (const [token, bias] of sampling.logitBias) x[token] += Math.min(MAX_BIAS, Math.max(-MAX_BIAS, bias));
  const { repetitionPenalty, frequencyPenalty, presencePenalty } = sampling;
  for (const { token, numOutputs } of history.occurrences()) {
    if (repetitionPenalty !== 1) x[token] = x[token] > 0 ? x[token] / repetitionPenalty : x[token] * repetitionPenalty;
    if (numOutputs > 0) x[token] = x[token] - frequencyPenalty * numOutputs - presencePenalty;
  }
}

/** When masks leave no token at all: the best raw logit among the allowed tokens; min tokens and bad words give way. */
function lastResort(logits: Float32Array, sampling: SamplingParams): number {
  let best = -1;
  const consider = (token: number) => {
    if (best < 0 || logits[token] > logits[best] || (logits[token] === logits[best] && token < best)) best = token;
  };
  if (sampling.allowedTokenIds && sampling.allowedTokenIds.length > 0) sampling.allowedTokenIds.forEach(consider);
  else for (let token = 0; token < logits.length; token++) consider(token);
  return best;
}

function hasFilter({ minP, topK, topP }: SamplingParams, vocabSize: number): boolean {
  return minP > 0 || (topK > 0 && topK < vocabSize) || topP < 1;
}

/** Applies temperature, min_p, top_k and top_p: on return `weights` holds the unnormalised probabilities of what is kept. */
export function filter(
  { x, weights }: Pick<SamplerScratch, 'x' | 'weights'>,
  sampling: SamplingParams,
  max: number,
): void {
  const temperature = Math.max(sampling.temperature, MIN_TEMPERATURE);
  const drop = (token: number) => {
    x[token] = Number.NEGATIVE_INFINITY;
    weights[token] = 0;
  };
  for (let token = 0; token < x.length; token++) weights[token] = exactExp((x[token] - max) / temperature);
  if (sampling.minP > 0) {
    // The best token has weight 1, so it always stays.
    for (let token = 0; token < x.length; token++) if (weights[token] < sampling.minP) drop(token);
  }
  if (sampling.topK > 0 && sampling.topK < x.length) {
    const limit = kthLargest(x, sampling.topK);
    for (let token = 0; token < x.length; token++) if (x[token] < limit) drop(token);
  }
  if (sampling.topP < 1) {
    const end = nucleusEnd({ x, weights }, sampling.topP);
    for (let token = 0; token < x.length; token++)
      if (x[token] < end.x || (x[token] === end.x && token < end.token)) drop(token);
  }
}

/** Adding it to a weight and taking it away again leaves a multiple of 2^-34: 1.5 * 2^18. */
const ROUND_WEIGHT = 393216;

/**
 * The last token that top_p keeps, walking from the best down, of equal values the higher id first: a token is kept while the
 * weights before it sum to less than topP * (sum of all weights). Weights count as multiples of 2^-34 (the best token's is 1): so their
 * sums are exact in every order, and a device need not sort. (vLLM drops from below while the ascending sum is at most 1 - p, which is the
 * same set.)
 */
function nucleusEnd({ x, weights }: Pick<SamplerScratch, 'x' | 'weights'>, topP: number): { x: number; token: number } {
  const rounded = (token: number) => weights[token] + ROUND_WEIGHT - ROUND_WEIGHT;
  let total = 0;
  for (let token = 0; token < x.length; token++) total += rounded(token);
  const goal = topP * total;
  // Sorting the whole vocabulary would be slow: sort the heavy tokens, and more of them only if those do not suffice.
  for (let minWeight = 2 ** -10; ; minWeight = minWeight < 2 ** -200 ? 0 : minWeight * 2 ** -10) {
    const candidates: number[] = [];
    for (let token = 0; token < x.length; token++)
      if (weights[token] >= minWeight && x[token] > Number.NEGATIVE_INFINITY) candidates.push(token);
    candidates.sort((a, b) => x[b] - x[a] || b - a);
    let sum = 0;
    for (let i = 0; i < candidates.length; i++) {
      sum += rounded(candidates[i]);
      // `sum` stands before the next candidate: if that one goes, this one is the last.
      if (!(sum < goal)) return { x: x[candidates[i]], token: candidates[i] };
    }
    const last = candidates[candidates.length - 1];
    if (minWeight === 0) return { x: x[last], token: last };
  }
}

/**
 * Inverse of the cumulative sum in order of token id. target = u * total; chunks of SUM_CHUNK ids are skipped while the
 * running total (of their lane sums) stays at or below it; inside the chunk the weights are added one by one to the running
 * total, and the first token that lifts it above the target is chosen. Where rounding leaves none, the last kept one is.
 */
export function choose(weights: Float64Array, u: number): number {
  const target = u * chunkedSum(weights);
  let running = 0;
  for (let start = 0; start < weights.length; start += SUM_CHUNK) {
    const end = Math.min(start + SUM_CHUNK, weights.length);
    const next = running + laneSum(weights, start, end);
    if (next > target) return chooseInChunk(weights, { start, end, running, target });
    running = next;
  }
  return lastKept(weights, weights.length);
}

function chooseInChunk(
  weights: Float64Array,
  { start, end, running, target }: { start: number; end: number; running: number; target: number },
): number {
  let sum = running;
  for (let token = start; token < end; token++) {
    sum += weights[token];
    if (weights[token] > 0 && sum > target) return token;
  }
  return lastKept(weights, end);
}

function lastKept(weights: Float64Array, end: number): number {
  let token = end - 1;
  while (token > 0 && !(weights[token] > 0)) token--;
  return token;
}

/** The lowest id of the largest value; -1 when all are -infinity. */
export function argmax(x: Float64Array | Float32Array): number {
  let best = -1;
  let max = Number.NEGATIVE_INFINITY;
  for (let i = 0; i < x.length; i++) {
    if (x[i] > max) {
      max = x[i];
      best = i;
    }
  }
  return best;
}

/** The k-th largest value: a heap of the k largest so far, the smallest of them on top. */
function kthLargest(x: Float64Array, k: number): number {
  const heap = x.slice(0, k).sort();
  for (let i = k; i < x.length; i++) {
    if (x[i] <= heap[0]) continue;
    let node = 0;
    for (let child = 1; child < k; child = 2 * node + 1) {
      if (child + 1 < k && heap[child + 1] < heap[child]) child++;
      if (heap[child] >= x[i]) break;
      heap[node] = heap[child];
      node = child;
    }
    heap[node] = x[i];
  }
  return heap[0];
}
