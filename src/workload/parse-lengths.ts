// Length distributions as people write them on a command line:
//   800   640-800   uniform(640,800)   lognormal(6.6,0.98)   lognormal(p50=1020,p95=4083)   gamma(0.93,2201)
//   weibull(1.2,360)   exponential(300)   quantiles(3,75,147,...)   0.6*lognormal(4.5,0.5)+0.4*fixed(400)
// A suffix [4..2048] cuts the lengths; a bare number may be 4k or 4K.

import { PagodaError } from '../errors.ts';
import { checkLengthSpec, type LengthShape, type LengthSpec, MOST_TOKENS } from './lengths.ts';
import { normalQuantile } from './special-functions.ts';

export const LENGTHS_RULE =
  'a number of tokens (800), a range (640-800), or uniform(a,b), lognormal(mu,sigma), lognormal(p50=a,p95=b), gamma(shape,scale), weibull(shape,scale), exponential(mean), quantiles(a,b,...), sums like 0.6*fixed(90)+0.4*fixed(400), each with an optional cut [4..2048]';

/** Throws PagodaError `bad_config` that names the option. */
export function parseLengths(text: string, option: string): LengthSpec {
  const fail = (): never => {
    throw new PagodaError('bad_config', `${option} must be ${LENGTHS_RULE}, got '${text.slice(0, 80)}'.`, {
      param: option,
    });
  };
  const match = /^(.*?)(?:\[\s*(\S+?)\s*\.\.\s*(\S+?)\s*\])?$/s.exec(text.replace(/\s+/g, ''));
  const [, body = '', min, max] = match ?? [];
  if (body === '') return fail();
  const spec: LengthSpec = {
    shape: parseSum(body, fail),
    min: min === undefined ? 1 : tokenCount(min, fail),
    max: max === undefined ? MOST_TOKENS : tokenCount(max, fail),
  };
  checkLengthSpec(spec, option);
  return spec;
}

function parseSum(text: string, fail: () => never): LengthShape {
  const terms = text.split(/\+(?![^(]*\))/);
  if (terms.length === 1 && !text.includes('*')) return parseShape(text, fail);
  return {
    kind: 'mixture',
    parts: terms.map((term) => {
      const [weight = '', shape, ...rest] = term.split('*');
      if (shape === undefined || rest.length > 0) return fail();
      return { weight: plainNumber(weight, fail), shape: parseShape(shape, fail) };
    }),
  };
}

function parseShape(text: string, fail: () => never): LengthShape {
  const range = /^([\d.]+[kKmM]?)-([\d.]+[kKmM]?)$/.exec(text);
  if (range) return { kind: 'uniform', min: tokenCount(range[1]!, fail), max: tokenCount(range[2]!, fail) };
  const call = /^([a-z]+)\(([^()]*)\)$/.exec(text);
  if (!call) return { kind: 'fixed', tokens: tokenCount(text, fail) };
  const [, name, inside = ''] = call;
  const args = inside.split(',');
  if (name === 'quantiles') return { kind: 'quantiles', knots: args.map((arg) => plainNumber(arg, fail)) };
  if (name === 'lognormal' && args[0]!.includes('=')) return lognormalFromQuantiles(args, fail);
  const values = args.map((arg) => plainNumber(arg, fail));
  const [a = Number.NaN, b = Number.NaN] = values;
  const numExpected = name === 'fixed' || name === 'exponential' ? 1 : 2;
  if (values.length !== numExpected) return fail();
  switch (name) {
    case 'fixed':
      return { kind: 'fixed', tokens: a };
    case 'uniform':
      return { kind: 'uniform', min: a, max: b };
    case 'lognormal':
      return { kind: 'lognormal', mu: a, sigma: b };
    case 'gamma':
      return { kind: 'gamma', shape: a, scale: b };
    case 'weibull':
      return { kind: 'weibull', shape: a, scale: b };
    case 'exponential':
      return { kind: 'exponential', mean: a };
    default:
      return fail();
  }
}

/** Two quantiles decide a lognormal: ln(value) = mu + sigma * z(share). */
function lognormalFromQuantiles(args: readonly string[], fail: () => never): LengthShape {
  const points = args.map((arg) => {
    const match = /^p(\d{1,2}(?:\.\d+)?)=(.+)$/.exec(arg);
    return match ? { z: normalQuantile(Number(match[1]) / 100), value: plainNumber(match[2]!, fail) } : fail();
  });
  const [first, second] = points;
  if (points.length !== 2 || first === undefined || second === undefined) return fail();
  if (!Number.isFinite(first.z) || !Number.isFinite(second.z) || first.z === second.z) return fail();
  if (!(first.value > 0 && second.value > 0)) return fail();
  const sigma = (Math.log(second.value) - Math.log(first.value)) / (second.z - first.z);
  return { kind: 'lognormal', mu: Math.log(first.value) - sigma * first.z, sigma };
}

function plainNumber(text: string, fail: () => never): number {
  return /^-?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text) ? Number(text) : fail();
}

/** 800, 4k = 4000, 2.5k = 2500, 4K = 4096. */
function tokenCount(text: string, fail: () => never): number {
  const match = /^(\d+(?:\.\d+)?)([kKmM]?)$/.exec(text);
  if (!match) return fail();
  const unit = { '': 1, k: 1000, K: 1024, m: 1e6, M: 1048576 }[match[2]!] ?? 1;
  const value = Math.round(Number(match[1]) * unit * 1e6) / 1e6;
  return Number.isInteger(value) ? value : fail();
}
