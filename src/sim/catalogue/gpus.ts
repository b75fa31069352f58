// What is known of a GPU: memory, peaks and the constants that turn peaks into times; and how a command line names it.
// The list itself is data/gpus.ts.

import { PagodaError } from '../../errors.ts';
import { GPUS } from './data/gpus.ts';
import { nearestNames } from './nearest-name.ts';

/** Matrix product: t0 + ((flops / (mfu * peak))^p + (bytes / (mbu * bandwidth))^p)^(1/p). */
export interface GemmFit {
  readonly mfu: number;
  readonly mbu: number;
  readonly launchSeconds: number;
  readonly smoothness: number;
}

export interface AttentionFit {
  readonly launchSeconds: number;
  /** Share of the bandwidth when decoding reads keys and values. */
  readonly decodeMbu: number;
  /** Prefill reaches mfu * L / (L + halfLength) of the peak at L keys. */
  readonly prefillMfu: number;
  readonly prefillHalfLength: number;
}

/** All-reduce: up to 8 MB alpha + bytes / smallBandwidth, above ringAlpha + 2 (n-1)/n * bytes / busBandwidth. */
export interface AllReduceFit {
  readonly alphaSeconds: number;
  readonly smallBandwidth: number;
  readonly ringAlphaSeconds: number;
  readonly busBandwidth: number;
}

export interface GpuSpec {
  readonly name: string;
  readonly label: string;
  /** What a process sees, not what the box says. */
  readonly memoryBytes: number;
  readonly bandwidth: number;
  readonly bf16Flops: number;
  /** null = weights are unpacked to 16 bit for the arithmetic. */
  readonly fp8Flops: number | null;
  readonly int8Flops: number | null;
  readonly gemm: GemmFit;
  readonly gemmFp8: GemmFit;
  readonly attention: AttentionFit;
  /** By tensor parallel size. */
  readonly allReduce: Readonly<Record<number, AllReduceFit>>;
  /** Least time of a collective outside of a CUDA graph. */
  readonly eagerAllReduceSeconds: number;
  /** Point to point between two stages, bytes per second. */
  readonly linkBandwidth: number;
  readonly hasNvlink: boolean;
  readonly isFitted: boolean;
  /** vLLM's server defaults on it. */
  readonly defaultMaxNumSeqs: number;
  readonly defaultMaxNumBatchedTokens: number;
}

const ALIASES: Readonly<Record<string, string>> = {
  a100: 'a100-80gb',
  'a100-80': 'a100-80gb',
  'a100-40': 'a100-40gb',
  'a100-sxm': 'a100-80gb',
  'a100-80gb-sxm': 'a100-80gb',
  'a100-40gb-sxm': 'a100-40gb',
  'a100-pcie': 'a100-80gb-pcie',
  'h100-80gb': 'h100',
  'h100-sxm': 'h100',
  'h200-sxm': 'h200',
  'h200-141gb': 'h200',
  'b200-sxm': 'b200',
  rtx4090: 'rtx-4090',
  rtx3090: 'rtx-3090',
  rtx5090: 'rtx-5090',
  '4090': 'rtx-4090',
  '3090': 'rtx-3090',
  '5090': 'rtx-5090',
  a10: 'a10g',
};

export const MAX_GPUS = 4096;

/** `a100-80gb:4` is four of them; without a number, one. Throws PagodaError `bad_config` with the nearest names. */
export function parseGpus(text: string): { gpu: GpuSpec; count: number } {
  const [name = '', number, ...more] = text.trim().toLowerCase().replaceAll('_', '-').split(':');
  const known = GPUS.find((each) => each.name === (Object.hasOwn(ALIASES, name) ? ALIASES[name] : name));
  if (name === 'cpu') {
    throw new PagodaError(
      'bad_config',
      `--gpu cpu: Pagoda's CPU device is measured instead: pagoda calibrate device MODEL --out cpu.json, then --calibration cpu.json.`,
      { param: '--gpu' },
    );
  }
  if (known === undefined) {
    const canonical = (each: string) => (Object.hasOwn(ALIASES, each) ? ALIASES[each]! : each);
    const near = nearestNames(name, [...GPUS.map((each) => each.name), ...Object.keys(ALIASES)], 5).map(canonical);
    const names = [...new Set(near)].slice(0, 3);
    throw new PagodaError(
      'bad_config',
      `--gpu ${JSON.stringify(text)} is not known; nearest names: ${names.join(', ')}.`,
      {
        param: '--gpu',
      },
    );
  }
  const count = number === undefined ? 1 : Number(number);
  if (more.length > 0 || (number !== undefined && !/^\d+$/.test(number)) || count < 1 || count > MAX_GPUS) {
    throw new PagodaError(
      'bad_config',
      `--gpu ${JSON.stringify(text)}: the number of GPUs must be a whole number from 1 to ${MAX_GPUS}, like ${known.name}:4.`,
      { param: '--gpu' },
    );
  }
  return { gpu: known, count };
}
