// POST /v1/chat/completions. Replies have vLLM's shape: nulls are written when not streaming; chunks hold only what is set.

import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { ResolvedSampling } from '../engine/resolve-sampling.ts';
import { PagodaError } from '../errors.ts';
import { fanOut, resolveFor } from './choices.ts';
import type { Fold, FoldedChoice } from './fold.ts';
import type { ChoiceDelta, Usage, UsageSource } from './generation.ts';
import type { JsonObject } from './json-body.ts';
import { LogprobFormat } from './logprobs.ts';
import { chatPrompt, type Prompt } from './prompts.ts';
import { identify, type RequestIdentity } from './request-identity.ts';
import { logRequest, replyHeaders } from './request-log.ts';
import { OpenRequest, type StreamWriter } from './respond.ts';
import { type ChatBody, chatSchema, validate } from './schemas.ts';
import type { ServerContext } from './server-context.ts';
import { checkStreamRules, resolveModel } from './stream-rules.ts';
import { refuseUnsupported } from './unsupported-fields.ts';
import { usageJson, usageWishes } from './usage-json.ts';

export function chatRoutes(app: FastifyInstance, context: ServerContext): void {
  app.post('/v1/chat/completions', (request, reply) => handle(context, request, reply));
}

/** Everything about one request that its reply needs. */
interface ChatReply {
  readonly context: ServerContext;
  readonly identity: RequestIdentity;
  readonly model: string;
  readonly created: number;
  readonly body: ChatBody;
  readonly prompt: Prompt;
  readonly format: LogprobFormat;
  /** null = no logprobs in the reply. */
  readonly numTop: number | null;
  /** Text of the last message when `echo` puts it in front. */
  readonly echo: string;
}

async function handle(context: ServerContext, request: FastifyRequest, reply: FastifyReply): Promise<unknown> {
  const raw = request.body as JsonObject;
  refuseUnsupported('chat', raw);
  const body = validate(chatSchema, raw);
  checkRules(body);
  const model = resolveModel(context, body.model);
  const identity = identify(request.raw, body.request_id, 'chatcmpl-');
  const open = new OpenRequest(context, reply);
  const prompt = await chatPrompt(context, body);
  const numTop = body.logprobs === true ? (body.top_logprobs ?? 0) : null;
  const resolved = resolve(context, body, prompt, numTop);
  const parts: ChatReply = {
    context,
    identity,
    model,
    created: Math.floor(Date.now() / 1000),
    body,
    prompt,
    numTop,
    echo: echoText(context, body),
    format: new LogprobFormat(context.text.tokenizer, {
      asIds: body.return_tokens_as_token_ids ?? context.options.returnTokensAsTokenIds,
      skipSpecialTokens: resolved.skipSpecialTokens,
    }),
  };
  const choices = fanOut(context, [{ prompt, resolved }], body, identity.id);
  logRequest(context, identity.id, choices);
  return open.run(context, {
    choices,
    numPromptTokens: prompt.tokenIds.length,
    headers: replyHeaders(context, identity),
    streamInterval: body.stream_interval ?? context.options.streamInterval,
    writer: body.stream === true ? new ChatStreamWriter(parts) : null,
    reply: (fold, usage) => chatReply(parts, fold, usage),
  });
}

function checkRules(body: ChatBody): void {
  checkStreamRules(body);
  const top = body.top_logprobs;
  if (top === null || top === undefined) return;
  if (top < 0 && top !== -1) refuse('top_logprobs', '`top_logprobs` must be a positive value or -1.');
  if (top !== 0 && body.logprobs !== true) {
    refuse('top_logprobs', 'when using `top_logprobs`, `logprobs` must be set to true.');
  }
}

function resolve(context: ServerContext, body: ChatBody, prompt: Prompt, numTop: number | null): ResolvedSampling {
  const usesNewName = body.max_completion_tokens !== null && body.max_completion_tokens !== undefined;
  try {
    return resolveFor(context, body, prompt.tokenIds.length, {
      maxTokens: usesNewName ? body.max_completion_tokens : body.max_tokens,
      maxTokensParam: usesNewName ? 'max_completion_tokens' : 'max_tokens',
      defaultMaxTokens: null,
      logprobs: numTop,
      promptLogprobs: body.prompt_logprobs ?? null,
    });
  } catch (error) {
    // The sampling parameter behind it is called logprobs.
    if (!(error instanceof PagodaError) || error.param !== 'logprobs') throw error;
    throw new PagodaError(error.code, error.message, { param: 'top_logprobs', cause: error });
  }
}

function echoText(context: ServerContext, body: ChatBody): string {
  if (body.echo !== true || !Array.isArray(body.messages)) return '';
  const last: unknown = body.messages.at(-1);
  if (typeof last !== 'object' || last === null) return '';
  const { role, content } = last as JsonObject;
  return role === context.options.responseRole && typeof content === 'string' ? content : '';
}

