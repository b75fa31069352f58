// Seconds of a step as a sum of measured prices: per step, sequence, token, key that a decode reads, query-key pair of a prompt.
// For devices that can be measured here (Pagoda's own CPU device) instead of computed from peaks.

import { PagodaError } from '../../errors.ts';
import type { StepCost, StepLoad } from '../step-cost.ts';

export interface LinearPrices {
  readonly stepSeconds: number;
  readonly sequenceSeconds: number;
  readonly tokenSeconds: number;
  readonly decodeKeySeconds: number;
  readonly prefillPairSeconds: number;
}

export interface MeasuredStep {
  readonly load: StepLoad;
  readonly seconds: number;
}

export class LinearStepCost implements StepCost {
  readonly requestOverheadSeconds: number;
  readonly #prices: LinearPrices;

  constructor(prices: LinearPrices, requestOverheadSeconds: number) {
    this.#prices = prices;
    this.requestOverheadSeconds = requestOverheadSeconds;
  }

  stepSeconds(load: StepLoad): number {
    const { stepSeconds, sequenceSeconds, tokenSeconds, decodeKeySeconds, prefillPairSeconds } = this.#prices;
    return (
      stepSeconds +
      sequenceSeconds * load.numSequences +
      tokenSeconds * load.numTokens +
      decodeKeySeconds * load.decodeContextTokens +
      prefillPairSeconds * load.prefillPairs
    );
  }
}

const featuresOf = (load: StepLoad): number[] => [
  1,
  load.numSequences,
  load.numTokens,
  load.decodeContextTokens,
  load.prefillPairs,
];
const NUM_FEATURES = 5;

export interface LinearFit {
  readonly prices: LinearPrices;
  /** Mean of the absolute relative errors over the measured steps. */
  readonly meanError: number;
}

/** Prices of at least 0 with the smallest sum of squared relative errors. Throws `bad_config` on fewer than five steps. */
export function fitLinearPrices(steps: readonly MeasuredStep[]): LinearFit {
  const usable = steps.filter(({ seconds }) => seconds > 0 && Number.isFinite(seconds));
  if (usable.length < NUM_FEATURES)
    throw new PagodaError(
      'bad_config',
      `A calibration needs at least ${NUM_FEATURES} measured steps, got ${usable.length}.`,
    );
  let best: { prices: number[]; error: number } | null = null;
  // Which prices are above 0 is not known: few enough to try all choices.
  for (let choice = 1; choice < 1 << NUM_FEATURES; choice++) {
    const used = Array.from({ length: NUM_FEATURES }, (_, i) => i).filter((i) => (choice >> i) & 1);
    const solved = solveFor(usable, used);
    if (solved === null || solved.some((price) => price < 0)) continue;
    const prices = new Array<number>(NUM_FEATURES).fill(0);
    for (const [at, feature] of used.entries()) prices[feature] = solved[at]!;
    const error = squaredError(usable, prices);
    if (best === null || error < best.error) best = { prices, error };
  }
  const [stepSeconds = 0, sequenceSeconds = 0, tokenSeconds = 0, decodeKeySeconds = 0, prefillPairSeconds = 0] =
    best?.prices ?? [];
  const prices = { stepSeconds, sequenceSeconds, tokenSeconds, decodeKeySeconds, prefillPairSeconds };
  const cost = new LinearStepCost(prices, 0);
  const errors = usable.map(({ load, seconds }) => Math.abs(cost.stepSeconds(load) / seconds - 1));
  return { prices, meanError: errors.reduce((a, b) => a + b, 0) / errors.length };
}

function squaredError(steps: readonly MeasuredStep[], prices: readonly number[]): number {
  return steps.reduce((sum, { load, seconds }) => {
    const predicted = featuresOf(load).reduce((total, value, i) => total + value * prices[i]!, 0);
    return sum + (predicted / seconds - 1) ** 2;
  }, 0);
}

/** Least squares over some features, by the normal equations of the scaled problem; null when they are not independent. */
function solveFor(steps: readonly MeasuredStep[], used: readonly number[]): number[] | null {
  const rows = steps.map(({ load, seconds }) => {
    const all = featuresOf(load);
    return used.map((feature) => all[feature]! / seconds);
  });
  const scales = used.map((_, column) => Math.sqrt(rows.reduce((sum, row) => sum + row[column]! ** 2, 0)) || 1);
  const matrix = used.map((_, i) => [
    ...used.map((__, j) => rows.reduce((sum, row) => sum + (row[i]! / scales[i]!) * (row[j]! / scales[j]!), 0)),
    rows.reduce((sum, row) => sum + row[i]! / scales[i]!, 0),
  ]);
  const solution = eliminate(matrix);
  return solution === null ? null : solution.map((value, i) => value / scales[i]!);
}

/** Gauss with pivots on [n][n + 1]. */
function eliminate(matrix: number[][]): number[] | null {
  const n = matrix.length;
  for (let column = 0; column < n; column++) {
    let pivot = column;
    for (let row = column + 1; row < n; row++)
      if (Math.abs(matrix[row]![column]!) > Math.abs(matrix[pivot]![column]!)) pivot = row;
    if (Math.abs(matrix[pivot]![column]!) < 1e-10) return null;
    [matrix[column], matrix[pivot]] = [matrix[pivot]!, matrix[column]!];
    const lead = matrix[column]!;
    for (let row = 0; row < n; row++) {
      if (row === column) continue;
      const factor = matrix[row]![column]! / lead[column]!;
      for (let at = column; at <= n; at++) matrix[row]![at]! -= factor * lead[at]!;
    }
  }
  return matrix.map((row, i) => row[n]! / row[i]!);
}
