// One chapter of `npm run validate`: it recomputes published figures, gates them and adds its tables to docs/validation.md.

import type { Gates } from './gates.ts';

export interface ReportTable {
  readonly title: string;
  /** Markdown before the table. */
  readonly text: string;
  readonly header: readonly string[];
  readonly rows: ReadonlyArray<readonly string[]>;
}

export interface ValidationContext {
  readonly gates: Gates;
  /** Folder with the measured points and traces. */
  readonly sharedRoot: string;
  add(table: ReportTable): void;
}

export interface ValidationPart {
  /** For `--only`: `planner`, `serving`. */
  readonly name: string;
  run(context: ValidationContext): void | Promise<void>;
}

export const percent = (share: number, digits = 1): string => `${(100 * share).toFixed(digits)} %`;

export function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}

/** Mean of the absolute relative errors. */
export function meanAbsolute(errors: readonly number[]): number {
  return mean(errors.map(Math.abs));
}
