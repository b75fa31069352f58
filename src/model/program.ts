// A Program says what a model computes, once, in the order of the paper: a flat list of ops over named values with symbolic
// row counts. Devices execute it (reference interprets it, cpu lowers it); the cost model reads the same list.

/** T: tokens in the step. R: rows that need logits. */
export type RowCount = 'T' | 'R';

/** A float32 activation matrix [rows, cols], row-major. */
export interface Value {
  readonly id: number;
  readonly rows: RowCount;
  readonly cols: number;
  /** For people: printed by `inspect` and in errors. */
  readonly label: string;
}

/** A weight by canonical name. A matrix is [rows = outputs, cols = inputs]; a vector is [1, cols]. */
export interface WeightRef {
  readonly name: string;
  readonly rows: number;
  readonly cols: number;
}

export type Activation = 'silu' | 'gelu' | 'geluTanh' | 'relu';

/** Rotary embedding: angle of pair i at position p is p * inverseFrequencies[i] in float32; cos and sin are multiplied by `magnitude`. */
export interface RopeTable {
  /** Float64, one per rotated pair (rotaryDim / 2 of them). */
  readonly inverseFrequencies: readonly number[];
  readonly magnitude: number;
}

/** `half`: pair i is (x[i], x[i + rotaryDim/2]), as Hugging Face and GPT-NeoX. `interleaved`: (x[2i], x[2i+1]), as GGUF llama. */
export type RopeStyle = 'half' | 'interleaved';

export type Op =
  /** out[t] = weight[tokenId[t]] * scale */
  | { readonly kind: 'embed'; readonly out: Value; readonly weight: WeightRef; readonly scale: number }
  /** x[t] += weight[position[t] + offset] (learned positions) */
  | { readonly kind: 'addPosition'; readonly x: Value; readonly weight: WeightRef; readonly offset: number }
  /** Each run of `groupCols` columns is normalised on its own: y = x / sqrt(mean(x^2) + eps) * weight[col % groupCols]. groupCols = cols for a plain norm, headDim for q/k norms. */
  | {
      readonly kind: 'rmsNorm';
      readonly in: Value;
      readonly out: Value;
      readonly weight: WeightRef;
      readonly eps: number;
      readonly groupCols: number;
    }
  | {
      readonly kind: 'layerNorm';
      readonly in: Value;
      readonly out: Value;
      readonly weight: WeightRef;
      readonly bias: WeightRef | null;
      readonly eps: number;
    }
  /** out = in @ weight^T + bias */
  | {
      readonly kind: 'linear';
      readonly in: Value;
      readonly out: Value;
      readonly weight: WeightRef;
      readonly bias: WeightRef | null;
    }
  /** In place on x [rows, numHeads * headDim]; the first rotaryDim columns of each head rotate. */
  | {
      readonly kind: 'rope';
      readonly x: Value;
      readonly numHeads: number;
      readonly headDim: number;
      readonly rotaryDim: number;
      readonly style: RopeStyle;
      readonly table: RopeTable;
    }
  /** Writes k and v [T, numKvHeads * headDim] of every token into the paged cache of `layer` (index into Program.kvLayers). */
  | { readonly kind: 'kvWrite'; readonly k: Value; readonly v: Value; readonly layer: number }
  /** Causal attention of q [T, numHeads * headDim] over the paged cache; score = softcap(q.k * scale); key j is visible to query i when j <= i and (window = 0 or i - j < window). softcap(s) = cap * tanh(s / cap); 0 = none. */
  | {
      readonly kind: 'attention';
      readonly q: Value;
      readonly out: Value;
      readonly layer: number;
      readonly numHeads: number;
      readonly scale: number;
      readonly softcap: number;
    }
  /** out = activation(gate) * up */
  | {
      readonly kind: 'gatedActivation';
      readonly gate: Value;
      readonly up: Value;
      readonly out: Value;
      readonly activation: Activation;
    }
  | { readonly kind: 'activation'; readonly in: Value; readonly out: Value; readonly activation: Activation }
  | { readonly kind: 'add'; readonly a: Value; readonly b: Value; readonly out: Value }
  /** out [R, cols] = the rows of `in` [T, cols] that need logits */
  | { readonly kind: 'selectRows'; readonly in: Value; readonly out: Value }
  | MoeOp
  /** x = cap * tanh(x / cap), in place (Gemma 2 final logits) */
  | { readonly kind: 'softcap'; readonly x: Value; readonly cap: number }
  /** Chooses a token from the logits [R, vocabulary] of each sequence that samples. Always the last op. */
  | { readonly kind: 'sample'; readonly logits: Value };

/**
 * Mixture of experts. scores = softmax over all experts of in @ router^T (float32); the topK best are used, in falling order of
 * score, ties to the lower index. `renormalise`: their weights are divided by their sum.
 * out = sum over the chosen, in that order, of weight * down_e(activation(gate_e(in)) * up_e(in)), plus the shared expert.
 * Stacked weights: gate and up are [numExperts * expertCols, cols], down is [numExperts * cols, expertCols].
 */
