// Distributions of token counts. Each turns a share in (0, 1) into a length by its quantile function, so that prompt and
// output lengths can be rank-correlated by correlating the shares. Results are whole, at least 1, and cut to [min, max].

import { PagodaError } from '../errors.ts';
import type { RandomSource } from './random-source.ts';
import { gammaQuantile, normalCdf, normalQuantile } from './special-functions.ts';

export type LengthShape =
  | { readonly kind: 'fixed'; readonly tokens: number }
  | { readonly kind: 'uniform'; readonly min: number; readonly max: number }
  /** mu and sigma of ln(tokens). */
  | { readonly kind: 'lognormal'; readonly mu: number; readonly sigma: number }
  | { readonly kind: 'gamma'; readonly shape: number; readonly scale: number }
  | { readonly kind: 'weibull'; readonly shape: number; readonly scale: number }
  | { readonly kind: 'exponential'; readonly mean: number }
  /** Values at equally spaced shares from 0 (smallest) to 1 (largest), linear in between. */
  | { readonly kind: 'quantiles'; readonly knots: readonly number[] }
  | {
      readonly kind: 'mixture';
      readonly parts: ReadonlyArray<{ readonly weight: number; readonly shape: LengthShape }>;
    };

export interface LengthSpec {
  readonly shape: LengthShape;
  readonly min: number;
  readonly max: number;
}

export const MOST_TOKENS = 100_000_000;

export class LengthSampler {
  readonly #spec: LengthSpec;
  readonly #quantile: (share: number, random: RandomSource) => number;

  constructor(spec: LengthSpec) {
    this.#spec = spec;
    this.#quantile = quantileOf(spec.shape);
  }

