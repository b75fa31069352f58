import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { PagodaError } from '../../../src/errors.ts';
import { ArrivalClock, type ArrivalSpec, checkArrivalSpec, meanRate } from '../../../src/workload/arrivals.ts';
import { LengthSampler, type LengthShape, SharePairs } from '../../../src/workload/lengths.ts';
import { LENGTHS_RULE, parseLengths } from '../../../src/workload/parse-lengths.ts';
import { RandomSource } from '../../../src/workload/random-source.ts';
import {
  gammaCdf,
  gammaQuantile,
  logGamma,
  normalCdf,
  normalQuantile,
} from '../../../src/workload/special-functions.ts';
import { StreamingDistribution } from '../../../src/workload/streaming-distribution.ts';
import { spearman } from '../../../src/workload/workload-statistics.ts';

describe('special functions', () => {
  it('have their known values', () => {
    expect(logGamma(5)).toBeCloseTo(Math.log(24), 10);
    expect(logGamma(0.5)).toBeCloseTo(Math.log(Math.sqrt(Math.PI)), 10);
    expect(normalCdf(0)).toBeCloseTo(0.5, 7);
    expect(normalCdf(1.959964)).toBeCloseTo(0.975, 6);
    expect(normalCdf(-1.281552)).toBeCloseTo(0.1, 6);
    expect(normalQuantile(0.975)).toBeCloseTo(1.959964, 6);
    expect(normalQuantile(0.001)).toBeCloseTo(-3.090232, 6);
    expect(normalQuantile(0.999)).toBeCloseTo(3.090232, 6);
    // Shape 1 is the exponential distribution.
    expect(gammaCdf(1, 2)).toBeCloseTo(1 - Math.exp(-2), 10);
    expect(gammaCdf(3, 10)).toBeCloseTo(1 - Math.exp(-10) * (1 + 10 + 50), 10);
  });

  it('invert each other', () => {
    fc.assert(
      fc.property(
        fc.double({ min: 0.002, max: 0.998, noNaN: true }),
        fc.double({ min: 0.2, max: 30, noNaN: true }),
        (share, shape) => {
          expect(gammaCdf(shape, gammaQuantile(shape, share))).toBeCloseTo(share, 6);
          expect(normalCdf(normalQuantile(share))).toBeCloseTo(share, 6);
        },
      ),
      { numRuns: 60 },
    );
  });
});

describe('random source', () => {
  it('depends on seed and label, and on nothing else', () => {
    const draw = (seed: number, label: string) => {
      const random = new RandomSource(seed, label);
      return Array.from({ length: 4 }, () => random.uniform());
    };
    expect(draw(1, 'a')).toEqual(draw(1, 'a'));
    expect(draw(1, 'a')).not.toEqual(draw(2, 'a'));
    expect(draw(1, 'a')).not.toEqual(draw(1, 'b'));
  });

  it('has the moments of its distributions', () => {
    const random = new RandomSource(3, 'moments');
    const moments = (next: () => number) => {
      const distribution = new StreamingDistribution();
      for (let i = 0; i < 40_000; i++) distribution.add(next());
      return distribution;
    };
    expect(moments(() => random.uniform()).mean).toBeCloseTo(0.5, 2);
    expect(moments(() => random.gamma(4, 2)).mean / 8).toBeCloseTo(1, 1);
    expect(moments(() => random.gamma(4, 2)).cv).toBeCloseTo(0.5, 1);
    expect(moments(() => random.gamma(0.25, 1)).cv / 2).toBeCloseTo(1, 1);
    expect(moments(() => random.normal() ** 2).mean).toBeCloseTo(1, 1);
  });
});

