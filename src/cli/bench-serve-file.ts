// Where `bench serve` saves its result: vLLM's file name and forms.

import { appendFileSync, existsSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { ServeFacts } from '../bench/serve-result.ts';
import { PagodaError } from '../errors.ts';
import { makeFolder } from '../make-folder.ts';
import type { BenchServeFlags } from './bench-serve-flags.ts';

/** Returns the path. Throws bad_config where it cannot be written. */
export function saveResult(result: unknown, facts: ServeFacts, flags: BenchServeFlags): string {
  const folder = flags.resultDir ?? '.';
  const path = join(folder, flags.resultFilename ?? resultFileName(facts));
  const text = JSON.stringify(result);
  try {
    makeFolder(folder);
    if (flags.appendResult === true) {
      const separator = existsSync(path) && statSync(path).size > 0 ? '\n' : '';
      appendFileSync(path, `${separator}${text}`);
    } else writeFileSync(path, text);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new PagodaError('bad_config', `The result cannot be written to ${path}: ${reason}`, {
      param: '--result-dir',
    });
  }
  return path;
}

export function resultFileName(facts: ServeFacts): string {
  const { label, backend, requestRate, maxConcurrency, modelId, date } = facts;
  const rate = requestRate === null ? 'trace' : rateText(requestRate);
  const limit = maxConcurrency === null ? '' : `-concurrency${maxConcurrency}`;
  const model = modelId.split('/').at(-1) ?? modelId;
  return `${label ?? backend}-${rate}qps${limit}-${model}-${date}.json`.replace(/[^\w.+-]/g, '_');
}

/** Python writes 4.0 for a whole rate. */
function rateText(rate: number): string {
  if (!Number.isFinite(rate)) return 'inf';
  return Number.isInteger(rate) ? rate.toFixed(1) : String(rate);
}
