// Seconds of one step on GPUs: every matrix product of the model's shape by a fitted smooth roofline, attention by bytes and
// flops, two all-reduces per layer, element-wise traffic, the engine's own time. Allocates nothing per step.

import type { AllReduceFit, GemmFit, GpuSpec } from '../catalogue/gpus.ts';
import {
  type ModelShape,
  type Parallelism,
  type WeightDtype,
  weightBytesPerParameter,
} from '../catalogue/model-shape.ts';
import type { StepCost, StepLoad } from '../step-cost.ts';
import type { EngineProfile } from './engine-profile.ts';
import { type KvCacheDtype, kvBytesPerLayer } from './kv-memory.ts';
import { arithmetic, type CutProduct, cutProduct, productSeconds } from './matrix-product-cost.ts';

/** Steps of up to so many tokens replay a CUDA graph. */
const LARGEST_GRAPH = 512;
/** From here an all-reduce is NCCL's ring. */
const RING_BYTES = 8e6;
const ELEMENTWISE_LAUNCH_SECONDS = 5e-6;
const PREFILL_LAUNCH_SECONDS = 13e-6;
const ELEMENTWISE_MBU = 0.8;
/** Grouped products of experts reach less of the peak than one large product. */
const EXPERT_MFU_SHARE = 0.7;
/** Launching a layer's kernels one by one from Python takes about so long, whatever the GPU. */
const EAGER_LAYER_SECONDS = 250e-6;
/** More than eight GPUs: through the network. */
const NETWORK: AllReduceFit = {
  alphaSeconds: 25e-6,
  smallBandwidth: 20e9,
  ringAlphaSeconds: 90e-6,
  busBandwidth: 45e9,
};

export interface RooflineOptions {
  readonly gpu: GpuSpec;
  readonly parallelism: Parallelism;
  readonly weightDtype: WeightDtype;
  readonly kvDtype: KvCacheDtype;
  readonly engine: EngineProfile;
  readonly isEager: boolean;
}

/** Seconds of one step by cause. */
export interface StepParts {
  readonly matrixSeconds: number;
  readonly expertSeconds: number;
  readonly decodeAttentionSeconds: number;
  readonly prefillAttentionSeconds: number;
  readonly elementwiseSeconds: number;
  readonly allReduceSeconds: number;
  readonly logitsSeconds: number;
  readonly launchSeconds: number;
  readonly pipelineSeconds: number;
  readonly engineSeconds: number;
}

const MATRIX = 0;
const EXPERTS = 1;
const DECODE = 2;
const PREFILL = 3;
const ELEMENTWISE = 4;
const ALL_REDUCE = 5;
const LOGITS = 6;
const LAUNCH = 7;
const PIPELINE = 8;
const ENGINE = 9;
const NUM_PARTS = 10;

interface Attention {
  readonly numLayers: number;
  readonly window: number;
  /** One layer, one key, on one GPU. */
  readonly keyBytes: number;
  /** One query and one key, on one GPU. */
  readonly pairFlops: number;
}

export class RooflineCost implements StepCost {
  readonly requestOverheadSeconds: number;
  readonly #options: RooflineOptions;
  readonly #shape: ModelShape;
  readonly #products: readonly CutProduct[];
  readonly #head: CutProduct | null;
  readonly #attentions: readonly Attention[];
  readonly #gemm: GemmFit;
  readonly #peak: number;
  readonly #weightBytes: { readonly layers: number; readonly experts: number; readonly rest: number };
  readonly #allReduce: AllReduceFit | null;
  /** Bytes of element-wise traffic of one token in one layer. */
  readonly #elementwiseBytes: number;
  readonly #parts = new Float64Array(NUM_PARTS);