describe('lengths', () => {
  const drawn = (shape: LengthShape, limits = { min: 1, max: 1e8 }) => {
    const sampler = new LengthSampler({ shape, ...limits });
    const random = new RandomSource(5, 'lengths');
    const distribution = new StreamingDistribution();
    for (let i = 0; i < 20_000; i++) distribution.add(sampler.at(random.uniform(), random));
    return distribution;
  };
  const within = (value: number, wanted: number, share: number) =>
    expect(Math.abs(value / wanted - 1), `${value} for ${wanted}`).toBeLessThan(share);

  it.each([
    ['fixed', { kind: 'fixed', tokens: 77 }, 77, 77],
    ['uniform', { kind: 'uniform', min: 640, max: 800 }, 720, 792],
    ['lognormal', { kind: 'lognormal', mu: 6, sigma: 0.5 }, Math.exp(6), Math.exp(6 + 0.5 * 1.644854)],
    ['exponential', { kind: 'exponential', mean: 300 }, 300 * Math.LN2, 300 * Math.log(20)],
    ['weibull', { kind: 'weibull', shape: 2, scale: 400 }, 400 * Math.LN2 ** 0.5, 400 * Math.log(20) ** 0.5],
    ['gamma', { kind: 'gamma', shape: 1, scale: 500 }, 500 * Math.LN2, 500 * Math.log(20)],
    ['quantiles', { kind: 'quantiles', knots: [0, 100, 1000] }, 100, 910],
  ] satisfies ReadonlyArray<[string, LengthShape, number, number]>)(
    '%s: median and 95th percentile',
    (_, shape, p50, p95) => {
      const distribution = drawn(shape);
      within(distribution.quantile(0.5), p50, 0.03);
      within(distribution.quantile(0.95), p95, 0.03);
    },
  );

  it('mixes by weight and cuts at the limits', () => {
    const parts = [
      { weight: 3, shape: { kind: 'fixed', tokens: 10 } },
      { weight: 1, shape: { kind: 'fixed', tokens: 5000 } },
    ] as const;
    const distribution = drawn({ kind: 'mixture', parts }, { min: 20, max: 2048 });
    expect(distribution.min).toBe(20);
    expect(distribution.max).toBe(2048);
    within(distribution.mean, 0.75 * 20 + 0.25 * 2048, 0.05);
  });

  it.each([-0.8, 0, 0.5, 0.95])('correlates ranks by %s', (rho) => {
    const pairs = new SharePairs(rho, new RandomSource(9, 'pairs'));
    const xs: number[] = [];
    const ys: number[] = [];
    for (let i = 0; i < 6000; i++) {
      pairs.draw();
      xs.push(pairs.first);
      ys.push(pairs.second);
    }
    expect(Math.abs(spearman(xs, ys) - rho)).toBeLessThan(0.04);
  });

  it('Spearman: equal values share a rank, no variation is no correlation', () => {
    expect(spearman([1, 2, 3], [10, 100, 1000])).toBeCloseTo(1, 12);
    expect(spearman([1, 2, 3], [3, 2, 1])).toBeCloseTo(-1, 12);
    expect(spearman([1, 1, 1], [3, 2, 1])).toBe(0);
    // Ranks 0.5 0.5 2 and 0 1 2: covariance 1.5, variances 1.5 and 2.
    expect(spearman([1, 1, 2], [1, 2, 3])).toBeCloseTo(1.5 / Math.sqrt(3), 12);
  });
});

describe('length notation', () => {
  it.each([
    ['800', { kind: 'fixed', tokens: 800 }],
    ['4k', { kind: 'fixed', tokens: 4000 }],
    ['4K', { kind: 'fixed', tokens: 4096 }],
    ['640-800', { kind: 'uniform', min: 640, max: 800 }],
    ['gamma(0.93, 2201)', { kind: 'gamma', shape: 0.93, scale: 2201 }],
    ['quantiles(1,2,30)', { kind: 'quantiles', knots: [1, 2, 30] }],
  ])('%s', (text, shape) => expect(parseLengths(text, '--prompt').shape).toEqual(shape));

  it('finds a lognormal from two quantiles, and cuts', () => {
    const { shape, min, max } = parseLengths('lognormal(p50=1020,p95=4083)[4..2048]', '--prompt');
    expect(shape.kind === 'lognormal' && Math.exp(shape.mu)).toBeCloseTo(1020, 6);
    expect(shape.kind === 'lognormal' && Math.exp(shape.mu + 1.6448536 * shape.sigma)).toBeCloseTo(4083, 2);
    expect([min, max]).toEqual([4, 2048]);
  });

  it('reads sums of weighted parts', () => {
    expect(parseLengths('0.6*lognormal(4.5,0.5)+0.4*fixed(400)', '--output').shape).toEqual({
      kind: 'mixture',
      parts: [
        { weight: 0.6, shape: { kind: 'lognormal', mu: 4.5, sigma: 0.5 } },
        { weight: 0.4, shape: { kind: 'fixed', tokens: 400 } },
      ],
    });
  });

  it.each([
    '',
    '0',
    '-5',
    '2.5',
    '800-640',
    'normal(1,2)',
    'gamma(1)',
    'gamma(0,5)',
    'uniform(5,1)',
    'quantiles(3)',
    'quantiles(3,2)',
    '800[5..2]',
    '0*fixed(3)+1*fixed(2)',
    'lognormal(p50=3)',
    'lognormal(p50=3,p50=4)',
    '1e3',
  ])('refuses %j and names the option', (text) => {
    const error = (() => {
      try {
        parseLengths(text, '--prompt');
        return null;
      } catch (caught) {
        return caught;
      }
    })();
    expect(error).toBeInstanceOf(PagodaError);
    expect(error).toMatchObject({ code: 'bad_config', param: '--prompt' });
    expect((error as PagodaError).message.split('\n')).toHaveLength(1);
  });

  it('says what is allowed', () => {
    expect(() => parseLengths('abc', '--output')).toThrow(LENGTHS_RULE);
  });
});

