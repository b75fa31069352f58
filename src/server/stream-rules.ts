// vLLM's rules about fields that only go together, the same for chat and completions.

import { PagodaError } from '../errors.ts';
import type { ChatBody, CompletionBody } from './schemas.ts';
import type { ServerContext } from './server-context.ts';

export function checkStreamRules(body: ChatBody | CompletionBody): void {
  if (body.stream !== true && body.stream_options !== null && body.stream_options !== undefined) {
    refuse('stream_options', 'Stream options can only be defined when `stream=True`.');
  }
  const interval = body.stream_interval;
  if (interval !== null && interval !== undefined && !(Number.isSafeInteger(interval) && interval >= 1)) {
    refuse('stream_interval', `stream_interval must be at least 1, got ${interval}.`);
  }
  const { prompt_logprobs: promptLogprobs } = body;
  if (promptLogprobs === null || promptLogprobs === undefined) return;
  if (promptLogprobs < 0 && promptLogprobs !== -1) {
    refuse('prompt_logprobs', '`prompt_logprobs` must be a positive value or -1.');
  }
  if (body.stream === true) refuse('prompt_logprobs', '`prompt_logprobs` are not available when `stream=True`.');
}

/** The name the reply carries. Throws not_found for a model that is not served. */
export function resolveModel(context: ServerContext, model: string | null | undefined): string {
  const names = context.options.servedModelNames;
  const first = names[0] ?? '';
  if (model === null || model === undefined || model === '' || names.includes(model)) return first;
  throw new PagodaError('not_found', `The model \`${model.slice(0, 200)}\` does not exist.`, { param: 'model' });
}

function refuse(param: string, message: string): never {
  throw new PagodaError('bad_request', message, { param });
}
