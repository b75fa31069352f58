// What prompts have in common. Ids name blocks of tokens: equal leading ids mean equal leading tokens. A conversation numbers its
// blocks one after the other, so block k + 1 of a session has the id of block k plus one once the shared part is over.

import { PagodaError } from '../errors.ts';
import { checkLengthSpec, type LengthSpec } from './lengths.ts';

export type PrefixSpec =
  | { readonly kind: 'none' }
  /** One of `numPrompts` system prompts of so many tokens stands before a share of the prompts. */
  | {
      readonly kind: 'shared';
      readonly numTokens: number;
      readonly share: number;
      readonly numPrompts: number;
    }
  /** Conversations: each turn's prompt is all that was said before and a new message. */
  | {
      readonly kind: 'multi-turn';
      readonly turns: LengthSpec;
      /** Between the end of an answer and the next message. */
      readonly thinkSeconds: number;
      /** A system prompt that all conversations share; 0 = none. */
      readonly numSharedTokens: number;
      /** A conversation ends before its prompt and answer grow beyond this. */
      readonly maxTokens: number;
    };

/** Tokens that one id of a synthetic prefix stands for: small, so that little of a shared prefix is lost to rounding. */
export const SYNTHETIC_BLOCK_TOKENS = 16;

/** Ids of one owner are consecutive; owners are this far apart, which no conversation fills. */
const IDS_PER_OWNER = 2 ** 20;

/** Ids of the first `numTokens` tokens of a prompt, of which the first `numShared` belong to system prompt `sharedIndex`. */
export function hashIdsOf(
  numTokens: number,
  options: { ownerIndex: number; numShared: number; sharedIndex: number; blockTokens: number },
): number[] {
  const { ownerIndex, numShared, sharedIndex, blockTokens } = options;
  const numBlocks = Math.ceil(numTokens / blockTokens);
  // A block that begins shared and ends private is private.
  const numSharedBlocks = Math.min(numBlocks, Math.floor(numShared / blockTokens));
  const ids: number[] = [];
  for (let index = 0; index < numSharedBlocks; index++) ids.push(sharedIndex * IDS_PER_OWNER + index);
  const own = (MOST_SHARED_PROMPTS + ownerIndex) * IDS_PER_OWNER;
  for (let index = numSharedBlocks; index < numBlocks; index++) ids.push(own + index);
  return ids;
}

export const MOST_SHARED_PROMPTS = 4096;

/** Throws PagodaError `bad_config` that names `option`. */
export function checkPrefixSpec(spec: PrefixSpec, option: string): void {
  const range = (name: string, value: number, least: number, most: number): void => {
    if (value >= least && value <= most) return;
    throw new PagodaError('bad_config', `${option}: ${name} must be from ${least} to ${most}, got ${value}.`, {
      param: option,
    });
  };
  if (spec.kind === 'shared') {
    range('tokens of the shared prompt', spec.numTokens, 1, 10_000_000);
    range('share', spec.share, 0, 1);
    range('number of shared prompts', spec.numPrompts, 1, MOST_SHARED_PROMPTS);
  } else if (spec.kind === 'multi-turn') {
    checkLengthSpec(spec.turns, option);
    range('think seconds', spec.thinkSeconds, 0, 1e6);
    range('shared tokens', spec.numSharedTokens, 0, 10_000_000);
    range('most tokens of a conversation', spec.maxTokens, 2, 10_000_000);
  }
}