function chatReply(parts: ChatReply, fold: Fold, usage: Usage): JsonObject {
  const { body, context, prompt } = parts;
  const promptLogprobs = fold.choices[0]?.promptLogprobs ?? null;
  return {
    id: parts.identity.id,
    object: 'chat.completion',
    created: parts.created,
    model: parts.model,
    choices: fold.choices.map((choice) => chatChoice(parts, choice)),
    service_tier: null,
    system_fingerprint: null,
    usage: usageJson(usage, context.options),
    prompt_logprobs: promptLogprobs === null ? null : parts.format.prompt(promptLogprobs),
    prompt_token_ids: body.return_token_ids === true ? prompt.tokenIds : null,
    prompt_text: null,
    kv_transfer_params: null,
    ec_transfer_params: null,
  };
}

function chatChoice(parts: ChatReply, choice: FoldedChoice): JsonObject {
  return {
    index: choice.index,
    message: {
      role: parts.context.options.responseRole,
      content: parts.echo + choice.text,
      refusal: null,
      annotations: null,
      audio: null,
      function_call: null,
      reasoning: null,
    },
    logprobs: parts.numTop === null ? null : parts.format.chat(choice.logprobs, parts.numTop),
    finish_reason: choice.finishReason,
    stop_reason: choice.stopReason,
    token_ids: parts.body.return_token_ids === true ? choice.tokenIds : null,
    routed_experts: null,
  };
}

/** Chunks are put together from fixed pieces: at thousands of tokens a second, building objects is what costs. */
class ChatStreamWriter implements StreamWriter {
  readonly #parts: ChatReply;
  readonly #head: string;
  readonly #wishes: { atEnd: boolean; inEveryChunk: boolean };

  constructor(parts: ChatReply) {
    this.#parts = parts;
    const { identity, created, model } = parts;
    this.#head =
      `data: {"id":${JSON.stringify(identity.id)},"object":"chat.completion.chunk","created":${created},` +
      `"model":${JSON.stringify(model)},"choices":[`;
    this.#wishes = usageWishes(parts.body.stream_options, parts.context.options);
  }

  delta(delta: ChoiceDelta, source: UsageSource): string {
    const { body, numTop, format, context, echo, prompt } = this.#parts;
    const tail = this.#wishes.inEveryChunk ? `],"usage":${this.#usage(source.usage)}` : ']';
    let frames = '';
    if (delta.isFirst) {
      const role = JSON.stringify(context.options.responseRole);
      const ids = body.return_token_ids === true ? `,"prompt_token_ids":${JSON.stringify(prompt.tokenIds)}` : '';
      const opening = `{"index":${delta.index},"delta":{"role":${role},"content":""},"logprobs":null,"finish_reason":null}`;
      frames += `${this.#head}${opening}${tail}${ids}}\n\n`;
      if (echo !== '') frames += `${this.#head}${this.#choice(delta.index, echo, 'null', null)}${tail}}\n\n`;
    }
    const hasTokens = delta.tokenIds.length > 0 && (numTop !== null || body.return_token_ids === true);
    // Half a character, or the beginning of what may be a stop string, has nothing to show yet.
    if (delta.text === '' && delta.finishReason === null && !hasTokens) return frames;
    const logprobs =
      numTop === null || delta.logprobs === null || delta.logprobs.length === 0
        ? 'null'
        : JSON.stringify(format.chat(delta.logprobs, numTop));
    return `${frames}${this.#head}${this.#choice(delta.index, delta.text, logprobs, delta)}${tail}}\n\n`;
  }

  end(usage: Usage): string {
    return this.#wishes.atEnd ? `${this.#head}],"usage":${this.#usage(usage)}}\n\n` : '';
  }

  /** `delta` is null for text that no token made. */
  #choice(index: number, text: string, logprobs: string, delta: ChoiceDelta | null): string {
    const finish = delta?.finishReason ?? null;
    const stop = finish === null ? '' : `,"stop_reason":${JSON.stringify(delta?.stopReason ?? null)}`;
    const ids =
      this.#parts.body.return_token_ids === true ? `,"token_ids":${JSON.stringify(delta?.tokenIds ?? [])}` : '';
    return (
      `{"index":${index},"delta":{"content":${JSON.stringify(text)}},"logprobs":${logprobs},` +
      `"finish_reason":${JSON.stringify(finish)}${stop}${ids}}`
    );
  }

  #usage(usage: Usage): string {
    return JSON.stringify(usageJson(usage, this.#parts.context.options));
  }
}

function refuse(param: string, message: string): never {
  throw new PagodaError('bad_request', message, { param });
}
