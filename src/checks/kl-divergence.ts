// Distance of an implementation's logits to the float32 oracle, exactly as the reference data's measure_accuracy.py does it:
// KL(oracle || other) per position over 65 classes, the oracle's 64 best tokens and all others as one.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';

export interface Oracle {
  readonly windowTokens: number;
  readonly numWindows: number;
  readonly top: number;
  readonly tokenIds: readonly number[];
  /** [positions, top] */
  readonly topIds: Uint16Array;
  readonly topLogits: Float32Array;
  /** [positions] over the whole vocabulary. */
  readonly logSumExp: Float32Array;
}

export interface Distance {
  readonly klMean: number;
  readonly klMedian: number;
  readonly kl99: number;
  readonly top1Agreement: number;
  readonly perplexity: number;
}

export function readOracle(folder: string): Oracle {
  const meta = JSON.parse(readFileSync(join(folder, 'oracle.json'), 'utf8'));
  const raw = readFileSync(join(folder, 'oracle-top64.bin'));
  const field = (name: string) => {
    const { offset, shape } = meta.layout.find((entry: { field: string }) => entry.field === name);
    return { start: raw.byteOffset + offset, length: shape.reduce((a: number, b: number) => a * b, 1) };
  };
  const ids = field('ids');
  const logits = field('logits');
  const logSumExp = field('logSumExp');
  return {
    windowTokens: meta.window,
    numWindows: meta.numWindows,
    top: meta.top,
    tokenIds: meta.ids,
    topIds: new Uint16Array(raw.buffer.slice(ids.start, ids.start + ids.length * 2)),
    topLogits: new Float32Array(raw.buffer.slice(logits.start, logits.start + logits.length * 4)),
    logSumExp: new Float32Array(raw.buffer.slice(logSumExp.start, logSumExp.start + logSumExp.length * 4)),
  };
}

/** Feed the logits [windowTokens, vocabulary] of each window in order, then read the result. */
export class DistanceMeter {
  readonly #oracle: Oracle;
  readonly #kl: number[] = [];
  #numAgree = 0;
  #nll = 0;
  #numPredicted = 0;

  constructor(oracle: Oracle) {
    this.#oracle = oracle;
  }

  addWindow(window: number, logits: Float32Array): void {
    const { windowTokens, top, tokenIds, topIds, topLogits, logSumExp } = this.#oracle;
    const vocab = logits.length / windowTokens;
    for (let row = 0; row < windowTokens; row++) {
      const position = window * windowTokens + row;
      const base = row * vocab;
      let max = Number.NEGATIVE_INFINITY;
      let best = 0;
      for (let i = 0; i < vocab; i++) {
        if (logits[base + i]! > max) {
          max = logits[base + i]!;
          best = i;
        }
      }
      let sum = 0;
      for (let i = 0; i < vocab; i++) sum += Math.exp(logits[base + i]! - max);
      const logTotal = max + Math.log(sum);
      let kl = 0;
      let massP = 0;
      let massQ = 0;
      for (let k = 0; k < top; k++) {
        const p = topLogits[position * top + k]! - logSumExp[position]!;
        const q = logits[base + topIds[position * top + k]!]! - logTotal;
        kl += Math.exp(p) * (p - q);
        massP += Math.exp(p);
        massQ += Math.exp(q);
      }
      const restP = Math.max(1 - massP, 1e-12);
      const restQ = Math.max(1 - massQ, 1e-12);
      this.#kl.push(Math.max(0, kl + restP * Math.log(restP / restQ)));
      if (best === topIds[position * top]) this.#numAgree++;
      if (row < windowTokens - 1) {
        this.#nll -= logits[base + tokenIds[position + 1]!]! - logTotal;
        this.#numPredicted++;
      }
    }
  }

  result(): Distance {
    const sorted = Float64Array.from(this.#kl).sort();
    return {
      klMean: this.#kl.reduce((a, b) => a + b, 0) / sorted.length,
      klMedian: percentile(sorted, 0.5),
      kl99: percentile(sorted, 0.99),
      top1Agreement: this.#numAgree / sorted.length,
      perplexity: Math.exp(this.#nll / this.#numPredicted),
    };
  }
}

/** Linear interpolation between ranks, as numpy. */
function percentile(sorted: Float64Array, share: number): number {
  const rank = share * (sorted.length - 1);
  const low = Math.floor(rank);
  const high = Math.min(low + 1, sorted.length - 1);
  return sorted[low]! + (sorted[high]! - sorted[low]!) * (rank - low);
}
