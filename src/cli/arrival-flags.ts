// --rate, --arrival and --burstiness: an arrival process of the workload.

import { PagodaError } from '../errors.ts';
import { type ArrivalSpec, checkArrivalSpec } from '../workload/arrivals.ts';
import { numberValue, POSITIVE } from './bench-values.ts';

export interface ArrivalFlags {
  readonly rate?: string;
  readonly arrival?: string;
  readonly burstiness?: string;
}

export const ARRIVAL_RULE =
  'poisson, constant, gamma (with --burstiness), weibull(shape) or on-off(requests/s on, requests/s off, mean seconds on, mean seconds off)';

/** Null when no flag says anything and nothing was recorded. Throws PagodaError `bad_config`. */
export function parseArrivals(flags: ArrivalFlags, recorded: ArrivalSpec | null): ArrivalSpec | null {
  const { rate, arrival, burstiness } = flags;
  const onOff = arrival === undefined ? null : onOffOf(arrival);
  if (onOff !== null) {
    if (rate !== undefined || burstiness !== undefined)
      throw new PagodaError(
        'bad_config',
        '--arrival on-off(...) has its own rates; leave --rate and --burstiness out.',
        {
          param: '--arrival',
        },
      );
    checkArrivalSpec(onOff, '--arrival');
    return onOff;
  }
  if (rate === undefined) {
    if (arrival === undefined && burstiness === undefined) return recorded;
    throw new PagodaError('bad_config', '--arrival and --burstiness need --rate, the requests per second.', {
      param: '--rate',
    });
  }
  const requestsPerSecond = numberValue('rate', rate, POSITIVE, true);
  if (requestsPerSecond === Number.POSITIVE_INFINITY) {
    if (arrival === undefined && burstiness === undefined) return { kind: 'at-once' };
    throw new PagodaError('bad_config', '--rate inf sends everything at once; leave --arrival and --burstiness out.', {
      param: '--rate',
    });
  }
  const spec = processOf(requestsPerSecond, arrival, burstiness);
  checkArrivalSpec(spec, '--arrival');
  return spec;
}

function processOf(
  requestsPerSecond: number,
  arrival: string | undefined,
  burstiness: string | undefined,
): ArrivalSpec {
  const isGamma = arrival === 'gamma' || (arrival === undefined && burstiness !== undefined);
  if (isGamma) {
    if (burstiness === undefined) throw refused('--arrival gamma needs --burstiness, like 0.5');
    return { kind: 'gamma', requestsPerSecond, burstiness: numberValue('burstiness', burstiness, POSITIVE) };
  }
  if (burstiness !== undefined) throw refused(`--burstiness belongs to gamma arrivals, not to --arrival ${arrival}`);
  if (arrival === undefined || arrival === 'poisson') return { kind: 'poisson', requestsPerSecond };
  if (arrival === 'constant') return { kind: 'constant', requestsPerSecond };
  const match = /^weibull\(([\d.]+)\)$/.exec(arrival.replaceAll(' ', ''));
  if (match) return { kind: 'weibull', requestsPerSecond, shape: Number(match[1]) };
  throw refused(`--arrival must be ${ARRIVAL_RULE}, got '${arrival.slice(0, 60)}'`);
}

function onOffOf(text: string): ArrivalSpec | null {
  const match = /^on-off\(([\d.,]*)\)$/.exec(text.replaceAll(' ', ''));
  if (!match) return null;
  const numbers = match[1]!.split(',').map(Number);
  if (numbers.length !== 4 || match[1]!.split(',').includes(''))
    throw refused(`--arrival must be ${ARRIVAL_RULE}, got '${text}'`);
  const [onRequestsPerSecond, offRequestsPerSecond, meanOnSeconds, meanOffSeconds] = numbers as [
    number,
    number,
    number,
    number,
  ];
  return { kind: 'on-off', onRequestsPerSecond, offRequestsPerSecond, meanOnSeconds, meanOffSeconds };
}

function refused(what: string): PagodaError {
  return new PagodaError('bad_config', `${what}.`, { param: '--arrival' });
}
