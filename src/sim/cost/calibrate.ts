// Fits the free constants of an engine profile to measurements: what a run of the model predicted against what was measured.
// Time per token is linear in the two constants per step and per sequence, so weighted least squares finds them at once.

import { PagodaError } from '../../errors.ts';
import type { EngineProfile } from './engine-profile.ts';

export interface CalibrationRow {
  /** Sequences in a typical step. */
  readonly numSequences: number;
  readonly measuredTpotSeconds: number;
  readonly predictedTpotSeconds: number;
  /** Null where the time to the first token is queueing, or was not measured. */
  readonly measuredTtftSeconds: number | null;
  readonly predictedTtftSeconds: number;
}

/**
 * `profile` with constants that make the relative errors of the time per token smallest (sum of squares), none below 0, and
 * the median of what is missing in the time to the first token. Throws `bad_config` without rows.
 */
export function fitEngineProfile(profile: EngineProfile, rows: readonly CalibrationRow[]): EngineProfile {
  const usable = rows.filter((row) => row.measuredTpotSeconds > 0 && Number.isFinite(row.predictedTpotSeconds));
  if (usable.length === 0)
    throw new PagodaError('bad_config', 'A calibration needs a measured run, and there is none.');
  const { step, sequence } = leastSquares(profile, usable);
  const tokenSeconds = (numSequences: number) =>
    step - profile.stepSeconds + (sequence - profile.sequenceSeconds) * numSequences;
  const missing = usable
    .filter((row) => row.measuredTtftSeconds !== null)
    .map((row) => row.measuredTtftSeconds! - row.predictedTtftSeconds - tokenSeconds(1))
    .sort((a, b) => a - b);
  const shift = missing.length === 0 ? 0 : missing[Math.floor(missing.length / 2)]!;
  return {
    ...profile,
    name: `${profile.name}-calibrated`,
    stepSeconds: step,
    sequenceSeconds: sequence,
    requestSeconds: Math.max(0, profile.requestSeconds + shift),
  };
}

function leastSquares(profile: EngineProfile, rows: readonly CalibrationRow[]): { step: number; sequence: number } {
  let w = 0;
  let wn = 0;
  let wnn = 0;
  let wr = 0;
  let wnr = 0;
  for (const { numSequences: n, measuredTpotSeconds, predictedTpotSeconds } of rows) {
    const weight = 1 / measuredTpotSeconds ** 2;
    // What the constants have to explain, their present share put back.
    const rest = measuredTpotSeconds - predictedTpotSeconds + profile.stepSeconds + profile.sequenceSeconds * n;
    w += weight;
    wn += weight * n;
    wnn += weight * n * n;
    wr += weight * rest;
    wnr += weight * n * rest;
  }
  const determinant = w * wnn - wn * wn;
  // One batch size only: the two cannot be told apart, the cost per sequence stays.
  if (determinant <= 1e-9 * w * wnn)
    return { step: Math.max(0, (wr - profile.sequenceSeconds * wn) / w), sequence: profile.sequenceSeconds };
  const step = (wr * wnn - wnr * wn) / determinant;
  const sequence = (w * wnr - wn * wr) / determinant;
  if (step < 0) return { step: 0, sequence: Math.max(0, wnr / wnn) };
  if (sequence < 0) return { step: Math.max(0, wr / w), sequence: 0 };
  return { step, sequence };
}
