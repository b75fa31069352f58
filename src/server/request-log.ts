// What a request leaves in the log (--enable-log-requests) and in the headers of its reply. Never its text.

import type { Choice } from './generation.ts';
import type { RequestIdentity } from './request-identity.ts';
import type { ServerContext } from './server-context.ts';

export function logRequest(context: ServerContext, id: string, choices: readonly Choice[]): void {
  if (!context.options.enableLogRequests) return;
  for (const { request } of choices.filter((choice, at) => choice.promptIndex !== choices[at - 1]?.promptIndex)) {
    const { sampling } = request;
    const n = choices.length;
    context.logger.info(
      'request',
      `Received request ${id}: prompt tokens: ${request.promptTokenIds.length}, choices: ${n}, ` +
        `params: SamplingParams(temperature=${sampling.temperature}, top_p=${sampling.topP}, top_k=${sampling.topK}, ` +
        `min_p=${sampling.minP}, presence_penalty=${sampling.presencePenalty}, ` +
        `frequency_penalty=${sampling.frequencyPenalty}, repetition_penalty=${sampling.repetitionPenalty}, ` +
        `seed=${sampling.seed}, max_tokens=${sampling.maxTokens}, min_tokens=${sampling.minTokens}, ` +
        `ignore_eos=${sampling.ignoreEos}, logprobs=${sampling.logprobs}, prompt_logprobs=${sampling.promptLogprobs}), ` +
        `priority: ${request.priority}.`,
    );
  }
}

export function replyHeaders(context: ServerContext, identity: RequestIdentity): Record<string, string> {
  return context.options.enableRequestIdHeaders ? { 'x-request-id': identity.requestId } : {};
}
