// Prompts of /v1/completions and /tokenize. They are the developer's own text, scaffold included, so spellings of control tokens
// in them become control tokens, as with vLLM and llama.cpp. What users type belongs in chat messages, which never do: render-chat.ts.

import type { Tokenizer } from './tokenizer.ts';

export function encodePrompt(
  tokenizer: Tokenizer,
  text: string,
  options: { readonly addSpecialTokens: boolean },
): number[] {
  return tokenizer.encode(text, { addSpecialTokens: options.addSpecialTokens, parseSpecial: true });
}
