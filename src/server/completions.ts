// POST /v1/completions: texts or token ids, several prompts, n, echo, and echo with logprobs (which scores the prompt).

import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { TokenLogprob } from '../core/request.ts';
import type { ResolvedSampling } from '../engine/resolve-sampling.ts';
import type { IncrementalDetokenizer } from '../text/incremental-detokenizer.ts';
import { fanOut, resolveFor } from './choices.ts';
import type { Fold, FoldedChoice } from './fold.ts';
import type { ChoiceDelta, Usage, UsageSource } from './generation.ts';
import type { JsonObject } from './json-body.ts';
import { LogprobFormat } from './logprobs.ts';
import { completionPrompts, type Prompt } from './prompts.ts';
import { identify, type RequestIdentity } from './request-identity.ts';
import { logRequest, replyHeaders } from './request-log.ts';
import { OpenRequest, type StreamWriter } from './respond.ts';
import { type CompletionBody, completionSchema, validate } from './schemas.ts';
import type { ServerContext } from './server-context.ts';
import { checkStreamRules, resolveModel } from './stream-rules.ts';
import { refuseUnsupported } from './unsupported-fields.ts';
import { usageJson, usageWishes } from './usage-json.ts';

const DEFAULT_MAX_TOKENS = 16;

export function completionRoutes(app: FastifyInstance, context: ServerContext): void {
  app.post('/v1/completions', (request, reply) => handle(context, request, reply));
}

interface CompletionReply {
  readonly context: ServerContext;
  readonly identity: RequestIdentity;
  readonly model: string;
  readonly created: number;
  readonly body: CompletionBody;
  readonly prompts: readonly Prompt[];
  /** Per prompt, when `echo` asks for it, else ''. */
  readonly echoTexts: readonly string[];
  /** `echo` with max_tokens 0: the engine makes one token that nobody sees. */
  readonly hidesOutput: boolean;
  readonly format: LogprobFormat;
  readonly numTop: number | null;
}

async function handle(context: ServerContext, request: FastifyRequest, reply: FastifyReply): Promise<unknown> {
  const raw = request.body as JsonObject;
  refuseUnsupported('completion', raw);
  const body = validate(completionSchema, raw);
  checkStreamRules(body);
  const model = resolveModel(context, body.model);
  const identity = identify(request.raw, body.request_id, 'cmpl-');
  const open = new OpenRequest(context, reply);
  const prompts = completionPrompts(context, body);
  const resolved = prompts.map((prompt) => resolve(context, body, prompt));
  const skipSpecialTokens = resolved[0]!.skipSpecialTokens;
  const parts: CompletionReply = {
    context,
    identity,
    model,
    created: Math.floor(Date.now() / 1000),
    body,
    prompts,
    echoTexts: prompts.map((prompt) => (body.echo === true ? promptText(context, prompt, skipSpecialTokens) : '')),
    hidesOutput: hidesOutput(body),
    numTop: body.logprobs ?? null,
    format: new LogprobFormat(context.text.tokenizer, {
      asIds: body.return_tokens_as_token_ids ?? context.options.returnTokensAsTokenIds,
      skipSpecialTokens,
    }),
  };
  const choices = fanOut(
    context,
    prompts.map((prompt, index) => ({ prompt, resolved: resolved[index]! })),
    body,
    identity.id,
  );
  logRequest(context, identity.id, choices);
  return open.run(context, {
    choices,
    numPromptTokens: prompts.reduce((sum, prompt) => sum + prompt.tokenIds.length, 0),
    headers: replyHeaders(context, identity),
    streamInterval: body.stream_interval ?? context.options.streamInterval,
    writer: body.stream === true ? new CompletionStreamWriter(parts) : null,
    reply: (fold, usage) => completionReply(parts, fold, usage),
  });
}

function hidesOutput(body: CompletionBody): boolean {
  return body.echo === true && body.max_tokens === 0;
}

function resolve(context: ServerContext, body: CompletionBody, prompt: Prompt): ResolvedSampling {
  const scoresPrompt = body.echo === true && body.logprobs !== null && body.logprobs !== undefined;
  return resolveFor(context, body, prompt.tokenIds.length, {
    maxTokens: hidesOutput(body) ? 1 : body.max_tokens,
    maxTokensParam: 'max_tokens',
    defaultMaxTokens: DEFAULT_MAX_TOKENS,
    logprobs: body.logprobs ?? null,
    promptLogprobs: body.prompt_logprobs ?? (scoresPrompt ? (body.logprobs ?? null) : null),
  });
}

function promptText(context: ServerContext, prompt: Prompt, skipSpecialTokens: boolean): string {
  return prompt.text ?? context.text.tokenizer.decode(prompt.tokenIds, { skipSpecialTokens });
}

function visibleUsage(parts: CompletionReply, usage: Usage): Usage {
  return parts.hidesOutput ? { ...usage, completionTokens: 0 } : usage;
}

function completionReply(parts: CompletionReply, fold: Fold, usage: Usage): JsonObject {
  return {
    id: parts.identity.id,
    object: 'text_completion',
    created: parts.created,
    model: parts.model,
    choices: fold.choices.map((choice) => completionChoice(parts, choice)),
    service_tier: null,
    system_fingerprint: null,
    usage: usageJson(visibleUsage(parts, usage), parts.context.options),
    kv_transfer_params: null,
  };
}

