// The result of `pagoda calibrate` as a file: either the free constants of an engine on GPUs, or the measured prices of a device
// on this machine together with the deployment they were measured on. Read by --calibration.

import { readFileSync, statSync } from 'node:fs';
import { PagodaError } from '../errors.ts';
import type { EngineProfile } from '../sim/cost/engine-profile.ts';
import type { LinearPrices } from '../sim/cost/linear-step-cost.ts';

export const CALIBRATION_FORMAT = 'pagoda-calibration-1';
const MAX_BYTES = 1 << 20;

export interface EngineCalibration {
  readonly kind: 'engine';
  readonly engine: EngineProfile;
}

export interface DeviceCalibration {
  readonly kind: 'device';
  /** For people: `cpu avx512, 8 threads`. */
  readonly device: string;
  readonly prices: LinearPrices;
  readonly requestSeconds: number;
  readonly numBlocks: number;
  readonly blockSize: number;
  readonly maxNumSeqs: number;
  readonly maxNumBatchedTokens: number;
  readonly maxModelLen: number;
}

export type Calibration = EngineCalibration | DeviceCalibration;

/** snake_case with units. `facts` are for people: errors, number of measured steps. */
export function calibrationText(calibration: Calibration, facts: Readonly<Record<string, unknown>>): string {
  const fields =
    calibration.kind === 'engine'
      ? {
          name: calibration.engine.name,
          step_seconds: calibration.engine.stepSeconds,
          sequence_seconds: calibration.engine.sequenceSeconds,
          logit_seconds: calibration.engine.logitSeconds,
          request_seconds: calibration.engine.requestSeconds,
        }
      : {
          device: calibration.device,
          step_seconds: calibration.prices.stepSeconds,
          sequence_seconds: calibration.prices.sequenceSeconds,
          token_seconds: calibration.prices.tokenSeconds,
          decode_key_seconds: calibration.prices.decodeKeySeconds,
          prefill_pair_seconds: calibration.prices.prefillPairSeconds,
          request_seconds: calibration.requestSeconds,
          num_kv_blocks: calibration.numBlocks,
          block_size: calibration.blockSize,
          max_num_seqs: calibration.maxNumSeqs,
          max_num_batched_tokens: calibration.maxNumBatchedTokens,
          max_model_len: calibration.maxModelLen,
        };
  return `${JSON.stringify({ format: CALIBRATION_FORMAT, kind: calibration.kind, ...fields, ...facts }, null, 2)}\n`;
}

/** Throws PagodaError `bad_config` that names --calibration. */
export function readCalibration(path: string): Calibration {
  const fail = (what: string): never => {
    throw new PagodaError('bad_config', `--calibration ${path}: ${what}; make one with pagoda calibrate.`, {
      param: '--calibration',
    });
  };
  const stats = statSync(path, { throwIfNoEntry: false });
  if (!stats?.isFile()) return fail('no such file');
  if (stats.size > MAX_BYTES) return fail(`has ${stats.size} bytes, which no calibration has`);
  let json: unknown;
  try {
    json = JSON.parse(readFileSync(path, 'utf8'));
  } catch {
    return fail('is not JSON');
  }
  if (typeof json !== 'object' || json === null) return fail('is not a JSON object');
  const fields = json as Readonly<Record<string, unknown>>;
  if (fields.format !== CALIBRATION_FORMAT) return fail(`format is not ${CALIBRATION_FORMAT}`);
  const number = (key: string, least = 0): number => {
    const value = fields[key];
    if (typeof value === 'number' && Number.isFinite(value) && value >= least) return value;
    return fail(`${key} must be a number of at least ${least}`);
  };
  const count = (key: string, least: number): number => {
    const value = number(key, least);
    return Number.isSafeInteger(value) ? value : fail(`${key} must be a whole number`);
  };
  if (fields.kind === 'engine') {
    return {
      kind: 'engine',
      engine: {
        name: String(fields.name ?? 'calibrated'),
        stepSeconds: number('step_seconds'),
        sequenceSeconds: number('sequence_seconds'),
        logitSeconds: number('logit_seconds'),
        requestSeconds: number('request_seconds'),
      },
    };
  }
  if (fields.kind !== 'device') return fail('kind must be engine or device');
  const prices = {
    stepSeconds: number('step_seconds'),
    sequenceSeconds: number('sequence_seconds'),
    tokenSeconds: number('token_seconds'),
    decodeKeySeconds: number('decode_key_seconds'),
    prefillPairSeconds: number('prefill_pair_seconds'),
  };
  if (prices.stepSeconds + prices.sequenceSeconds + prices.tokenSeconds <= 0) return fail('a step would take no time');
  return {
    kind: 'device',
    device: String(fields.device ?? 'device'),
    prices,
    requestSeconds: number('request_seconds'),
    numBlocks: count('num_kv_blocks', 1),
    blockSize: count('block_size', 1),
    maxNumSeqs: count('max_num_seqs', 1),
    maxNumBatchedTokens: count('max_num_batched_tokens', 1),
    maxModelLen: count('max_model_len', 2),
  };
}
