// The GPUs of the catalogue. Memory, bandwidth and dense peaks are the vendors'; the efficiencies and collective times of A100, H100,
// H200 and L40S were fitted by least squares to the kernel tables that NVIDIA's aiconfigurator publishes (vLLM 0.14 and 0.19);
// a GPU that is not `fitted` borrows those of its nearest relative.

import type { AllReduceFit, GemmFit, GpuSpec } from '../gpus.ts';

const US = 1e-6;
const GB = 1e9;
const TF = 1e12;
const GIB = 2 ** 30;

const fit = (mfu: number, mbu: number, t0: number, smoothness: number): GemmFit => ({
  mfu,
  mbu,
  launchSeconds: t0 * US,
  smoothness,
});

const ring = (alpha: number, small: number, ringAlpha: number, bus: number): AllReduceFit => ({
  alphaSeconds: alpha * US,
  smallBandwidth: small * GB,
  ringAlphaSeconds: ringAlpha * US,
  busBandwidth: bus * GB,
});

const A100 = {
  gemm: fit(0.83, 0.765, 5.7, 1.6),
  attention: { launchSeconds: 25 * US, decodeMbu: 0.74, prefillMfu: 0.6, prefillHalfLength: 900 },
  allReduce: { 2: ring(5.1, 200, 45, 196), 4: ring(5.6, 92, 62, 218), 8: ring(7.3, 80, 71, 221) },
  eagerAllReduceSeconds: 44 * US,
};
const H100 = {
  gemm: fit(0.8, 0.84, 3.6, 2.7),
  gemmFp8: fit(0.55, 0.86, 6.2, 2),
  attention: { launchSeconds: 22 * US, decodeMbu: 0.9, prefillMfu: 0.64, prefillHalfLength: 1500 },
  allReduce: { 2: ring(4.3, 262, 25, 314), 4: ring(4.8, 138, 28, 349), 8: ring(5.2, 98, 38, 359) },
  eagerAllReduceSeconds: 20 * US,
};
const H200 = {
  ...H100,
  gemm: fit(0.765, 0.82, 4, 3),
  gemmFp8: fit(0.55, 0.83, 6.4, 2),
  attention: { ...H100.attention, decodeMbu: 0.86 },
};
const L40S = {
  gemm: fit(0.727, 0.887, 1.4, 2.4),
  gemmFp8: fit(0.27, 0.91, 9.9, 1.3),
  attention: { launchSeconds: 22 * US, decodeMbu: 0.78, prefillMfu: 0.5, prefillHalfLength: 900 },
  allReduce: { 2: ring(5.5, 18.5, 60, 19), 4: ring(14, 2.6, 120, 3.9), 8: ring(30, 1.4, 240, 2) },
  eagerAllReduceSeconds: 43 * US,
};

type Relative = Pick<GpuSpec, 'gemm' | 'attention' | 'allReduce' | 'eagerAllReduceSeconds'> & { gemmFp8?: GemmFit };

interface GpuFacts {
  readonly name: string;
  readonly label: string;
  readonly memoryBytes: number;
  /** GB/s */
  readonly bandwidth: number;
  /** Dense teraflops. */
  readonly bf16: number;
  readonly fp8: number | null;
  readonly int8?: number;
  /** GB/s per direction. */
  readonly link: number;
  readonly nvlink: boolean;
  readonly fitted?: boolean;
}

function gpu(facts: GpuFacts, relative: Relative): GpuSpec {
  // vLLM: 70 GiB and more, but not an A100.
  const isLarge = facts.memoryBytes >= 70 * GIB && !facts.name.startsWith('a100');
  return {
    name: facts.name,
    label: facts.label,
    memoryBytes: facts.memoryBytes,
    bandwidth: facts.bandwidth * GB,
    bf16Flops: facts.bf16 * TF,
    fp8Flops: facts.fp8 === null ? null : facts.fp8 * TF,
    int8Flops: facts.int8 === undefined ? null : facts.int8 * TF,
    gemm: relative.gemm,
    gemmFp8: relative.gemmFp8 ?? { ...relative.gemm, mfu: relative.gemm.mfu * 0.85 },
    attention: relative.attention,
    allReduce: relative.allReduce,
    eagerAllReduceSeconds: relative.eagerAllReduceSeconds,
    linkBandwidth: facts.link * GB,
    hasNvlink: facts.nvlink,
    isFitted: facts.fitted ?? false,
    defaultMaxNumSeqs: isLarge ? 1024 : 256,
    defaultMaxNumBatchedTokens: isLarge ? 8192 : 2048,
  };
}

/** The same GPU without NVLink: its collectives go through PCIe. */
const overPcie = (relative: Relative): Relative => ({
  ...relative,
  allReduce: L40S.allReduce,
  eagerAllReduceSeconds: 43 * US,
});
/** NVLink of twice the speed. */
const fasterLinks: Relative['allReduce'] = {
  2: ring(4.3, 524, 25, 628),
  4: ring(4.8, 276, 28, 698),
  8: ring(5.2, 196, 38, 718),
};

