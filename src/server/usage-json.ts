// `usage` as it stands in replies. Prompt tokens count once per prompt, whatever n is; the end token counts as generated.

import type { Usage } from './generation.ts';
import type { ServerOptions } from './server-options.ts';

export interface UsageJson {
  readonly prompt_tokens: number;
  readonly total_tokens: number;
  readonly completion_tokens: number;
  readonly prompt_tokens_details: { readonly cached_tokens: number } | null;
}

export function usageJson(usage: Usage, options: ServerOptions): UsageJson {
  return {
    prompt_tokens: usage.promptTokens,
    total_tokens: usage.promptTokens + usage.completionTokens,
    completion_tokens: usage.completionTokens,
    prompt_tokens_details: options.enablePromptTokensDetails ? { cached_tokens: usage.cachedTokens } : null,
  };
}

export interface UsageWishes {
  /** A last chunk with the usage. */
  readonly atEnd: boolean;
  /** And in every chunk before it. */
  readonly inEveryChunk: boolean;
}

export function usageWishes(
  streamOptions:
    | { include_usage?: boolean | null | undefined; continuous_usage_stats?: boolean | null | undefined }
    | null
    | undefined,
  options: ServerOptions,
): UsageWishes {
  if (options.enableForceIncludeUsage) return { atEnd: true, inEveryChunk: true };
  const atEnd = streamOptions?.include_usage === true;
  return { atEnd, inEveryChunk: atEnd && streamOptions?.continuous_usage_stats === true };
}
