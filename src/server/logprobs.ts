// Logprobs as the two OpenAI shapes and vLLM's prompt_logprobs want them. JSON has no infinities: values stop at -9999.

import type { TokenLogprob } from '../core/request.ts';
import { IncrementalDetokenizer } from '../text/incremental-detokenizer.ts';
import type { Tokenizer } from '../text/tokenizer.ts';

const LOWEST = -9999;

interface Scored {
  readonly tokenId: number;
  readonly logprob: number;
}

export interface ChatTokenLogprob {
  readonly token: string;
  readonly logprob: number;
  readonly bytes: number[];
}
export interface ChatLogprobs {
  readonly content: ReadonlyArray<ChatTokenLogprob & { readonly top_logprobs: readonly ChatTokenLogprob[] }>;
}

export interface CompletionLogprobs {
  readonly text_offset: number[];
  readonly token_logprobs: Array<number | null>;
  readonly tokens: string[];
  readonly top_logprobs: Array<Record<string, number> | null>;
}

export type PromptLogprobs = Array<Record<
  string,
  { readonly logprob: number; readonly rank: number; readonly decoded_token: string }
> | null>;

export class LogprobFormat {
  readonly #tokenizer: Tokenizer;
  readonly #asIds: boolean;
  readonly #hidesControl: boolean;

  constructor(tokenizer: Tokenizer, options: { asIds: boolean; skipSpecialTokens: boolean }) {
    this.#tokenizer = tokenizer;
    this.#asIds = options.asIds;
    this.#hidesControl = options.skipSpecialTokens;
  }

  /** `numTop`: how many of the best to list per token; -1 = all that there are. */
  chat(logprobs: readonly TokenLogprob[], numTop: number): ChatLogprobs {
    return {
      content: logprobs.map((entry) => ({
        ...this.#chatToken(entry),
        top_logprobs: best(entry, numTop).map((top) => this.#chatToken(top)),
      })),
    };
  }

  /** Follows one choice's text, for `text_offset`. */
  openOffsets(): IncrementalDetokenizer {
    return new IncrementalDetokenizer(this.#tokenizer, { skipSpecialTokens: this.#hidesControl });
  }

  /**
   * `tokenIds[i]` belongs to `logprobs[i]`; null at the very first token of a prompt. Offsets are in characters (Unicode code
   * points): where the text stood before the token; all tokens of one character have that character's offset.
   */
  completion(
    tokenIds: readonly number[],
    logprobs: ReadonlyArray<TokenLogprob | null>,
    numTop: number,
    offsets: IncrementalDetokenizer,
  ): CompletionLogprobs {
    const lists: CompletionLogprobs = { text_offset: [], token_logprobs: [], tokens: [], top_logprobs: [] };
    for (let i = 0; i < tokenIds.length; i++) {
      const tokenId = tokenIds[i]!;
      const entry = logprobs[i] ?? null;
      lists.text_offset.push(offsets.numCharacters);
      offsets.push(tokenId);
      lists.tokens.push(this.name(tokenId));
      lists.token_logprobs.push(entry === null ? null : clamp(entry.logprob));
      lists.top_logprobs.push(entry === null ? null : this.#topByName(entry, numTop));
    }
    return lists;
  }

  prompt(logprobs: ReadonlyArray<TokenLogprob | null>): PromptLogprobs {
    return logprobs.map((entry) => {
      if (entry === null) return null;
      const byId: Record<string, { logprob: number; rank: number; decoded_token: string }> = {};
      for (const scored of [entry, ...entry.top]) {
        byId[scored.tokenId] = {
          logprob: clamp(scored.logprob),
          rank: scored.rank,
          decoded_token: this.#tokenizer.tokenText(scored.tokenId),
        };
      }
      return byId;
    });
  }

  name(tokenId: number): string {
    return this.#asIds ? `token_id:${tokenId}` : this.#tokenizer.tokenText(tokenId);
  }

  #chatToken(scored: Scored): ChatTokenLogprob {
    return {
      token: this.name(scored.tokenId),
      logprob: clamp(scored.logprob),
      bytes: [...this.#tokenizer.tokenBytes(scored.tokenId)],
    };
  }

  /** vLLM's dictionary: the best ones, and the token itself when it is not among them. */
  #topByName(entry: TokenLogprob, numTop: number): Record<string, number> {
    const names = new Map<string, number>();
    for (const scored of [...best(entry, numTop), entry]) {
      const name = this.name(scored.tokenId);
      // Several tokens can have the same text (pieces of characters): the likeliest stands for all.
      if (!names.has(name)) names.set(name, clamp(scored.logprob));
    }
    return Object.fromEntries(names);
  }
}

function best(entry: TokenLogprob, numTop: number): ReadonlyArray<Scored> {
  return numTop < 0 ? entry.top : entry.top.slice(0, numTop);
}

function clamp(logprob: number): number {
  return Math.max(logprob, LOWEST);
}