export const GPUS: readonly GpuSpec[] = [
  gpu(
    {
      name: 'a100-40gb',
      label: 'A100 SXM 40GB',
      memoryBytes: 42.4e9,
      bandwidth: 1555,
      bf16: 312,
      fp8: null,
      int8: 624,
      link: 300,
      nvlink: true,
      fitted: true,
    },
    A100,
  ),
  gpu(
    {
      name: 'a100-80gb',
      label: 'A100 SXM 80GB',
      memoryBytes: 85e9,
      bandwidth: 2039,
      bf16: 312,
      fp8: null,
      int8: 624,
      link: 300,
      nvlink: true,
      fitted: true,
    },
    A100,
  ),
  gpu(
    {
      name: 'a100-80gb-pcie',
      label: 'A100 PCIe 80GB',
      memoryBytes: 85e9,
      bandwidth: 1935,
      bf16: 312,
      fp8: null,
      int8: 624,
      link: 32,
      nvlink: false,
    },
    overPcie(A100),
  ),
  gpu(
    {
      name: 'h100',
      label: 'H100 SXM 80GB',
      memoryBytes: 85e9,
      bandwidth: 3350,
      bf16: 989,
      fp8: 1978,
      int8: 1978,
      link: 450,
      nvlink: true,
      fitted: true,
    },
    H100,
  ),
  gpu(
    {
      name: 'h100-pcie',
      label: 'H100 PCIe 80GB',
      memoryBytes: 85e9,
      bandwidth: 2000,
      bf16: 756.5,
      fp8: 1513,
      int8: 1513,
      link: 64,
      nvlink: false,
    },
    overPcie(H100),
  ),
  gpu(
    {
      name: 'h100-nvl',
      label: 'H100 NVL 94GB',
      memoryBytes: 100e9,
      bandwidth: 3900,
      bf16: 835,
      fp8: 1671,
      int8: 1671,
      link: 300,
      nvlink: true,
    },
    H100,
  ),
  gpu(
    {
      name: 'h200',
      label: 'H200 SXM 141GB',
      memoryBytes: 150.1e9,
      bandwidth: 4800,
      bf16: 989,
      fp8: 1978,
      int8: 1978,
      link: 450,
      nvlink: true,
      fitted: true,
    },
    H200,
  ),
  gpu(
    {
      name: 'b200',
      label: 'B200 SXM 180GB',
      memoryBytes: 180 * GIB,
      bandwidth: 7700,
      bf16: 2250,
      fp8: 4500,
      int8: 4500,
      link: 900,
      nvlink: true,
    },
    { ...H200, allReduce: fasterLinks },
  ),
  gpu(
    {
      name: 'gb200',
      label: 'GB200',
      memoryBytes: 189_471 * 2 ** 20,
      bandwidth: 8000,
      bf16: 2500,
      fp8: 5000,
      int8: 5000,
      link: 900,
      nvlink: true,
    },
    { ...H200, allReduce: fasterLinks },
  ),
  gpu(
    {
      name: 'l4',
      label: 'L4 24GB',
      memoryBytes: 22.5 * GIB,
      bandwidth: 300,
      bf16: 121,
      fp8: 242,
      int8: 242,
      link: 32,
      nvlink: false,
    },
    L40S,
  ),
  gpu(
    {
      name: 'l40s',
      label: 'L40S 48GB',
      memoryBytes: 44.5 * GIB,
      bandwidth: 864,
      bf16: 362,
      fp8: 733,
      int8: 733,
      link: 32,
      nvlink: false,
      fitted: true,
    },
    L40S,
  ),
  gpu(
    {
      name: 'rtx-pro-6000',
      label: 'RTX PRO 6000 96GB',
      memoryBytes: 97_887 * 2 ** 20,
      bandwidth: 1792,
      bf16: 468,
      fp8: 936,
      int8: 936,
      link: 64,
      nvlink: false,
    },
    L40S,
  ),
  gpu(
    {
      name: 'rtx-3090',
      label: 'RTX 3090 24GB',
      memoryBytes: 23.58 * GIB,
      bandwidth: 936,
      bf16: 71,
      fp8: null,
      int8: 142,
      link: 16,
      nvlink: false,
    },
    overPcie(A100),
  ),
  gpu(
    {
      name: 'rtx-4090',
      label: 'RTX 4090 24GB',
      memoryBytes: 23.52 * GIB,
      bandwidth: 1008,
      bf16: 165.2,
      fp8: 330.3,
      int8: 330.3,
      link: 32,
      nvlink: false,
    },
    L40S,
  ),
  gpu(
    {
      name: 'rtx-5090',
      label: 'RTX 5090 32GB',
      memoryBytes: 31.36 * GIB,
      bandwidth: 1792,
      bf16: 209.5,
      fp8: 419,
      int8: 419,
      link: 64,
      nvlink: false,
    },
    L40S,
  ),
  gpu(
    {
      name: 'a10g',
      label: 'A10G 24GB',
      memoryBytes: 22.05 * GIB,
      bandwidth: 600,
      bf16: 70,
      fp8: null,
      int8: 140,
      link: 32,
      nvlink: false,
    },
    overPcie(A100),
  ),
  gpu(
    {
      name: 't4',
      label: 'T4 16GB',
      memoryBytes: 14.58 * GIB,
      bandwidth: 320,
      bf16: 65,
      fp8: null,
      int8: 130,
      link: 16,
      nvlink: false,
    },
    overPcie(A100),
  ),
];
