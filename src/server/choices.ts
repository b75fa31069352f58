// Fan-out: the prompts and n of one HTTP request become the engine requests of its choices, index = choice + prompt * n.

import { now } from '../clock.ts';
import {
  childSampling,
  type ResolvedSampling,
  resolveSampling,
  type SamplingInput,
} from '../engine/resolve-sampling.ts';
import { PagodaError } from '../errors.ts';
import type { Choice } from './generation.ts';
import type { Prompt } from './prompts.ts';
import { reserveEngineIds } from './request-identity.ts';
import type { ChatBody, CompletionBody } from './schemas.ts';
import type { ServerContext } from './server-context.ts';

export interface SamplingRules {
  /** The parts of the sampling input in which chat and completions differ. */
  readonly maxTokens: number | null | undefined;
  readonly maxTokensParam: string;
  readonly defaultMaxTokens: number | null;
  readonly logprobs: number | null;
  readonly promptLogprobs: number | null;
}

export function resolveFor(
  context: ServerContext,
  body: ChatBody | CompletionBody,
  numPromptTokens: number,
  rules: SamplingRules,
): ResolvedSampling {
  return resolveSampling(samplingInput(body, rules), {
    vocabSize: context.engine.info.vocabSize,
    maxModelLen: context.engine.info.maxModelLen,
    numPromptTokens,
    eosTokenIds: context.model.eosTokenIds,
    defaults: context.model.samplingDefaults,
    defaultMaxTokens: rules.defaultMaxTokens,
    maxLogprobs: context.options.maxLogprobs,
    maxN: context.options.limits.maxN,
    maxTokensParam: rules.maxTokensParam,
    encode: (text) => context.text.encodePrompt(text, { addSpecialTokens: false }),
  });
}

function samplingInput(body: ChatBody | CompletionBody, rules: SamplingRules): SamplingInput {
  return {
    n: body.n,
    temperature: body.temperature,
    topP: body.top_p,
    topK: body.top_k,
    minP: body.min_p,
    presencePenalty: body.presence_penalty,
    frequencyPenalty: body.frequency_penalty,
    repetitionPenalty: body.repetition_penalty,
    seed: body.seed,
    stop: body.stop,
    stopTokenIds: body.stop_token_ids,
    includeStopStrInOutput: body.include_stop_str_in_output,
    ignoreEos: body.ignore_eos,
    maxTokens: rules.maxTokens,
    minTokens: body.min_tokens,
    logitBias: body.logit_bias,
    allowedTokenIds: body.allowed_token_ids,
    badWords: body.bad_words,
    logprobs: rules.logprobs,
    promptLogprobs: rules.promptLogprobs,
    skipSpecialTokens: body.skip_special_tokens,
  };
}

export function fanOut(
  context: ServerContext,
  prompts: ReadonlyArray<{ readonly prompt: Prompt; readonly resolved: ResolvedSampling }>,
  body: ChatBody | CompletionBody,
  id: string,
): Choice[] {
  const n = prompts[0]!.resolved.n;
  const limit = context.options.limits.maxNumSequencesPerRequest;
  if (n * prompts.length > limit) {
    const message = `n * number of prompts is ${n * prompts.length}, which is greater than the maximum of ${limit}.`;
    throw new PagodaError('bad_request', message, { param: 'n' });
  }
  const priority = checkPriority(context, body.priority);
  const cacheSalt = checkCacheSalt(body.cache_salt);
  const arrivalTime = now();
  const ids = reserveEngineIds(id, n * prompts.length, context.state.liveIds);
  return ids.map((engineId, index) => {
    const promptIndex = Math.floor(index / n);
    const { prompt, resolved } = prompts[promptIndex]!;
    const { includeStopStrInOutput: includeStop, skipSpecialTokens, stop } = resolved;
    const sampling = childSampling(resolved.sampling, index % n);
    return {
      index,
      promptIndex,
      includeStop,
      request: { id: engineId, promptTokenIds: prompt.tokenIds, sampling, priority, arrivalTime, cacheSalt },
      text: context.text.openText({ stop, includeStop, skipSpecialTokens, minTokens: sampling.minTokens }),
    };
  });
}

function checkPriority(context: ServerContext, value: number | null | undefined): number {
  const priority = value ?? 0;
  if (!Number.isSafeInteger(priority)) refuse('priority', `\`priority\` must be an integer, got ${priority}.`);
  if (priority !== 0 && context.options.schedulingPolicy !== 'priority') {
    refuse('priority', `Got priority ${priority} but Priority scheduling is not enabled.`);
  }
  return priority;
}

function checkCacheSalt(value: string | null | undefined): string | null {
  if (value === null || value === undefined) return null;
  if (value === '') refuse('cache_salt', "Parameter 'cache_salt' must be a non-empty string if provided.");
  if (value.length > 128 || /[@/\\\u0000]/.test(value)) {
    refuse('cache_salt', "Parameter 'cache_salt' must have at most 128 characters and none of @ / \\ NUL.");
  }
  return value;
}

function refuse(param: string, message: string): never {
  throw new PagodaError('bad_request', message, { param });
}
