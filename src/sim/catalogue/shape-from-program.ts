// A model's shape read off its program: the same list of ops that devices execute, so that a plan cannot drift from the engine.
// Products with the same input are one (q, k and v; gate and up), as engines fuse them.

import type { ModelConfig } from '../../model/model-config.ts';
import type { Op, Program } from '../../model/program.ts';
import { programWeights } from '../../model/weight-specs.ts';
import {
  type AttentionShape,
  type ExpertShape,
  type MatrixProduct,
  type ModelShape,
  productParameters,
  type WeightDtype,
} from './model-shape.ts';

interface NamedShape {
  readonly name: string;
  readonly weightDtype: WeightDtype;
  readonly storedWeightBytes: number | null;
}

export function shapeFromProgram(config: ModelConfig, program: Program, named: NamedShape): ModelShape {
  const products = sameOnes(matrixProducts(program));
  const attentions = sameLayers(attentionShapes(program));
  const experts = sameLayers(expertShapes(program));
  const counts = parameterCounts(program);
  const first = attentions[0];
  const shape: ModelShape = {
    ...named,
    ...counts,
    architecture: config.architecture,
    hiddenSize: config.hiddenSize,
    numLayers: config.numLayers,
    numHeads: config.numHeads,
    numKvHeads: first?.numKvHeads ?? config.numKvHeads,
    headDim: config.headDim,
    intermediateSize: innerColumns(config),
    vocabSize: config.vocabSize,
    contextLength: config.contextLength,
    products,
    attentions,
    experts,
    numActiveParameters: 0,
  };
  return { ...shape, numActiveParameters: activeParameters(shape) };
}

/** Parameters that one token uses: everything but the experts it is not sent to. */
export function activeParameters(shape: ModelShape): number {
  const chosen = shape.experts.reduce(
    (sum, { numLayers, topK, inputs, expertSize }) => sum + numLayers * topK * 3 * inputs * expertSize,
    0,
  );
  return (
    productParameters(shape, 1) + chosen + shape.embeddingParameters + shape.headParameters + shape.smallParameters
  );
}

function innerColumns({ moe, intermediateSize }: ModelConfig): number {
  return moe === null ? intermediateSize : moe.topK * moe.expertIntermediateSize + moe.sharedIntermediateSize;
}

function matrixProducts(program: Program): MatrixProduct[] {
  const products: MatrixProduct[] = [];
  let lastInput = -1;
  for (const op of program.ops) {
    if (op.kind === 'moe') {
      products.push(...moeProducts(op));
      lastInput = -1;
    }
    if (op.kind !== 'linear') continue;
    const product = linearProduct(op);
    const before = products.at(-1);
    if (before !== undefined && lastInput === op.in.id && before.split === product.split) {
      products[products.length - 1] = {
        ...before,
        outputs: before.outputs + product.outputs,
        kvOutputs: before.kvOutputs + product.kvOutputs,
      };
    } else products.push(product);
    lastInput = op.in.id;
  }
  return products;
}

function linearProduct({ in: input, weight }: Op & { kind: 'linear' }): MatrixProduct {
  const isKv = /\.attn_[kv]\.weight$/.test(weight.name);
  return {
    rows: input.rows,
    inputs: weight.cols,
    outputs: isKv ? 0 : weight.rows,
    kvOutputs: isKv ? weight.rows : 0,
    split: /\.(attn_output|ffn_down)\.weight$/.test(weight.name) ? 'inputs' : 'outputs',
    count: 1,
  };
}

/** The router, and the shared expert as an MLP of its own; the routed experts are an ExpertShape. */
function moeProducts({ in: input, numExperts, shared }: Op & { kind: 'moe' }): MatrixProduct[] {
  const base = { rows: input.rows, kvOutputs: 0, count: 1 } as const;
  const products: MatrixProduct[] = [{ ...base, inputs: input.cols, outputs: numExperts, split: 'none' }];
  if (shared !== null) {
    products.push({ ...base, inputs: input.cols, outputs: 2 * shared.cols, split: 'outputs' });
    products.push({ ...base, inputs: shared.cols, outputs: input.cols, split: 'inputs' });
  }
  return products;
}

function attentionShapes(program: Program): AttentionShape[] {
  return program.ops.flatMap((op): AttentionShape[] => {
    if (op.kind !== 'attention') return [];
    const { numKvHeads, headDim, window } = program.kvLayers[op.layer]!;
    return [{ numLayers: 1, numHeads: op.numHeads, numKvHeads, headDim, valueDim: headDim, window, latent: null }];
  });
}

function expertShapes(program: Program): ExpertShape[] {
  return program.ops.flatMap((op): ExpertShape[] =>
    op.kind === 'moe'
      ? [{ numLayers: 1, numExperts: op.numExperts, topK: op.topK, inputs: op.in.cols, expertSize: op.expertCols }]
      : [],
  );
}

function parameterCounts(program: Program) {
  let embeddingParameters = 0;
  let headParameters = 0;
  let smallParameters = 0;
  let numParameters = 0;
  const isMatrix = /\.(attn_(q|k|v|qkv|output)|ffn_\w+)\.weight$/;
  const matrices = new Set<string>();
  for (const op of program.ops) if (op.kind === 'linear') matrices.add(op.weight.name);
  for (const { name, rows, cols } of programWeights(program)) {
    const size = rows * cols;
    numParameters += size;
    if (name === 'token_embd.weight') embeddingParameters += size;
    else if (name === 'output.weight') headParameters += size;
    else if (rows === 1 || !(matrices.has(name) || isMatrix.test(name))) smallParameters += size;
  }
  return { embeddingParameters, headParameters, smallParameters, numParameters };
}

/** Layers that are alike become one with their number, in order of first appearance. */
function sameLayers<T extends { readonly numLayers: number }>(items: readonly T[]): T[] {
  const byKey = new Map<string, T>();
  for (const item of items) {
    const key = JSON.stringify({ ...item, numLayers: 0 });
    const known = byKey.get(key);
    byKey.set(key, known === undefined ? item : { ...known, numLayers: known.numLayers + item.numLayers });
  }
  return [...byKey.values()];
}

function sameOnes(items: readonly MatrixProduct[]): MatrixProduct[] {
  const byKey = new Map<string, MatrixProduct>();
  for (const item of items) {
    const key = JSON.stringify({ ...item, count: 0 });
    const known = byKey.get(key);
    byKey.set(key, known === undefined ? item : { ...known, count: known.count + item.count });
  }
  return [...byKey.values()];
}