export interface MoeOp {
  readonly kind: 'moe';
  readonly in: Value;
  readonly out: Value;
  readonly router: WeightRef;
  readonly gate: WeightRef;
  readonly up: WeightRef;
  readonly down: WeightRef;
  readonly numExperts: number;
  readonly topK: number;
  readonly expertCols: number;
  readonly renormalise: boolean;
  readonly activation: Activation;
  /** Runs for every token; its output is multiplied by sigmoid(in @ gateWeight^T) (gateWeight is [1, cols]; null = 1). */
  readonly shared: {
    readonly gate: WeightRef;
    readonly up: WeightRef;
    readonly down: WeightRef;
    readonly cols: number;
    readonly gateWeight: WeightRef | null;
  } | null;
}

/** What one attention layer keeps in the KV cache. */
export interface KvLayer {
  readonly numKvHeads: number;
  readonly headDim: number;
  /** 0 = attends to everything before it; W = itself and the W - 1 tokens before. */
  readonly window: number;
}

export interface Program {
  readonly ops: readonly Op[];
  readonly numValues: number;
  /** Attention layers in order; `layer` of kvWrite and attention indexes this. */
  readonly kvLayers: readonly KvLayer[];
  readonly vocabSize: number;
  readonly hiddenSize: number;
}

/** Appends ops; each method returns the value it makes, so that a model file reads like the paper. */
export class ProgramBuilder {
  readonly #ops: Op[] = [];
  readonly #kvLayers: KvLayer[] = [];
  #numValues = 0;

  value(rows: RowCount, cols: number, label: string): Value {
    return { id: this.#numValues++, rows, cols, label };
  }

  embed(weight: WeightRef, scale = 1): Value {
    const out = this.value('T', weight.cols, 'hidden');
    this.#ops.push({ kind: 'embed', out, weight, scale });
    return out;
  }

  addPosition(x: Value, weight: WeightRef, offset = 0): Value {
    this.#ops.push({ kind: 'addPosition', x, weight, offset });
    return x;
  }

  rmsNorm(x: Value, weight: WeightRef, eps: number, groupCols = x.cols): Value {
    const out = this.value(x.rows, x.cols, `${weight.name}(${x.label})`);
    this.#ops.push({ kind: 'rmsNorm', in: x, out, weight, eps, groupCols });
    return out;
  }

  layerNorm(x: Value, weight: WeightRef, bias: WeightRef | null, eps: number): Value {
    const out = this.value(x.rows, x.cols, `${weight.name}(${x.label})`);
    this.#ops.push({ kind: 'layerNorm', in: x, out, weight, bias, eps });
    return out;
  }

  linear(x: Value, weight: WeightRef, bias: WeightRef | null = null): Value {
    const out = this.value(x.rows, weight.rows, weight.name);
    this.#ops.push({ kind: 'linear', in: x, out, weight, bias });
    return out;
  }

  rope(
    x: Value,
    shape: { numHeads: number; headDim: number; rotaryDim: number; style: RopeStyle },
    table: RopeTable,
  ): Value {
    this.#ops.push({ kind: 'rope', x, ...shape, table });
    return x;
  }

  /** kvWrite + attention of one layer; returns [T, numHeads * headDim]. */
  attention(
    q: Value,
    k: Value,
    v: Value,
    layer: KvLayer,
    options: { numHeads: number; scale: number; softcap?: number },
  ): Value {
    const index = this.#kvLayers.push(layer) - 1;
    const out = this.value('T', options.numHeads * layer.headDim, `attention.${index}`);
    this.#ops.push({ kind: 'kvWrite', k, v, layer: index });
    this.#ops.push({
      kind: 'attention',
      q,
      out,
      layer: index,
      numHeads: options.numHeads,
      scale: options.scale,
      softcap: options.softcap ?? 0,
    });
    return out;
  }

  gatedActivation(gate: Value, up: Value, activation: Activation): Value {
    const out = this.value(gate.rows, gate.cols, `${activation}(${gate.label})`);
    this.#ops.push({ kind: 'gatedActivation', gate, up, out, activation });
    return out;
  }

  activation(x: Value, activation: Activation): Value {
    const out = this.value(x.rows, x.cols, `${activation}(${x.label})`);
    this.#ops.push({ kind: 'activation', in: x, out, activation });
    return out;
  }

  add(a: Value, b: Value): Value {
    const out = this.value(a.rows, a.cols, 'hidden');
    this.#ops.push({ kind: 'add', a, b, out });
    return out;
  }

  selectRows(x: Value): Value {
    const out = this.value('R', x.cols, 'logitRows');
    this.#ops.push({ kind: 'selectRows', in: x, out });
    return out;
  }

  moe(x: Value, op: Omit<MoeOp, 'kind' | 'in' | 'out'>): Value {
    const out = this.value(x.rows, x.cols, 'moe');
    this.#ops.push({ kind: 'moe', in: x, out, ...op });
    return out;
  }

  softcap(x: Value, cap: number): Value {
    this.#ops.push({ kind: 'softcap', x, cap });
    return x;
  }

  sample(logits: Value): void {
    this.#ops.push({ kind: 'sample', logits });
  }

  build(hiddenSize: number, vocabSize: number): Program {
    return { ops: this.#ops, numValues: this.#numValues, kvLayers: this.#kvLayers, vocabSize, hiddenSize };
  }
}
