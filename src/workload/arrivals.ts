// When requests arrive, in an open loop: gaps between arrivals, drawn one after the other. `burstiness` is vLLM's: the shape
// of a gamma distribution of gaps with mean 1 / rate, so 1 is Poisson, smaller is burstier, and the gaps' cv is 1 / sqrt(b).

import { PagodaError } from '../errors.ts';
import type { RandomSource } from './random-source.ts';
import { logGamma } from './special-functions.ts';

export type ArrivalSpec =
  /** Everything at second 0. */
  | { readonly kind: 'at-once' }
  | { readonly kind: 'constant'; readonly requestsPerSecond: number }
  | { readonly kind: 'poisson'; readonly requestsPerSecond: number }
  | { readonly kind: 'gamma'; readonly requestsPerSecond: number; readonly burstiness: number }
  | { readonly kind: 'weibull'; readonly requestsPerSecond: number; readonly shape: number }
  /** A Poisson process whose rate jumps between two values; the times in each are exponential (MMPP with two states). */
  | {
      readonly kind: 'on-off';
      readonly onRequestsPerSecond: number;
      readonly offRequestsPerSecond: number;
      readonly meanOnSeconds: number;
      readonly meanOffSeconds: number;
    };

export class ArrivalClock {
  readonly #spec: ArrivalSpec;
  readonly #random: RandomSource;
  #seconds = 0;
  #isOn = true;
  #phaseEndSeconds: number;

  constructor(spec: ArrivalSpec, random: RandomSource) {
    this.#spec = spec;
    this.#random = random;
    this.#phaseEndSeconds = 0;
    if (spec.kind !== 'on-off') return;
    // Begins in the state that a look at a random time would find.
    const share = spec.meanOnSeconds / (spec.meanOnSeconds + spec.meanOffSeconds);
    this.#isOn = random.uniform() < share;
    this.#phaseEndSeconds = random.exponential(this.#isOn ? spec.meanOnSeconds : spec.meanOffSeconds);
  }

  /** Seconds of the next arrival; never before the last one. */
  next(): number {
    const spec = this.#spec;
    switch (spec.kind) {
      case 'at-once':
        return 0;
      case 'constant': {
        const arrival = this.#seconds;
        this.#seconds += 1 / spec.requestsPerSecond;
        return arrival;
      }
      case 'poisson':
        return (this.#seconds += this.#random.exponential(1 / spec.requestsPerSecond));
      case 'gamma':
        return (this.#seconds += this.#random.gamma(spec.burstiness, 1 / (spec.requestsPerSecond * spec.burstiness)));
      case 'weibull': {
        const scale = 1 / (spec.requestsPerSecond * Math.exp(logGamma(1 + 1 / spec.shape)));
        return (this.#seconds += scale * (-Math.log(this.#random.uniform())) ** (1 / spec.shape));
      }
      case 'on-off':
        return this.#nextOnOff(spec);
      default:
        return spec satisfies never;
    }
  }

  /** In each phase the gap is drawn anew: an exponential gap has no memory. */
  #nextOnOff(spec: Extract<ArrivalSpec, { kind: 'on-off' }>): number {
    for (;;) {
      const rate = this.#isOn ? spec.onRequestsPerSecond : spec.offRequestsPerSecond;
      const arrival = rate > 0 ? this.#seconds + this.#random.exponential(1 / rate) : Number.POSITIVE_INFINITY;
      if (arrival <= this.#phaseEndSeconds) return (this.#seconds = arrival);
      this.#seconds = this.#phaseEndSeconds;
      this.#isOn = !this.#isOn;
      this.#phaseEndSeconds += this.#random.exponential(this.#isOn ? spec.meanOnSeconds : spec.meanOffSeconds);
    }
  }
}

/** Requests per second in the long run; infinite when all come at once. */
export function meanRate(spec: ArrivalSpec): number {
  if (spec.kind === 'at-once') return Number.POSITIVE_INFINITY;
  if (spec.kind !== 'on-off') return spec.requestsPerSecond;
  const { onRequestsPerSecond, offRequestsPerSecond, meanOnSeconds, meanOffSeconds } = spec;
  return (
    (onRequestsPerSecond * meanOnSeconds + offRequestsPerSecond * meanOffSeconds) / (meanOnSeconds + meanOffSeconds)
  );
}

/** Throws PagodaError `bad_config` that names `option`. */
export function checkArrivalSpec(spec: ArrivalSpec, option: string): void {
  const range = (name: string, value: number, least: number, most: number): void => {
    if (value >= least && value <= most) return;
    throw new PagodaError('bad_config', `${option}: ${name} must be from ${least} to ${most}, got ${value}.`, {
      param: option,
    });
  };
  if (spec.kind === 'at-once') return;
  if (spec.kind === 'on-off') {
    range('requests per second while on', spec.onRequestsPerSecond, 1e-6, 1e6);
    range('requests per second while off', spec.offRequestsPerSecond, 0, 1e6);
    range('mean seconds on', spec.meanOnSeconds, 1e-3, 1e7);
    range('mean seconds off', spec.meanOffSeconds, 1e-3, 1e7);
    return;
  }
  range('requests per second', spec.requestsPerSecond, 1e-6, 1e6);
  if (spec.kind === 'gamma') range('burstiness', spec.burstiness, 0.01, 1000);
  if (spec.kind === 'weibull') range('the shape', spec.shape, 0.1, 100);
}
