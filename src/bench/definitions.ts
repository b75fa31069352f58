// The same word means different things in different load tools. Here the figures of one run are computed by each tool's own
// definition, side by side. Definitions as read from the tools' code and documents: vLLM `bench serve`, SGLang `bench_serving`,
// AIPerf (genai-perf's successor), GuideLLM, llmperf, MLPerf LoadGen.

import { e2eSeconds, type RequestRecord, tpotSeconds, ttftSeconds } from './request-record.ts';
import { mean, nearestRank, percentile, sorted } from './statistics.ts';

export const TOOLS = ['vLLM', 'SGLang', 'AIPerf', 'GuideLLM', 'llmperf', 'MLPerf'] as const;
export type Tool = (typeof TOOLS)[number];

type Seconds = readonly number[];

interface Definition {
  readonly quantity: string;
  /** What each tool calls it; a tool that does not report it is left out. */
  readonly names: Readonly<Partial<Record<Tool, string>>>;
  /** The values over which a tool takes mean and percentiles. */
  values(records: readonly RequestRecord[]): Seconds;
}

const present = (values: ReadonlyArray<number | null>): number[] => values.filter((value) => value !== null);

export const DEFINITIONS: readonly Definition[] = [
  {
    quantity: 'first event with a choice, also an empty one',
    names: { vLLM: 'TTFT' },
    values: (records) =>
      present(records.map((r) => (r.firstChoiceSeconds === null ? null : r.firstChoiceSeconds - r.scheduledSeconds))),
  },
  {
    quantity: 'first event with tokens',
    names: { SGLang: 'TTFT', AIPerf: 'TTFT', GuideLLM: 'TTFT', llmperf: 'TTFT', MLPerf: 'TTFT' },
    values: (records) => present(records.map(ttftSeconds)),
  },
  {
    quantity: 'second event with tokens minus first',
    names: { AIPerf: 'TTST' },
    values: (records) =>
      records.flatMap(({ tokenSeconds: [first, second] }) =>
        first === undefined || second === undefined ? [] : [second - first],
      ),
  },
  {
    quantity: 'per request: (E2E - TTFT) / (n - 1)',
    names: { vLLM: 'TPOT', SGLang: 'TPOT', AIPerf: 'ITL', GuideLLM: 'ITL', MLPerf: 'TPOT' },
    values: (records) => present(records.map(tpotSeconds)),
  },
  {
    quantity: 'gaps between events, all requests pooled',
    names: { vLLM: 'ITL', SGLang: 'ITL', AIPerf: 'ICL' },
    values: (records) => records.flatMap(({ tokenSeconds: t }) => t.slice(1).map((time, i) => time - t[i]!)),
  },
  {
    quantity: 'per request: E2E / n, TTFT included',
    names: { GuideLLM: 'TPOT' },
    values: (records) =>
      present(records.map((r) => (r.numOutputTokens === 0 ? null : (e2eSeconds(r) ?? 0) / r.numOutputTokens))),
  },
  {
    quantity: 'per request: E2E / number of events, TTFT included',
    names: { llmperf: 'ITL' },
    values: (records) =>
      present(records.map((r) => (r.tokenSeconds.length === 0 ? null : (e2eSeconds(r) ?? 0) / r.tokenSeconds.length))),
  },
  {
    quantity: 'last event with tokens minus start',
    names: { vLLM: 'E2EL', SGLang: 'E2E', AIPerf: 'request latency', GuideLLM: 'request latency', llmperf: 'E2E' },
    values: (records) => present(records.map(e2eSeconds)),
  },
];

/** Not a number of seconds, but as often the reason why two reports differ. */
export const CONVENTIONS: ReadonlyArray<{
  readonly what: string;
  readonly by: Readonly<Partial<Record<Tool, string>>>;
}> = [
  {
    what: 'output tokens n',
    by: {
      vLLM: "server's usage, else counted again",
      SGLang: "server's usage, else max_tokens",
      AIPerf: "client's tokenizer",
      GuideLLM: "server's usage",
      llmperf: 'Llama tokenizer, whatever the model',
      MLPerf: 'reported by the system under test',
    },
  },
  { what: 'percentiles', by: { vLLM: 'linear (numpy)', llmperf: 'linear (pandas)', MLPerf: 'nearest rank' } },
];

export interface DefinitionRow {
  readonly quantity: string;
  readonly names: Readonly<Partial<Record<Tool, string>>>;
  /** Null without records. MLPerf's percentile is the nearest rank, the others' is linear. */
  readonly values: {
    readonly meanSeconds: number;
    readonly p50Seconds: number;
    readonly p99Seconds: number;
    readonly p99NearestRankSeconds: number;
  } | null;
}

/** One row per quantity; of completed requests only. */
export function definitionRows(records: readonly RequestRecord[] | null): DefinitionRow[] {
  const completed = records?.filter((record) => record.outcome === 'completed') ?? null;
  return DEFINITIONS.map(({ quantity, names, values }) => {
    if (completed === null) return { quantity, names, values: null };
    const all = sorted(values(completed));
    return {
      quantity,
      names,
      values: {
        meanSeconds: mean(all),
        p50Seconds: percentile(all, 50),
        p99Seconds: percentile(all, 99),
        p99NearestRankSeconds: nearestRank(all, 99),
      },
    };
  });
}
