// The autoregressive loop as a table: per step what went in, how long the KV cache then was, the five best candidates with their
// probabilities, and what was chosen. Multiplications are counted on the model's own program.

import type { LLM } from '../engine/llm.ts';
import type { TextDelta } from '../engine/text-generation.ts';
import type { StepRecord } from '../trace/step-record.ts';
import { countText, fit, tableRow, visible } from './table.ts';

export interface StepTableOptions {
  readonly llm: LLM;
  readonly promptTokenIds: readonly number[];
  readonly useKvCache: boolean;
  /** Filled by the engine; one for each step. */
  readonly records: readonly StepRecord[];
}

interface Candidate {
  readonly token_id: number;
  readonly token: string;
  readonly probability: number;
}

interface Row {
  readonly step: number;
  /** Ids of the tokens that the step computed before this choice; of several choices in a step each but the first has its draft. */
  readonly input_token_ids: readonly number[];
  readonly input: readonly string[];
  /** Tokens in the KV cache after the step. */
  readonly kv_length: number;
  readonly candidates: readonly Candidate[];
  readonly chosen: Candidate;
  readonly multiplications: number;
}

const WIDTHS = [4, 30, 4] as const;
const CANDIDATE_WIDTH = 14;
const NUM_CANDIDATES = 5;

export class StepTable {
  readonly #options: StepTableOptions;
  readonly #tokens: number[];
  readonly #rows: Row[] = [];
  #numSteps = 0;
  /** Of the same tokens with the cache used the other way. */
  #otherMultiplications = 0;

  constructor(options: StepTableOptions) {
    this.#options = options;
    this.#tokens = [...options.promptTokenIds];
  }

  header(): string {
    const titles = Array.from({ length: NUM_CANDIDATES }, (_, i) =>
      i === 0 ? 'best' : i === 1 ? '2nd' : i === 2 ? '3rd' : `${i + 1}th`,
    );
    return `${tableRow(['STEP', 'IN', 'KV', ...titles, 'CHOSEN'], this.#widths())}\n`;
  }

  /** Takes the tokens of one step, more than one after accepted drafts; returns their lines. */
  add(delta: TextDelta): string {
    if (delta.tokenIds.length > 0) this.#numSteps++;
    return delta.tokenIds.map((tokenId, i) => this.#addToken(tokenId, delta.logprobs?.[i])).join('');
  }

  facts() {
    return {
      steps: this.#rows,
      seconds: this.#seconds(),
      draft_tokens: this.#sumDrafts('numDraftTokens'),
      accepted_draft_tokens: this.#sumDrafts('numAcceptedTokens'),
      multiplications: this.#multiplications(),
      kv_cache: this.#options.useKvCache,
    };
  }

  summary(): string {
    const own = this.#multiplications();
    const other = this.#otherMultiplications;
    const used = this.#options.useKvCache;
    const comparison = used
      ? `without the KV cache it would be ${countText(other)} (${(other / Math.max(1, own)).toFixed(1)} times as many)`
      : `with the KV cache it would be ${countText(other)} (${(own / Math.max(1, other)).toFixed(1)} times fewer)`;
    return (
      `${this.#numSteps} steps in ${this.#seconds().toFixed(3)} s ${used ? 'with' : 'without'} the KV cache.\n` +
      `${countText(own)} multiplications; ${comparison}.\n${this.#draftLine()}`
    );
  }

  #addToken(tokenId: number, logprob: NonNullable<TextDelta['logprobs']>[number] | undefined): string {
    const { llm, useKvCache, promptTokenIds } = this.#options;
    const numKnown = this.#tokens.length;
    const cached = {
      numComputed: this.#rows.length === 0 ? 0 : numKnown - 1,
      numTokens: this.#rows.length === 0 ? promptTokenIds.length : 1,
    };
    const whole = { numComputed: 0, numTokens: numKnown };
    const [own, other] = useKvCache ? [cached, whole] : [whole, cached];
    this.#otherMultiplications += llm.multiplications(other);
    const input = this.#tokens.slice(own.numComputed);
    const top = logprob?.top ?? [];
    const row: Row = {
      step: this.#numSteps,
      input_token_ids: input,
      input: input.map((id) => this.#piece(id)),
      kv_length: useKvCache ? numKnown : 0,
      candidates: top.slice(0, NUM_CANDIDATES).map((each) => this.#candidate(each.tokenId, each.logprob)),
      chosen: this.#candidate(tokenId, logprob?.logprob ?? Number.NEGATIVE_INFINITY),
      multiplications: llm.multiplications(own),
    };
    this.#rows.push(row);
    this.#tokens.push(tokenId);
    const cells = [
      String(row.step),
      fit(row.input.join('|'), WIDTHS[1]),
      String(row.kv_length),
      ...Array.from({ length: NUM_CANDIDATES }, (_, i) => candidateText(row.candidates[i])),
      row.chosen.token,
    ];
    return `${tableRow(cells, this.#widths())}\n`;
  }

  #draftLine(): string {
    const numDraftTokens = this.#sumDrafts('numDraftTokens');
    if (numDraftTokens === 0) return '';
    const numAccepted = this.#sumDrafts('numAcceptedTokens');
    return `${countText(numAccepted)} of ${countText(numDraftTokens)} draft tokens were accepted; the others were computed for nothing and are not counted above.\n`;
  }

  #sumDrafts(what: 'numDraftTokens' | 'numAcceptedTokens'): number {
    return this.#options.records.reduce((sum, { speculation }) => sum + (speculation?.[what] ?? 0), 0);
  }

  #widths(): number[] {
    return [...WIDTHS, ...Array.from({ length: NUM_CANDIDATES }, () => CANDIDATE_WIDTH), 0];
  }

  #candidate(tokenId: number, logprob: number): Candidate {
    return { token_id: tokenId, token: this.#piece(tokenId), probability: Math.exp(logprob) };
  }

  #piece(tokenId: number): string {
    return visible(this.#options.llm.tokenizer.tokenText(tokenId));
  }

  #seconds(): number {
    return this.#options.records.reduce((sum, record) => sum + record.stepSeconds, 0);
  }

  #multiplications(): number {
    return this.#rows.reduce((sum, row) => sum + row.multiplications, 0);
  }
}

function candidateText(candidate: Candidate | undefined): string {
  if (candidate === undefined) return '';
  const percent = `${(100 * candidate.probability).toFixed(1)}%`;
  return `${fit(candidate.token, CANDIDATE_WIDTH - percent.length - 1)} ${percent}`;
}