function completionChoice(parts: CompletionReply, choice: FoldedChoice): JsonObject {
  const { body, format, hidesOutput } = parts;
  const prompt = parts.prompts[choice.promptIndex]!;
  const tokenIds = hidesOutput ? [] : choice.tokenIds;
  const scored = scoredTokens(parts, choice.promptIndex, tokenIds, choice.logprobs, choice.promptLogprobs);
  const promptLogprobs =
    body.prompt_logprobs === null || body.prompt_logprobs === undefined ? null : choice.promptLogprobs;
  return {
    index: choice.index,
    text: parts.echoTexts[choice.promptIndex] + (hidesOutput ? '' : choice.text),
    logprobs:
      parts.numTop === null ? null : format.completion(scored.ids, scored.entries, parts.numTop, format.openOffsets()),
    finish_reason: hidesOutput ? 'length' : choice.finishReason,
    stop_reason: hidesOutput ? null : choice.stopReason,
    token_ids: body.return_token_ids === true ? tokenIds : null,
    prompt_logprobs: promptLogprobs === null ? null : format.prompt(promptLogprobs),
    prompt_token_ids: body.return_token_ids === true ? prompt.tokenIds : null,
  };
}

/** The tokens that the logprob lists are about: with echo those of the prompt stand in front. */
function scoredTokens(
  parts: CompletionReply,
  promptIndex: number,
  tokenIds: readonly number[],
  logprobs: readonly TokenLogprob[],
  promptLogprobs: ReadonlyArray<TokenLogprob | null> | null,
): { ids: readonly number[]; entries: ReadonlyArray<TokenLogprob | null> } {
  if (parts.body.echo !== true || promptLogprobs === null) return { ids: tokenIds, entries: logprobs };
  return {
    ids: [...parts.prompts[promptIndex]!.tokenIds, ...tokenIds],
    entries: [...promptLogprobs, ...logprobs.slice(0, tokenIds.length)],
  };
}

class CompletionStreamWriter implements StreamWriter {
  readonly #parts: CompletionReply;
  readonly #head: string;
  readonly #wishes: { atEnd: boolean; inEveryChunk: boolean };
  /** Per choice, how far its text has come. */
  readonly #offsets: IncrementalDetokenizer[] = [];

  constructor(parts: CompletionReply) {
    this.#parts = parts;
    const { identity, created, model } = parts;
    this.#head =
      `data: {"id":${JSON.stringify(identity.id)},"object":"text_completion","created":${created},` +
      `"model":${JSON.stringify(model)},"choices":[`;
    this.#wishes = usageWishes(parts.body.stream_options, parts.context.options);
  }

  delta(delta: ChoiceDelta, source: UsageSource): string {
    const parts = this.#parts;
    const { body, numTop, hidesOutput } = parts;
    const tokenIds = hidesOutput ? [] : delta.tokenIds;
    const text = (delta.isFirst ? parts.echoTexts[delta.promptIndex]! : '') + (hidesOutput ? '' : delta.text);
    const hasTokens = tokenIds.length > 0 && (numTop !== null || body.return_token_ids === true);
    const ends = delta.finishReason !== null;
    if (text === '' && !ends && !hasTokens && !(delta.isFirst && body.return_token_ids === true)) return '';
    const finish = ends && hidesOutput ? 'length' : delta.finishReason;
    const stop = hidesOutput ? null : delta.stopReason;
    const ids =
      body.return_token_ids === true
        ? `,"token_ids":${JSON.stringify(tokenIds)}` +
          (delta.isFirst ? `,"prompt_token_ids":${JSON.stringify(parts.prompts[delta.promptIndex]!.tokenIds)}` : '')
        : '';
    const usagePart = this.#wishes.inEveryChunk ? `,"usage":${this.#usage(source.usage)}` : '';
    return (
      `${this.#head}{"index":${delta.index},"text":${JSON.stringify(text)},"logprobs":${this.#logprobs(delta, tokenIds)},` +
      `"finish_reason":${JSON.stringify(finish)},"stop_reason":${JSON.stringify(stop)}${ids}}]${usagePart}}\n\n`
    );
  }

  end(usage: Usage): string {
    return this.#wishes.atEnd ? `${this.#head}],"usage":${this.#usage(usage)}}\n\n` : '';
  }

  #logprobs(delta: ChoiceDelta, tokenIds: readonly number[]): string {
    const { numTop, format } = this.#parts;
    if (numTop === null) return 'null';
    const scored = scoredTokens(this.#parts, delta.promptIndex, tokenIds, delta.logprobs ?? [], delta.promptLogprobs);
    if (scored.ids.length === 0) return 'null';
    this.#offsets[delta.index] ??= format.openOffsets();
    const lists = format.completion(scored.ids, scored.entries, numTop, this.#offsets[delta.index]!);
    return JSON.stringify(lists);
  }

  #usage(usage: Usage): string {
    return JSON.stringify(usageJson(visibleUsage(this.#parts, usage), this.#parts.context.options));
  }
}
