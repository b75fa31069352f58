// A diagnosis as JSON: snake_case names that end in their units. The schema stands in docs/doctor.md; names are only ever added.

import type { RunSummary } from '../sim/run-summary.ts';
import type { Diagnosis, Finding, ProposedChange } from './diagnose.ts';
import { SIGNALS } from './signals.ts';

export function diagnosisJson(diagnosis: Diagnosis) {
  const { maxTokens } = diagnosis;
  return {
    source: diagnosis.source,
    kind: diagnosis.kind,
    engine: diagnosis.engine,
    window_seconds: diagnosis.windowSeconds,
    num_samples: diagnosis.numSamples,
    healthy: diagnosis.findings.length === 0,
    findings: diagnosis.findings.map(findingJson),
    consequences: diagnosis.consequences,
    rules_not_judged: diagnosis.notJudged,
    max_tokens:
      maxTokens === null
        ? null
        : {
            output_p95_tokens: maxTokens.outputP95Tokens,
            output_p99_tokens: maxTokens.outputP99Tokens,
            now_tokens: maxTokens.nowTokens,
            proposed_tokens: maxTokens.proposedTokens,
            tight_tokens: maxTokens.tightTokens,
          },
  };
}

function findingJson(finding: Finding) {
  return {
    rule: finding.rule,
    title: finding.title,
    severity: finding.severity,
    confidence: finding.confidence,
    evidence: finding.evidence.map(({ signal, value, is, threshold, windowSeconds }) => ({
      metric: signal,
      meaning: SIGNALS[signal].words,
      unit: SIGNALS[signal].unit,
      value,
      comparison: is,
      threshold,
      window_seconds: windowSeconds,
    })),
    cause: finding.cause,
    changes: finding.changes.map(changeJson),
    links: finding.links,
    quotes: finding.quotes,
  };
}

function changeJson({ flag, words, from, to, sideEffect, predicted }: ProposedChange) {
  return {
    flag: flag === null ? null : `--${flag}`,
    change: words,
    from,
    to,
    side_effect: sideEffect,
    predicted: predicted === null ? null : { before: effect(predicted.before), after: effect(predicted.after) },
  };
}

function effect(summary: RunSummary) {
  return {
    ttft_p50_seconds: summary.ttftSeconds.p50,
    ttft_p99_seconds: summary.ttftSeconds.p99,
    tpot_p50_seconds: summary.tpotSeconds.p50,
    tpot_p99_seconds: summary.tpotSeconds.p99,
    itl_p99_seconds: summary.itlSeconds.p99,
    requests_per_second: summary.requestsPerSecond,
    output_tokens_per_second: summary.outputTokensPerSecond,
    goodput_share: summary.goodput,
  };
}