  /** `share` places the length in its distribution; `random` is only used to choose among the parts of a mixture. */
  at(share: number, random: RandomSource): number {
    const tokens = Math.round(this.#quantile(share, random));
    return Math.max(1, this.#spec.min, Math.min(this.#spec.max, tokens));
  }
}

/** Pairs of uniform shares whose ranks correlate as asked (Spearman), by a Gaussian copula: r = 2 sin(pi rho / 6). */
export class SharePairs {
  readonly #pearson: number;
  readonly #random: RandomSource;
  first = 0;
  second = 0;

  constructor(rankCorrelation: number, random: RandomSource) {
    this.#pearson = 2 * Math.sin((Math.PI * rankCorrelation) / 6);
    this.#random = random;
  }

  /** Draws the next pair into `first` and `second`. */
  draw(): void {
    const random = this.#random;
    this.first = random.uniform();
    if (this.#pearson === 0) {
      this.second = random.uniform();
      return;
    }
    const z = this.#pearson * normalQuantile(this.first) + Math.sqrt(1 - this.#pearson ** 2) * random.normal();
    this.second = Math.min(1 - 1e-12, Math.max(1e-12, normalCdf(z)));
  }
}

function quantileOf(shape: LengthShape): (share: number, random: RandomSource) => number {
  switch (shape.kind) {
    case 'fixed':
      return () => shape.tokens;
    case 'uniform':
      // Whole numbers from min to max, each equally likely.
      return (share) => shape.min + Math.floor(share * (shape.max - shape.min + 1));
    case 'lognormal':
      return (share) => Math.exp(shape.mu + shape.sigma * normalQuantile(share));
    case 'gamma':
      return gammaTable(shape.shape, shape.scale);
    case 'weibull':
      return (share) => shape.scale * (-Math.log(1 - share)) ** (1 / shape.shape);
    case 'exponential':
      return (share) => -shape.mean * Math.log(1 - share);
    case 'quantiles':
      return (share) => interpolate(shape.knots, share);
    case 'mixture':
      return mixtureQuantile(shape.parts);
    default:
      return shape satisfies never;
  }
}

/** The inverse has no formula and costs microseconds: a table of the middle, the formula for the last thousandths. */
function gammaTable(shape: number, scale: number): (share: number) => number {
  const numSteps = 1000;
  const knots = new Float64Array(numSteps + 1);
  for (let i = 1; i < numSteps; i++) knots[i] = scale * gammaQuantile(shape, i / numSteps);
  return (share) => {
    const at = share * numSteps;
    const index = Math.floor(at);
    if (index < 2 || index >= numSteps - 2) return scale * gammaQuantile(shape, share);
    return knots[index]! + (at - index) * (knots[index + 1]! - knots[index]!);
  };
}

function interpolate(knots: readonly number[], share: number): number {
  const at = share * (knots.length - 1);
  const index = Math.min(knots.length - 2, Math.floor(at));
  return knots[index]! + (at - index) * (knots[index + 1]! - knots[index]!);
}

function mixtureQuantile(
  parts: ReadonlyArray<{ readonly weight: number; readonly shape: LengthShape }>,
): (share: number, random: RandomSource) => number {
  const total = parts.reduce((sum, part) => sum + part.weight, 0);
  const quantiles = parts.map((part) => quantileOf(part.shape));
  return (share, random) => {
    let left = random.uniform() * total;
    let index = 0;
    while (index < parts.length - 1 && left >= parts[index]!.weight) left -= parts[index++]!.weight;
    return quantiles[index]!(share, random);
  };
}

/** Throws PagodaError `bad_config` that names `option` and what is wrong with it. */
export function checkLengthSpec(spec: LengthSpec, option: string): void {
  const fail = (what: string): never => {
    throw new PagodaError('bad_config', `${option}: ${what}.`, { param: option });
  };
  if (!(spec.min >= 0 && spec.min <= spec.max && spec.max >= 1 && spec.max <= MOST_TOKENS)) {
    fail(`limits must be whole numbers from 1 to ${MOST_TOKENS}, the smaller first, got ${spec.min}..${spec.max}`);
  }
  checkShape(spec.shape, fail);
}

function checkShape(shape: LengthShape, fail: (what: string) => never): void {
  const positive = (name: string, value: number): void => {
    if (!(value > 0 && value <= MOST_TOKENS))
      fail(`${shape.kind}: ${name} must be above 0 and at most ${MOST_TOKENS}, got ${value}`);
  };
  switch (shape.kind) {
    case 'fixed':
      if (!(Number.isInteger(shape.tokens) && shape.tokens >= 1 && shape.tokens <= MOST_TOKENS))
        fail(`must be a whole number of tokens from 1 to ${MOST_TOKENS}, got ${shape.tokens}`);
      return;
    case 'uniform':
      positive('the largest', shape.max);
      if (!(shape.min >= 1 && shape.min <= shape.max))
        fail(`uniform: needs 1 <= smallest <= largest, got ${shape.min}, ${shape.max}`);
      return;
    case 'lognormal':
      if (!(shape.mu >= -20 && shape.mu <= 20))
        fail(`lognormal: mu is the mean of ln(tokens), -20 to 20, got ${shape.mu}`);
      if (!(shape.sigma >= 0 && shape.sigma <= 10)) fail(`lognormal: sigma must be from 0 to 10, got ${shape.sigma}`);
      return;
    case 'gamma':
    case 'weibull':
      positive('the shape', shape.shape);
      positive('the scale', shape.scale);
      return;
    case 'exponential':
      positive('the mean', shape.mean);
      return;
    case 'quantiles':
      if (shape.knots.length < 2) fail('quantiles: needs at least two values');
      if (shape.knots.some((knot, i) => !(knot >= 0) || (i > 0 && knot < shape.knots[i - 1]!)))
        fail('quantiles: values must not fall');
      return;
    case 'mixture':
      if (shape.parts.length === 0) fail('mixture: has no parts');
      for (const part of shape.parts) {
        if (!(part.weight > 0)) fail(`mixture: weights must be above 0, got ${part.weight}`);
        checkShape(part.shape, fail);
      }
      return;
    default:
      shape satisfies never;
  }
}
