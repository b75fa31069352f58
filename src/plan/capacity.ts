// How many requests the KV pool holds at once: by mean, P99 and full length under paging, and with the full length reserved for
// everybody, as engines did before paged attention.

import { blocksOfSequence } from '../sim/cost/kv-memory.ts';
import type { ResolvedDeployment } from './resolve-deployment.ts';
import type { LengthFigures } from './workload-sample.ts';

export interface CapacityRow {
  readonly name: 'steady' | 'mean' | 'p99' | 'full' | 'static';
  readonly label: string;
  readonly numTokens: number;
  readonly blockSize: number;
  /** Over all replicas. */
  readonly numRequests: number;
}

/** Null when the pool's size is not known. `lengths` null: only full-length rows. */
export function capacityRows(resolved: ResolvedDeployment, lengths: LengthFigures | null): CapacityRow[] | null {
  const { ledger, deployment } = resolved;
  if (ledger.kvPoolBytes === null) return null;
  const { blockSize, maxModelLen } = deployment.flags;
  const row = (name: CapacityRow['name'], label: string, numTokens: number, size = blockSize): CapacityRow => ({
    name,
    label,
    numTokens,
    blockSize: size,
    numRequests: requestsThatFit(resolved, { numTokens, blockSize: size, isStatic: name === 'static' }),
  });
  const rows: CapacityRow[] = [];
  if (lengths !== null) {
    const { meanPromptTokens, meanOutputTokens, meanTokens, p99Tokens } = lengths;
    rows.push(
      row('steady', 'average while running (prompt + half the output)', meanPromptTokens + meanOutputTokens / 2),
      row('mean', 'mean length, nobody preempted', meanTokens),
      row('p99', 'P99 length', p99Tokens),
    );
    const other = blockSize === 32 ? 16 : 32;
    rows.push(row('mean', `mean length, blocks of ${other}`, meanTokens, other));
  }
  rows.push(
    row('full', 'full length (--max-model-len)', maxModelLen),
    row('static', 'static: full length reserved for everybody', maxModelLen),
  );
  return rows;
}

export interface FitQuestion {
  readonly numTokens: number;
  readonly blockSize: number;
  /** Windows free nothing that is reserved. */
  readonly isStatic: boolean;
}

export function requestsThatFit({ ledger, deployment }: ResolvedDeployment, question: FitQuestion): number {
  const windows = question.isStatic ? ledger.groupWindows.map(() => 0) : ledger.groupWindows;
  const blockBytes = (ledger.blockBytes / deployment.flags.blockSize) * question.blockSize;
  const numBlocks = Math.max(0, Math.floor((ledger.kvPoolBytes ?? 0) / blockBytes));
  const needed = blocksOfSequence(Math.ceil(question.numTokens), windows, question.blockSize);
  return Math.floor(numBlocks / needed) * deployment.numReplicas;
}
