// Prints the definitions of six load tools, with the figures of a run where there is one.

import { CONVENTIONS, type DefinitionRow, definitionRows, TOOLS } from '../bench/definitions.ts';
import type { RequestRecord } from '../bench/request-record.ts';
import type { CliIo } from './cli-io.ts';
import { table } from './table.ts';

export function printDefinitions(records: readonly RequestRecord[] | null, asJson: boolean, io: CliIo): void {
  io.stdout.write(asJson ? `${JSON.stringify(definitionsJson(records), null, 2)}\n` : definitionsText(records));
}

export function definitionsJson(records: readonly RequestRecord[] | null) {
  return {
    quantities: definitionRows(records).map(({ quantity, names, values }) => ({
      quantity,
      names,
      ...(values === null
        ? {}
        : {
            mean_ms: values.meanSeconds * 1000,
            median_ms: values.p50Seconds * 1000,
            p99_ms: values.p99Seconds * 1000,
            p99_nearest_rank_ms: values.p99NearestRankSeconds * 1000,
          }),
    })),
    conventions: CONVENTIONS,
  };
}

export function definitionsText(records: readonly RequestRecord[] | null): string {
  const rows = definitionRows(records);
  const hasValues = records !== null;
  const header = ['QUANTITY', ...TOOLS, ...(hasValues ? ['MEAN ms', 'MEDIAN ms', 'P99 ms', 'P99 MLPerf ms'] : [])];
  const body = rows.map((row) => [row.quantity, ...TOOLS.map((tool) => row.names[tool] ?? '-'), ...figures(row)]);
  const conventions = CONVENTIONS.flatMap(({ what, by }) =>
    TOOLS.flatMap((tool) => (by[tool] === undefined ? [] : [[what, tool, by[tool]]])),
  );
  return `${table(header, body)}\n${table(['CONVENTION', 'TOOL', ''], conventions)}`;
}

function figures({ values }: DefinitionRow): string[] {
  if (values === null) return [];
  const all = [values.meanSeconds, values.p50Seconds, values.p99Seconds, values.p99NearestRankSeconds];
  return all.map((seconds) => (seconds * 1000).toFixed(2));
}