describe('arrivals', () => {
  const arrivalsOf = (spec: ArrivalSpec, count: number) => {
    const clock = new ArrivalClock(spec, new RandomSource(11, 'arrivals'));
    return Array.from({ length: count }, () => clock.next());
  };
  const gapsOf = (times: readonly number[]) => {
    const gaps = new StreamingDistribution();
    for (let i = 1; i < times.length; i++) gaps.add(times[i]! - times[i - 1]!);
    return gaps;
  };

  it.each([
    [{ kind: 'constant', requestsPerSecond: 4 }, 0],
    [{ kind: 'poisson', requestsPerSecond: 4 }, 1],
    [{ kind: 'gamma', requestsPerSecond: 4, burstiness: 0.25 }, 2],
    [{ kind: 'gamma', requestsPerSecond: 4, burstiness: 4 }, 0.5],
    [{ kind: 'weibull', requestsPerSecond: 4, shape: 2 }, 0.5227],
  ] satisfies ReadonlyArray<[ArrivalSpec, number]>)('%j: rate and variation of the gaps', (spec, cv) => {
    const gaps = gapsOf(arrivalsOf(spec, 40_000));
    expect(Math.abs(gaps.mean * 4 - 1)).toBeLessThan(0.04);
    expect(Math.abs(gaps.cv - cv)).toBeLessThan(0.06);
  });

  it('on-off: the long-run rate, and order', () => {
    const spec = {
      kind: 'on-off',
      onRequestsPerSecond: 20,
      offRequestsPerSecond: 1,
      meanOnSeconds: 2,
      meanOffSeconds: 6,
    } as const;
    const times = arrivalsOf(spec, 60_000);
    expect(meanRate(spec)).toBeCloseTo(5.75, 9);
    expect(Math.abs(times.length / times.at(-1)! / 5.75 - 1)).toBeLessThan(0.08);
    expect(times).toEqual([...times].sort((a, b) => a - b));
  });

  it('at once is at once', () => expect(arrivalsOf({ kind: 'at-once' }, 3)).toEqual([0, 0, 0]));

  it.each([
    { kind: 'poisson', requestsPerSecond: 0 },
    { kind: 'gamma', requestsPerSecond: 1, burstiness: 0 },
    { kind: 'weibull', requestsPerSecond: 1, shape: Number.NaN },
    { kind: 'on-off', onRequestsPerSecond: 1, offRequestsPerSecond: -1, meanOnSeconds: 1, meanOffSeconds: 1 },
  ] satisfies readonly ArrivalSpec[])('refuses %j', (spec) => {
    expect(() => checkArrivalSpec(spec, '--arrival')).toThrow(/--arrival: .* must be from/);
  });
});

describe('streaming distribution', () => {
  /** numpy's linear method on all the values. */
  const exactQuantile = (values: readonly number[], share: number) => {
    const sorted = [...values].sort((a, b) => a - b);
    const at = share * (sorted.length - 1);
    const low = Math.floor(at);
    return sorted[low]! + (at - low) * (sorted[Math.min(sorted.length - 1, low + 1)]! - sorted[low]!);
  };

  it('is exact while few, and within 0.2 % when many', () => {
    fc.assert(
      fc.property(
        fc.array(fc.double({ min: 0, max: 1e6, noNaN: true }), { minLength: 1, maxLength: 200 }),
        fc.double({ min: 0, max: 1, noNaN: true }),
        (values, share) => {
          const few = new StreamingDistribution();
          for (const value of values) few.add(value);
          expect(few.quantile(share)).toBeCloseTo(exactQuantile(values, share), 6);
        },
      ),
      { numRuns: 50 },
    );
    const random = new RandomSource(2, 'many');
    const values = Array.from({ length: 20_000 }, () => random.gamma(0.7, 0.1));
    const many = new StreamingDistribution();
    for (const value of values) many.add(value);
    for (const share of [0.1, 0.5, 0.9, 0.99]) {
      expect(Math.abs(many.quantile(share) / exactQuantile(values, share) - 1)).toBeLessThan(0.005);
    }
    expect(many.max).toBe(Math.max(...values));
    expect(many.mean).toBeCloseTo(values.reduce((sum, value) => sum + value, 0) / values.length, 10);
  });

  it('counts many equal values as so many single ones, across the change to buckets', () => {
    const one = new StreamingDistribution();
    const many = new StreamingDistribution();
    for (let i = 0; i < 100; i++) {
      many.addMany(0.01 * (i + 1), 60);
      for (let j = 0; j < 60; j++) one.add(0.01 * (i + 1));
    }
    expect(many.count).toBe(6000);
    expect(many.knots(11)).toEqual(one.knots(11));
    expect(many.mean).toBeCloseTo(one.mean, 10);
    expect(many.max).toBe(one.max);
  });
});
