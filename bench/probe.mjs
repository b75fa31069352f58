// Builds native/test/peak_probe.cc and runs it: what the machine can do at most, at the moment it is asked.
import { spawnSync } from 'node:child_process';
import { buildNativeBench } from '../scripts/native-bench.mjs';

/** -> path of the program; throws without a compiler. */
export const buildProbe = () => buildNativeBench('peak_probe', ['bench_common', 'bench_probes']);

/** {macsPerSecond: {kind: rate}, bytesPerSecond} on `threads` threads; `seconds` for each figure. */
export function probePeaks(program, threads, seconds) {
  const run = spawnSync(program, [String(threads), String(seconds)], { encoding: 'utf8' });
  if (run.status !== 0) throw new Error(`The peak probe failed (${run.signal ?? run.status}): ${run.stderr}`);
  return JSON.parse(run.stdout);
}

/** The better of two probes, figure by figure: a peak is what the machine can do, not what a busy moment left of it. */
export function bestPeaks(before, after) {
  const macsPerSecond = Object.fromEntries(
    Object.entries(before.macsPerSecond).map(([kind, rate]) => [kind, Math.max(rate, after.macsPerSecond[kind])]),
  );
  return { ...before, macsPerSecond, bytesPerSecond: Math.max(before.bytesPerSecond, after.bytesPerSecond) };
}

/** avx512, avx2 or other: which column of the gates holds. */
export function cpuKind({ macsPerSecond }) {
  if (macsPerSecond.int8Vnni) return 'avx512';
  return macsPerSecond.int8Avx2 ? 'avx2' : 'other';
}
