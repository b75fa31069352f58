// What a rule is: data. A condition over signals, and for people the cause, the changes and what they cost. Conditions know three
// answers; a rule whose needed signals are unknown says nothing.

import type { Observation } from './observation.ts';
import type { SignalName, Signals } from './signals.ts';

export type RuleId = `R${number}`;
export type Severity = 'critical' | 'warning' | 'info';

export type Condition =
  | Check
  /** Every one must hold. */
  | { readonly all: readonly Condition[] }
  /** At least one must hold; unknown ones do not count. */
  | { readonly any: readonly Condition[] };

export interface Check {
  readonly signal: SignalName;
  readonly is: '>=' | '>' | '<=' | '<';
  readonly than: number;
  /** An unknown value is no obstacle: the check only excludes. */
  readonly ifKnown?: boolean;
}

/** What to change in a deployment, in terms that a simulator understands. */
export interface DeploymentChange {
  readonly maxNumSeqs?: number;
  readonly maxNumBatchedTokens?: number;
  readonly watermark?: number;
  readonly maxModelLen?: number;
  readonly gpuMemoryUtilization?: number;
  readonly kvCacheDtype?: string;
  readonly tensorParallelSize?: number;
  readonly numReplicas?: number;
  /** Factor on the pool, where the way to more memory is open. */
  readonly kvPoolFactor?: number;
  readonly enforceEager?: boolean;
  readonly enablePrefixCaching?: boolean;
  /** Nothing sorts the whole vocabulary any more. */
  readonly greedySampler?: boolean;
  /** Of the workload. */
  readonly maxTokens?: number;
  readonly loadFactor?: number;
  readonly sharedPrefixFirst?: boolean;
  readonly rejectTooLong?: boolean;
}

export interface Proposal {
  /** vLLM's flag without dashes, or a change in words where there is none. */
  readonly flag: string | null;
  readonly words: string;
  readonly from: string | null;
  readonly to: string | null;
  /** Null: a simulator cannot try it. */
  readonly change: DeploymentChange | null;
  readonly sideEffect: string;
}

/** Makes a proposal for what was seen, or null where it does not apply. */
export type Propose = (signals: Signals, observation: Observation) => Proposal | null;

export interface Rule {
  readonly id: RuleId;
  readonly title: string;
  readonly severity: Severity;
  readonly when: Condition;
  /** More evidence where it holds; never needed. */
  readonly supports?: readonly Check[];
  readonly cause: string;
  readonly changes: readonly Propose[];
  /** Rules that, when they hold, explain this one. */
  readonly explainedBy?: readonly RuleId[];
  /** Which figure the change is meant to improve. */
  readonly improves: 'ttft' | 'itl' | 'throughput' | 'e2e' | 'none';
  readonly links: readonly string[];
}

export type Answer = 'yes' | 'no' | 'unknown';

export function answer(condition: Condition, signals: Signals): Answer {
  if ('all' in condition) {
    const answers = condition.all.map((each) => answer(each, signals));
    return answers.includes('no') ? 'no' : answers.includes('unknown') ? 'unknown' : 'yes';
  }
  if ('any' in condition) {
    const answers = condition.any.map((each) => answer(each, signals));
    return answers.includes('yes') ? 'yes' : answers.includes('unknown') ? 'unknown' : 'no';
  }
  const value = signals[condition.signal];
  if (value === undefined) return condition.ifKnown === true ? 'yes' : 'unknown';
  return holds(condition, value) ? 'yes' : 'no';
}

export function holds({ is, than }: Check, value: number): boolean {
  switch (is) {
    case '>=':
      return value >= than;
    case '>':
      return value > than;
    case '<=':
      return value <= than;
    case '<':
      return value < than;
    default:
      return is satisfies never;
  }
}

/** The checks that held and whose values are known, in order. */
export function evidenceOf(condition: Condition, signals: Signals): Check[] {
  if ('all' in condition) return condition.all.flatMap((each) => evidenceOf(each, signals));
  if ('any' in condition) {
    return condition.any.flatMap((each) => (answer(each, signals) === 'yes' ? evidenceOf(each, signals) : []));
  }
  const value = signals[condition.signal];
  return value !== undefined && holds(condition, value) ? [condition] : [];
}
