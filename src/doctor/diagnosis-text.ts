// A diagnosis for people: what was found, why it is believed, what to do, what that costs and what it would bring.

import type { RunSummary } from '../sim/run-summary.ts';
import type { Diagnosis, Finding, ProposedChange } from './diagnose.ts';
import { SIGNALS, signalText } from './signals.ts';

export function diagnosisText(diagnosis: Diagnosis): string {
  const { source, engine, windowSeconds, numSamples, findings, consequences, maxTokens, notJudged } = diagnosis;
  const window = windowSeconds > 0 ? `, ${windowSeconds.toFixed(0)} s` : '';
  const samples = numSamples > 0 ? `, ${numSamples} samples` : '';
  const lines = [`${source} (${engine === 'unknown' ? diagnosis.kind : engine}${window}${samples})`, ''];
  if (findings.length === 0) lines.push('Nothing found: no rule holds.', '');
  for (const finding of findings) lines.push(...findingLines(finding), '');
  for (const { rule, title, from } of consequences) lines.push(`${rule} holds too and follows from ${from}: ${title}.`);
  if (maxTokens !== null) {
    const now = maxTokens.nowTokens === null ? '' : ` (requests ask for ${Math.round(maxTokens.nowTokens)} on average)`;
    lines.push(
      `max_tokens: outputs are up to ${Math.round(maxTokens.outputP95Tokens)} tokens at P95 and ${Math.round(maxTokens.outputP99Tokens)} at P99; ${maxTokens.proposedTokens} would cut 1 % of them, ${maxTokens.tightTokens} 5 %${now}.`,
    );
  }
  if (notJudged.length > 0) lines.push(`Not judged, for want of data: ${notJudged.join(', ')}.`);
  return `${lines.join('\n').trimEnd()}\n`;
}

function findingLines(finding: Finding): string[] {
  const sure = finding.confidence === 'high' ? '' : ', not everything that could speak against it is known';
  return [
    `${finding.rule} ${finding.title} [${finding.severity}${sure}]`,
    ...finding.evidence.map(
      ({ signal, value, is, threshold }) =>
        `  ${SIGNALS[signal].words}: ${signalText(signal, value)} (${is} ${signalText(signal, threshold)})`,
    ),
    ...finding.quotes.map((quote) => `  > ${quote}`),
    `  Cause: ${finding.cause}`,
    ...finding.changes.flatMap(changeLines),
    ...(finding.links.length > 0 ? [`  See ${finding.links.join(' ')}`] : []),
  ];
}

function changeLines({ words, sideEffect, predicted }: ProposedChange): string[] {
  const cost = sideEffect === 'none' ? '' : ` (side effect: ${sideEffect})`;
  const effect = predicted === null ? [] : [`    predicted: ${effectText(predicted.before, predicted.after)}`];
  return [`  Change: ${words}${cost}`, ...effect];
}

function effectText(before: RunSummary, after: RunSummary): string {
  const time = (seconds: number): string =>
    seconds < 1 ? `${(seconds * 1000).toFixed(0)} ms` : `${seconds.toFixed(2)} s`;
  const figures: ReadonlyArray<readonly [string, (summary: RunSummary) => string]> = [
    ['TTFT p99', (summary) => time(summary.ttftSeconds.p99)],
    ['TPOT p99', (summary) => time(summary.tpotSeconds.p99)],
    ['ITL p99', (summary) => time(summary.itlSeconds.p99)],
    ['output tokens/s', (summary) => summary.outputTokensPerSecond.toFixed(0)],
  ];
  return figures.map(([name, of]) => `${name} ${of(before)} -> ${of(after)}`).join(', ');
}