  constructor(shape: ModelShape, options: RooflineOptions) {
    const { gpu, weightDtype, parallelism } = options;
    const tp = parallelism.tensorParallelSize;
    this.#options = options;
    this.#shape = shape;
    this.requestOverheadSeconds = options.engine.requestSeconds;
    this.#weightBytes = weightBytesPerParameter(weightDtype);
    const [gemm, peak] = arithmetic(gpu, weightDtype);
    this.#gemm = gemm;
    this.#peak = peak;
    const layers = { fit: gemm, peak, bandwidth: gpu.bandwidth, weightBytes: this.#weightBytes.layers };
    this.#products = shape.products
      .filter(({ rows }) => rows === 'T')
      .map((each) => cutProduct(each, shape, tp, layers));
    const head = shape.products.find(({ rows }) => rows === 'R');
    const logits = { fit: gpu.gemm, peak: gpu.bf16Flops, bandwidth: gpu.bandwidth, weightBytes: 2 };
    this.#head = head === undefined ? null : cutProduct(head, shape, tp, logits);
    this.#attentions = shape.attentions.map((each) => ({
      numLayers: each.numLayers,
      window: each.window,
      keyBytes: kvBytesPerLayer(each, { kvDtype: options.kvDtype, tensorParallelSize: tp }),
      pairFlops: (2 * each.numHeads * (each.headDim + each.valueDim)) / tp,
    }));
    this.#allReduce = allReduceFit(gpu, tp);
    const { hiddenSize, intermediateSize, numHeads, numKvHeads, headDim } = shape;
    const heads = numHeads / tp + 2 * Math.max(1, numKvHeads / tp);
    this.#elementwiseBytes = 2 * (10 * hiddenSize + (3 * intermediateSize) / tp + 3 * heads * headDim);
  }

  stepSeconds(load: StepLoad): number {
    if (load.numTokens <= 0) return 0;
    this.#measure(load);
    let sum = 0;
    for (let i = 0; i < NUM_PARTS; i++) sum += this.#parts[i]!;
    return sum;
  }

  /** The same, by cause. */
  explain(load: StepLoad): StepParts {
    this.#parts.fill(0);
    if (load.numTokens > 0) this.#measure(load);
    const p = this.#parts;
    return {
      matrixSeconds: p[MATRIX]!,
      expertSeconds: p[EXPERTS]!,
      decodeAttentionSeconds: p[DECODE]!,
      prefillAttentionSeconds: p[PREFILL]!,
      elementwiseSeconds: p[ELEMENTWISE]!,
      allReduceSeconds: p[ALL_REDUCE]!,
      logitsSeconds: p[LOGITS]!,
      launchSeconds: p[LAUNCH]!,
      pipelineSeconds: p[PIPELINE]!,
      engineSeconds: p[ENGINE]!,
    };
  }

  #measure(load: StepLoad): void {
    const { gpu, parallelism, engine, isEager } = this.#options;
    const { numLayers, hiddenSize, vocabSize } = this.#shape;
    const pp = parallelism.pipelineParallelSize;
    // A pipeline works on as many batches as it has stages: each is a part of the load and passes all layers.
    const numParts = Math.min(pp, Math.max(1, load.numSequences));
    const numTokens = load.numTokens / numParts;
    const isGraph = !isEager && numTokens <= LARGEST_GRAPH;
    const parts = this.#parts;
    parts[MATRIX] = this.#matrixSeconds(numTokens);
    parts[EXPERTS] = this.#expertSeconds(numTokens);
    this.#attentionSeconds(load, numParts);
    parts[ELEMENTWISE] =
      numLayers *
      (ELEMENTWISE_LAUNCH_SECONDS + (numTokens * this.#elementwiseBytes) / (gpu.bandwidth * ELEMENTWISE_MBU));
    parts[ALL_REDUCE] = 2 * numLayers * this.#allReduceSeconds(numTokens * hiddenSize * 2, isGraph);
    const numRows = Math.max(1, load.numSequences / numParts);
    parts[LOGITS] =
      (this.#head === null ? 0 : productSeconds(this.#head, numRows)) +
      engine.logitSeconds * load.numSequences * vocabSize;
    parts[PIPELINE] = (pp - 1) * (10e-6 + (numTokens * hiddenSize * 2) / gpu.linkBandwidth);
    parts[ENGINE] = engine.stepSeconds + engine.sequenceSeconds * load.numSequences;
    parts[LAUNCH] = 0;
    if (isEager) {
      let busy = 0;
      for (let i = MATRIX; i <= ALL_REDUCE; i++) busy += parts[i]!;
      parts[LAUNCH] = Math.max(0, numLayers * EAGER_LAYER_SECONDS - busy);
    }
  }

  #matrixSeconds(numTokens: number): number {
    let sum = 0;
    for (let i = 0; i < this.#products.length; i++) {
      const product = this.#products[i]!;
      sum += product.count * productSeconds(product, numTokens);
    }
    return sum;
  }

  /** Each token reads its experts; no expert is read twice. */
  #expertSeconds(numTokens: number): number {
    const { experts } = this.#shape;
    const { gpu, parallelism } = this.#options;
    let sum = 0;
    for (let i = 0; i < experts.length; i++) {
      const { numLayers, numExperts, topK, inputs, expertSize } = experts[i]!;
      const numUsed = numExperts * (1 - (1 - topK / numExperts) ** numTokens);
      const matrix = (3 * inputs * expertSize) / parallelism.tensorParallelSize;
      const rows = numTokens * topK;
      const flops = (2 * rows * matrix) / (this.#gemm.mfu * EXPERT_MFU_SHARE * this.#peak);
      const bytes = numUsed * matrix * this.#weightBytes.experts + 2 * rows * (inputs + expertSize);
      const p = this.#gemm.smoothness;
      const traffic = bytes / (this.#gemm.mbu * gpu.bandwidth);
      sum += numLayers * (2 * this.#gemm.launchSeconds + (flops ** p + traffic ** p) ** (1 / p));
    }
    return sum;
  }

  #attentionSeconds(load: StepLoad, numParts: number): void {
    const { gpu } = this.#options;
    const { attention, bandwidth, bf16Flops } = gpu;
    const { numDecodes, decodeContextTokens, numPrefillTokens, prefillPairs, numSequences } = load;
    const meanContext = numDecodes === 0 ? 0 : decodeContextTokens / numDecodes;
    const numPrefills = Math.max(1, numSequences - numDecodes);
    // Keys of the last query of an average chunk: pairs per token, and half of its own length.
    const numKeys = numPrefillTokens === 0 ? 0 : prefillPairs / numPrefillTokens + numPrefillTokens / numPrefills / 2;
    let decode = 0;
    let prefill = 0;
    for (let i = 0; i < this.#attentions.length; i++) {
      const { numLayers, window, keyBytes, pairFlops } = this.#attentions[i]!;
      if (numDecodes > 0) {
        const keys = numDecodes * (window > 0 ? Math.min(meanContext, window) : meanContext);
        const bytes = (keys * keyBytes) / (bandwidth * attention.decodeMbu);
        const flops = (keys * pairFlops) / (bf16Flops * 0.5);
        decode += numLayers * (attention.launchSeconds + Math.max(bytes, flops) / numParts);
      }
      if (numPrefillTokens > 0) {
        const pairs = window > 0 ? Math.min(prefillPairs, numPrefillTokens * window) : prefillPairs;
        const reach = (attention.prefillMfu * numKeys) / (numKeys + attention.prefillHalfLength);
        const visible = window > 0 ? Math.min(numKeys, window + numPrefillTokens / numPrefills) : numKeys;
        const bytes = (numPrefills * visible * keyBytes) / (bandwidth * attention.decodeMbu);
        prefill +=
          numLayers * (PREFILL_LAUNCH_SECONDS + Math.max((pairs * pairFlops) / (bf16Flops * reach), bytes) / numParts);
      }
    }
    this.#parts[DECODE] = decode;
    this.#parts[PREFILL] = prefill;
  }

  #allReduceSeconds(bytes: number, isGraph: boolean): number {
    const fit = this.#allReduce;
    if (fit === null) return 0;
    const n = this.#options.parallelism.tensorParallelSize;
    const seconds =
      bytes <= RING_BYTES
        ? fit.alphaSeconds + bytes / fit.smallBandwidth
        : fit.ringAlphaSeconds + (((2 * (n - 1)) / n) * bytes) / fit.busBandwidth;
    return isGraph ? seconds : Math.max(seconds, this.#options.gpu.eagerAllReduceSeconds);
  }
}

function allReduceFit(gpu: GpuSpec, tp: number): AllReduceFit | null {
  if (tp === 1) return null;
  const size = Object.keys(gpu.allReduce)
    .map(Number)
    .sort((a, b) => a - b)
    .find((each) => each >= tp);
  return size === undefined ? NETWORK : gpu.allReduce[size]!;
}
