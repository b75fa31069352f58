// Requests of a trace (or any other workload): its lengths and times, with made-up prompts. Equal hash ids become equal tokens, so
// that the server's prefix cache meets what the recorded one met.

import type { Workload } from '../../workload/workload.ts';
import { Draws } from '../draws.ts';
import type { Piece } from '../prompt-source.ts';
import type { BenchPrompt, DatasetContext } from './dataset.ts';

export function tracePrompts(workload: Workload, context: DatasetContext): BenchPrompt[] {
  const { source, asIds, seed } = context;
  const tokens = new Draws(seed, 'tokens');
  const blocks = new Map<number, Piece>();
  const block = (hashId: number): Piece => {
    const known = blocks.get(hashId);
    if (known !== undefined) return known;
    const piece = source.piece(workload.hashBlockTokens, new Draws(seed, `block ${hashId}`));
    blocks.set(hashId, piece);
    return piece;
  };
  const prompts: BenchPrompt[] = [];
  for (const request of workload.requests()) {
    if (prompts.length >= context.numPrompts) break;
    const { numPromptTokens, numOutputTokens, hashIds, arrivalSeconds, sessionId } = request;
    const shared = (hashIds ?? []).slice(0, Math.floor(numPromptTokens / workload.hashBlockTokens)).map(block);
    const numOwn = numPromptTokens - shared.length * workload.hashBlockTokens;
    prompts.push({
      prompt: source.join([...shared, source.piece(numOwn, tokens)], asIds),
      numPromptTokens,
      numOutputTokens: Math.max(1, numOutputTokens),
      sendSeconds: workload.closedLoop === null ? arrivalSeconds : null,
      ...(sessionId === null ? {} : { sessionId }),
    });
  }
  return prompts;
}
