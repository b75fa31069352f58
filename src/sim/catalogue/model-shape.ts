// What planning and timing need to know of a model: matrix products with how tensor parallelism cuts them, attention layers,
// experts and parameter counts. Made from the program that devices execute where there is one (shape-from-program.ts), else
// from the dimensions in config.json (shape-from-config.ts).

/** The same product in several layers: [rows, inputs] x [inputs, outputs]. */
export interface MatrixProduct {
  /** T: once per token of the step. R: once per sequence that needs logits. */
  readonly rows: 'T' | 'R';
  readonly inputs: number;
  readonly outputs: number;
  /** Further outputs that are heads of K and V: below one head per GPU they are copied, not cut. */
  readonly kvOutputs: number;
  /** Which side tensor parallelism cuts; none = every GPU computes all of it. */
  readonly split: 'outputs' | 'inputs' | 'none';
  /** How many of them the model has. */
  readonly count: number;
}

/** Layers that attend alike. */
export interface AttentionShape {
  readonly numLayers: number;
  readonly numHeads: number;
  readonly numKvHeads: number;
  /** Of a key; values may be narrower. */
  readonly headDim: number;
  readonly valueDim: number;
  /** 0 = full attention. */
  readonly window: number;
  /** Multi-head latent attention: one compressed vector per token, the same on every GPU; null otherwise. */
  readonly latent: { readonly rank: number; readonly ropeDim: number } | null;
}

export interface ExpertShape {
  readonly numLayers: number;
  readonly numExperts: number;
  readonly topK: number;
  readonly inputs: number;
  /** Inner columns of one expert. */
  readonly expertSize: number;
}

/** As stored: int4 covers GPTQ and AWQ, mxfp4 packs only the experts (gpt-oss). */
export type WeightDtype = 'f32' | 'bf16' | 'fp8' | 'int8' | 'int4' | 'mxfp4';

export interface ModelShape {
  readonly name: string;
  readonly architecture: string;
  readonly hiddenSize: number;
  readonly numLayers: number;
  readonly numHeads: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  /** Inner columns of the MLP that one token uses (experts: the chosen ones together). */
  readonly intermediateSize: number;
  readonly vocabSize: number;
  readonly contextLength: number;
  readonly products: readonly MatrixProduct[];
  readonly attentions: readonly AttentionShape[];
  readonly experts: readonly ExpertShape[];
  readonly embeddingParameters: number;
  /** 0 when the output matrix is the embedding. */
  readonly headParameters: number;
  /** Norms, biases and positions: every GPU has them all. */
  readonly smallParameters: number;
  readonly numParameters: number;
  readonly numActiveParameters: number;
  /** Bytes of the weights in the files, when they are here; else null and the format decides. */
  readonly storedWeightBytes: number | null;
  readonly weightDtype: WeightDtype;
}

/** Columns that one GPU of `tp` computes. */
export function outputsPerGpu(product: MatrixProduct, numKvHeads: number, tp: number): number {
  if (product.split !== 'outputs') return product.outputs + product.kvOutputs;
  return product.outputs / tp + product.kvOutputs * kvShare(numKvHeads, tp);
}

export function inputsPerGpu(product: MatrixProduct, tp: number): number {
  return product.split === 'inputs' ? product.inputs / tp : product.inputs;
}

/** Share of the K and V heads that one GPU holds. */
export function kvShare(numKvHeads: number, tp: number): number {
  return Math.max(1, numKvHeads / tp) / numKvHeads;
}

/** Parameters of all layers' matrices but the experts, on one GPU. */
export function productParameters(shape: ModelShape, tp: number): number {
  let sum = 0;
  for (const product of shape.products) {
    if (product.rows === 'R') continue; // the output matrix, counted as headParameters
    sum += product.count * inputsPerGpu(product, tp) * outputsPerGpu(product, shape.numKvHeads, tp);
  }
  return sum;
}

export function expertParameters(shape: ModelShape): number {
  return shape.experts.reduce(
    (sum, { numLayers, numExperts, inputs, expertSize }) => sum + numLayers * numExperts * 3 * inputs * expertSize,
    0,
  );
}

/** Bytes per parameter in the layers and in the experts; embedding, output matrix and the small rest stay 16 bit (f32: 32). */
export function weightBytesPerParameter(dtype: WeightDtype): { layers: number; experts: number; rest: number } {
  switch (dtype) {
    case 'f32':
      return { layers: 4, experts: 4, rest: 4 };
    case 'bf16':
      return { layers: 2, experts: 2, rest: 2 };
    case 'fp8':
    case 'int8':
      return { layers: 1, experts: 1, rest: 2 };
    case 'int4':
      // 4 bits and a 16-bit scale and zero per group of 128.
      return { layers: 0.53125, experts: 0.53125, rest: 2 };
    case 'mxfp4':
      // 4 bits and an 8-bit exponent per block of 32.
      return { layers: 2, experts: 0.53125, rest: 2 };
  }
}

export interface Parallelism {
  readonly tensorParallelSize: number;
  readonly pipelineParallelSize: number;
}

/** Layers of each pipeline stage: even, what is left over goes to the later stages but not to the last (vLLM's rule). */
export function stageLayers(numLayers: number, numStages: number): number[] {
  const stages = new Array<number>(numStages).fill(Math.floor(numLayers / numStages));
  for (let i = 0; i < numLayers % numStages; i++) stages[Math.max(0, numStages - 2 - i)]! += 1;
  return stages;
}
