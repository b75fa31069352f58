// Seconds of a matrix product on one GPU: a smooth roofline whose constants were fitted to measured kernels (catalogue/gpus.ts).

import type { GemmFit, GpuSpec } from '../catalogue/gpus.ts';
import {
  inputsPerGpu,
  type MatrixProduct,
  type ModelShape,
  outputsPerGpu,
  type WeightDtype,
} from '../catalogue/model-shape.ts';

/** A matrix product with everything but the number of tokens worked out. */
export interface CutProduct {
  readonly count: number;
  readonly launchSeconds: number;
  readonly smoothness: number;
  readonly flopSecondsPerToken: number;
  readonly weightSeconds: number;
  readonly trafficSecondsPerToken: number;
}

export interface Arithmetic {
  readonly fit: GemmFit;
  readonly peak: number;
  readonly bandwidth: number;
  /** Per parameter. */
  readonly weightBytes: number;
}

/** [tokens, inputs] x [inputs, outputs] on one GPU. Activations are as wide as the arithmetic's inputs, results 16 bit. */
export function cutProduct(
  product: MatrixProduct,
  shape: ModelShape,
  tp: number,
  { fit, peak, bandwidth, weightBytes }: Arithmetic,
): CutProduct {
  const inputs = inputsPerGpu(product, tp);
  const outputs = outputsPerGpu(product, shape.numKvHeads, tp);
  const byteSeconds = 1 / (bandwidth * fit.mbu);
  return {
    count: product.count,
    launchSeconds: fit.launchSeconds,
    smoothness: fit.smoothness,
    flopSecondsPerToken: (2 * inputs * outputs) / (peak * fit.mfu),
    weightSeconds: weightBytes * inputs * outputs * byteSeconds,
    trafficSecondsPerToken: (Math.max(1, weightBytes) * inputs + 2 * outputs) * byteSeconds,
  };
}

export function productSeconds(product: CutProduct, numTokens: number): number {
  const p = product.smoothness;
  const compute = numTokens * product.flopSecondsPerToken;
  const traffic = product.weightSeconds + numTokens * product.trafficSecondsPerToken;
  return product.launchSeconds + (compute ** p + traffic ** p) ** (1 / p);
}

/** Which unit multiplies: 8-bit weights use 8-bit arithmetic where the GPU has it, else they are unpacked at some loss. */
export function arithmetic(gpu: GpuSpec, dtype: WeightDtype): [GemmFit, number] {
  const unpacked = (loss: number): [GemmFit, number] => [{ ...gpu.gemm, mfu: gpu.gemm.mfu * loss }, gpu.bf16Flops];
  switch (dtype) {
    case 'fp8':
      return gpu.fp8Flops === null ? unpacked(0.85) : [gpu.gemmFp8, gpu.fp8Flops];
    case 'int8':
      return gpu.int8Flops === null ? unpacked(0.85) : [gpu.gemmFp8, gpu.int8Flops];
    case 'int4':
      return unpacked(0.955);
    case 'f32':
      return [gpu.gemm, gpu.bf16Flops / 2];
    case 'mxfp4':
    case 'bf16':
      return [gpu.gemm, gpu.bf16Flops];
  }
}
