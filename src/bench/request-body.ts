// The JSON body of one request, as `vllm bench serve` sends it: only what was asked for, so that the server's defaults stay.

import type { BenchPrompt } from './datasets/dataset.ts';
import type { Backend } from './reply-reader.ts';

export interface BodyOptions {
  readonly backend: Backend;
  readonly model: string;
  /** Also past the end token; a field of vLLM-class servers. */
  readonly ignoreEos: boolean;
  /** Sampling fields (`temperature`, `top_p`, ...) and whatever --extra-body brings; these win. */
  readonly fields: Readonly<Record<string, unknown>>;
}

export function requestBody(request: BenchPrompt, options: BodyOptions): string {
  const isChat = options.backend === 'openai-chat';
  return JSON.stringify({
    model: options.model,
    ...(isChat ? { messages: [{ role: 'user', content: request.prompt }] } : { prompt: request.prompt }),
    ...(isChat ? { max_completion_tokens: request.numOutputTokens } : { max_tokens: request.numOutputTokens }),
    stream: true,
    stream_options: { include_usage: true },
    ...(options.ignoreEos ? { ignore_eos: true } : {}),
    ...options.fields,
  });
}
