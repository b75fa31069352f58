// The diagnosis: which rules hold, the evidence, what to change and what that would bring. Rules are data (rules.ts); the effect of a
// change comes from whoever can simulate it.

import type { RunSummary } from '../sim/run-summary.ts';
import { deriveSignals } from './derive-signals.ts';
import { type MaxTokensAdvice, maxTokensAdvice } from './max-tokens-advice.ts';
import { flagOf } from './metric-names.ts';
import type { Observation, Targets } from './observation.ts';
import {
  answer,
  type Check,
  type Condition,
  type DeploymentChange,
  evidenceOf,
  holds,
  type Proposal,
  type Rule,
} from './rule.ts';
import { RULES } from './rules.ts';
import type { SignalName, Signals } from './signals.ts';

/** Runs the observed load on the observed deployment with a change (empty = as it is); null = it cannot. */
export type Resimulate = (change: DeploymentChange) => RunSummary | null;

export interface Evidence {
  readonly signal: SignalName;
  readonly value: number;
  readonly is: Check['is'];
  readonly threshold: number;
  readonly windowSeconds: number;
}

export interface PredictedEffect {
  readonly before: RunSummary;
  readonly after: RunSummary;
}

export interface ProposedChange extends Proposal {
  /** Null: not simulated. */
  readonly predicted: PredictedEffect | null;
}

export interface Finding {
  readonly rule: Rule['id'];
  readonly title: string;
  readonly severity: Rule['severity'];
  readonly evidence: readonly Evidence[];
  readonly cause: string;
  readonly changes: readonly ProposedChange[];
  /** high: everything the rule looks at is known. medium: something that could speak against it is unknown. */
  readonly confidence: 'high' | 'medium';
  readonly links: readonly string[];
  readonly quotes: readonly string[];
}

export interface Diagnosis {
  readonly source: string;
  readonly kind: Observation['kind'];
  readonly engine: Observation['engine'];
  readonly windowSeconds: number;
  readonly numSamples: number;
  readonly findings: readonly Finding[];
  /** Rules that held too, and follow from one of the findings. */
  readonly consequences: ReadonlyArray<{
    readonly rule: Rule['id'];
    readonly title: string;
    readonly from: Rule['id'];
  }>;
  /** Rules for which something needed is unknown: silence about them means nothing. */
  readonly notJudged: ReadonlyArray<Rule['id']>;
  readonly maxTokens: MaxTokensAdvice | null;
  readonly signals: Signals;
}

export interface DiagnoseOptions {
  readonly targets?: Targets;
  readonly resimulate?: Resimulate;
}

const NO_TARGETS: Targets = { ttftSeconds: null, tpotSeconds: null };
/** Changes of a finding that are tried; each is a run of its own. */
const MAX_PREDICTIONS = 3;
const SEVERITIES: readonly Rule['severity'][] = ['critical', 'warning', 'info'];

export function diagnose(observation: Observation, options: DiagnoseOptions = {}): Diagnosis {
  const signals = deriveSignals(observation, options.targets ?? NO_TARGETS);
  const answers = new Map(RULES.map((rule) => [rule.id, answer(rule.when, signals)]));
  const held = RULES.filter((rule) => answers.get(rule.id) === 'yes');
  const explainedBy = (rule: Rule): Rule['id'] | undefined => rule.explainedBy?.find((id) => answers.get(id) === 'yes');
  const predict = predictor(options.resimulate);
  const findings = held
    .filter((rule) => explainedBy(rule) === undefined)
    .sort((a, b) => SEVERITIES.indexOf(a.severity) - SEVERITIES.indexOf(b.severity))
    .map((rule) => findingOf(rule, { signals, observation, predict }));
  return {
    source: observation.source,
    kind: observation.kind,
    engine: observation.engine,
    windowSeconds: observation.windowSeconds,
    numSamples: observation.samples.length,
    findings,
    consequences: held.flatMap((rule) => {
      const from = explainedBy(rule);
      return from === undefined ? [] : [{ rule: rule.id, title: rule.title, from }];
    }),
    notJudged: RULES.filter((rule) => answers.get(rule.id) === 'unknown').map((rule) => rule.id),
    maxTokens: maxTokensAdvice(signals),
    signals,
  };
}

type Predict = (change: DeploymentChange | null) => PredictedEffect | null;

/** The run without a change is the same for all. */
function predictor(resimulate: Resimulate | undefined): Predict {
  if (resimulate === undefined) return () => null;
  let before: RunSummary | null | undefined;
  return (change) => {
    if (change === null) return null;
    if (before === undefined) before = resimulate({});
    const after = before === null ? null : resimulate(change);
    return before === null || after === null ? null : { before, after };
  };
}

interface FindingContext {
  readonly signals: Signals;
  readonly observation: Observation;
  readonly predict: Predict;
}

function findingOf(rule: Rule, { signals, observation, predict }: FindingContext): Finding {
  const supports = (rule.supports ?? []).filter((check) => {
    const value = signals[check.signal];
    return value !== undefined && holds(check, value);
  });
  const proposals = rule.changes.flatMap((propose) => propose(signals, observation) ?? []);
  let numLeft = MAX_PREDICTIONS;
  const changes = proposals.map((proposal): ProposedChange => {
    const predicted = proposal.change !== null && numLeft > 0 ? predict(proposal.change) : null;
    if (predicted !== null) numLeft--;
    return { ...inWordsOf(observation, proposal), predicted };
  });
  return {
    rule: rule.id,
    title: rule.title,
    severity: rule.severity,
    evidence: [...evidenceOf(rule.when, signals), ...supports].map((check) => ({
      signal: check.signal,
      value: signals[check.signal]!,
      is: check.is,
      threshold: check.than,
      windowSeconds: observation.windowSeconds,
    })),
    cause: rule.cause,
    changes,
    confidence: hasUnknown(rule.when, signals) ? 'medium' : 'high',
    links: rule.links,
    quotes: rule.id === 'R16' ? observation.quotes : [],
  };
}

/** The flag as the engine at hand calls it. */
function inWordsOf({ engine }: Observation, proposal: Proposal): Proposal {
  if (proposal.flag === null) return proposal;
  const flag = flagOf(engine, proposal.flag);
  return { ...proposal, flag, words: proposal.words.replace(`--${proposal.flag}`, `--${flag}`) };
}

function hasUnknown(condition: Condition, signals: Signals): boolean {
  if ('all' in condition) return condition.all.some((each) => hasUnknown(each, signals));
  // Of alternatives, those that held decide.
  if ('any' in condition) {
    return condition.any.filter((each) => answer(each, signals) === 'yes').every((each) => hasUnknown(each, signals));
  }
  return signals[condition.signal] === undefined;
}
