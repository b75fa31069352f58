// Pagoda from code, without a server: load a model in this process, generate texts or stream them, dispose everything.
//
//   await using llm = await LLM.load({ model: 'pagoda-mini' });
//   const [result] = await llm.generate('The capital of France is', { maxTokens: 8, temperature: 0 });
//   for await (const chunk of llm.stream('Once upon a time')) process.stdout.write(chunk.text);

import type { Checkpoint } from '../checkpoint/checkpoint.ts';
import { openModel } from '../checkpoint/resolve-model.ts';
import type { FinishReason, TokenLogprob } from '../core/request.ts';
import { PagodaError } from '../errors.ts';
import { loadModel } from '../model/load-model.ts';
import { programMacs, stepShape } from '../model/op-cost.ts';
import type { Program } from '../model/program.ts';
import { encodePrompt } from '../text/encode-prompt.ts';
import { type GenerationDefaults, generationDefaults } from '../text/generation-config.ts';
import { loadTokenizer } from '../text/load-tokenizer.ts';
import type { Tokenizer } from '../text/tokenizer.ts';
import { type ChatMessages, ChatPrompts } from './chat-prompts.ts';
import type { EngineClient, EngineInfo, EngineListeners } from './engine-client.ts';
import { completeEngineOptions, type EngineOptions } from './engine-options.ts';
import { createInProcessClient } from './in-process-client.ts';
import { overrideDefaults } from './override-defaults.ts';
import { type ResolvedSampling, resolveSampling, type SamplingInput } from './resolve-sampling.ts';
import { type TextDelta, TextGeneration } from './text-generation.ts';

/** Engine options (defaults as on the command line) and what belongs to the texts. */
export interface LLMOptions extends Partial<EngineOptions> {
  /** `auto`: default sampling parameters from the model's generation_config.json; `vllm`: vLLM's own. */
  readonly generationConfig?: 'auto' | 'vllm';
  /** Default sampling parameters that win over the generation config, by their names there (`top_k`, `max_new_tokens`, ...). */
  readonly overrideGenerationConfig?: Readonly<Record<string, unknown>>;
  /** A Jinja chat template to use instead of the model's. */
  readonly chatTemplate?: string;
  /** Largest `logprobs` that may be asked for; -1 = the whole vocabulary. */
  readonly maxLogprobs?: number;
  readonly onLog?: (level: 'info' | 'warn' | 'error', message: string) => void;
  readonly onLoadProgress?: (doneBytes: number, totalBytes: number) => void;
  /** After every engine step. */
  readonly onStep?: NonNullable<EngineListeners['onStep']>;
}

/** A text (control tokens in it count), token ids, or a conversation. */
export type Prompt = string | readonly number[] | { readonly messages: ChatMessages };

export interface CallOptions {
  readonly signal?: AbortSignal;
}

export interface CompletionOutput {
  readonly index: number;
  readonly text: string;
  readonly tokenIds: readonly number[];
  readonly finishReason: FinishReason;
  /** The stop string or stop token id that ended it; null for the end token and for length. */
  readonly stopReason: string | number | null;
  /** One entry per token when asked for, else null. */
  readonly logprobs: readonly TokenLogprob[] | null;
}

export interface RequestOutput {
  readonly promptTokenIds: readonly number[];
  readonly promptLogprobs: ReadonlyArray<TokenLogprob | null> | null;
  /** Prompt tokens that came from the prefix cache. */
  readonly numCachedTokens: number;
  /** n of them. */
  readonly outputs: readonly CompletionOutput[];
}

const DEFAULT_MAX_TOKENS = 16;
const DEFAULT_MAX_LOGPROBS = 20;

export class LLM implements AsyncDisposable {
  readonly tokenizer: Tokenizer;
  readonly #client: EngineClient;
  readonly #program: Program;
  readonly #chat: ChatPrompts;
  readonly #defaults: GenerationDefaults;
  readonly #maxLogprobs: number;
  #numRequests = 0;
  #disposed: Promise<void> | null = null;

  private constructor(parts: {
    client: EngineClient;
    program: Program;
    tokenizer: Tokenizer;
    chat: ChatPrompts;
    defaults: GenerationDefaults;
    maxLogprobs: number;
  }) {
    this.#client = parts.client;
    this.#program = parts.program;
    this.tokenizer = parts.tokenizer;
    this.#chat = parts.chat;
    this.#defaults = parts.defaults;
    this.#maxLogprobs = parts.maxLogprobs;
  }

  /** Throws PagodaError: bad_config, bad_model_file, unsupported, out_of_memory, not_found. */
  static async load(options: LLMOptions | string = {}): Promise<LLM> {
    const given = typeof options === 'string' ? { model: options } : options;
    const {
      generationConfig,
      overrideGenerationConfig,
      chatTemplate,
      maxLogprobs,
      onLog,
      onLoadProgress,
      onStep,
      ...engine
    } = given;
    const engineOptions = completeEngineOptions(engine);
    const checkpoint = openModel(engineOptions.model);
    try {
      const text = loadText(checkpoint, {
        generationConfig: generationConfig ?? 'auto',
        override: overrideGenerationConfig ?? {},
        chatTemplate: chatTemplate ?? null,
      });
      const listeners: EngineListeners = {
        ...(onLog === undefined ? {} : { onLog }),
        ...(onLoadProgress === undefined ? {} : { onLoadProgress }),
        ...(onStep === undefined ? {} : { onStep }),
      };
      try {
        const { program } = loadModel(checkpoint);
        const client = await createInProcessClient(engineOptions, listeners, { checkpoint });
        return new LLM({ client, program, ...text, maxLogprobs: maxLogprobs ?? DEFAULT_MAX_LOGPROBS });
      } catch (error) {
        await text.chat.dispose();
        throw error;
      }
    } finally {
      checkpoint.close();
    }
  }

  get info(): EngineInfo {
    return this.#client.info;
  }

  /** A text as token ids, as `generate` would take it: with what the tokenizer adds, and with control tokens parsed. */
  encode(text: string): number[] {
    return encodePrompt(this.tokenizer, text, { addSpecialTokens: true });
  }

  /** Multiplications that a step costs which computes `numTokens` tokens after `numComputed` cached ones and samples one. */
  multiplications(step: { readonly numComputed: number; readonly numTokens: number }): number {
    return programMacs(this.#program, stepShape([step], 1));
  }

  /** Generates for one prompt or several at once; results come in the order of the prompts. */
  async generate(
    prompts: Prompt | readonly Prompt[],
    params: SamplingInput = {},
    options: CallOptions = {},
  ): Promise<RequestOutput[]> {
    const list = isOnePrompt(prompts) ? [prompts] : prompts;
    const resolved = await Promise.all(list.map((prompt) => this.#resolve(prompt, params)));
    const running: Collected[] = [];
    try {
      for (const each of resolved) running.push(this.#collect(each, options.signal ?? null));
      await Promise.all(running.map(({ generation }) => generation.done));
    } catch (error) {
      for (const { generation } of running) generation.abort();
      throw error;
    }
    return running.map(({ output }) => output());
  }

  /** The conversation's next message. Without maxTokens it may use what is left of the context. */
  async chat(messages: ChatMessages, params: SamplingInput = {}, options: CallOptions = {}): Promise<RequestOutput> {
    const [output] = await this.generate({ messages }, params, options);
    return output!;
  }

  /** Text as it is made. Leaving the loop early ends the generation. */
  async *stream(
    prompt: Prompt,
    params: SamplingInput = {},
    options: CallOptions = {},
  ): AsyncGenerator<TextDelta, void, undefined> {
    const { promptTokenIds, resolved } = await this.#resolve(prompt, params);
    const queue: TextDelta[] = [];
    let wake: () => void = () => undefined;
    const generation = this.#start(promptTokenIds, resolved, options.signal ?? null, (delta) => {
      queue.push(delta);
      wake();
    });
    let isOver = false;
    const over = () => {
      isOver = true;
      wake();
    };
    generation.done.then(over, over);
    try {
      for (;;) {
        for (let delta = queue.shift(); delta !== undefined; delta = queue.shift()) yield delta;
        if (isOver) break;
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      }
      await generation.done;
    } finally {
      generation.abort();
    }
  }

  /** Ends what runs and frees weights, KV cache, threads and the template worker. The object is of no use afterwards. */
  dispose(): Promise<void> {
    this.#disposed ??= (async () => {
      await this.#client.close({ drainSeconds: 0 });
      await this.#chat.dispose();
    })();
    return this.#disposed;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.dispose();
  }

  async #resolve(
    prompt: Prompt,
    params: SamplingInput,
  ): Promise<{ promptTokenIds: readonly number[]; resolved: ResolvedSampling }> {
    const isChat = typeof prompt === 'object' && 'messages' in prompt;
    const promptTokenIds = isChat
      ? await this.#chat.encode(prompt.messages)
      : this.#promptIds(prompt as string | readonly number[]);
    const resolved = resolveSampling(params, {
      vocabSize: this.info.vocabSize,
      maxModelLen: this.info.maxModelLen,
      numPromptTokens: promptTokenIds.length,
      eosTokenIds: this.#defaults.eosTokenIds,
      defaults: this.#defaults.sampling,
      defaultMaxTokens: isChat ? null : DEFAULT_MAX_TOKENS,
      maxLogprobs: this.#maxLogprobs,
      encode: (text) => encodePrompt(this.tokenizer, text, { addSpecialTokens: false }),
    });
    return { promptTokenIds, resolved };
  }

  #promptIds(prompt: string | readonly number[]): readonly number[] {
    if (typeof prompt === 'string') return this.encode(prompt);
    const { vocabSize } = this.info;
    for (const id of prompt) {
      if (Number.isInteger(id) && id >= 0 && id < vocabSize) continue;
      throw new PagodaError('bad_request', `The token id ${id} is out of vocabulary. Vocabulary size: ${vocabSize}`, {
        param: 'prompt',
      });
    }
    return prompt;
  }

  #start(
    promptTokenIds: readonly number[],
    resolved: ResolvedSampling,
    signal: AbortSignal | null,
    onDelta: (delta: TextDelta) => void,
  ): TextGeneration {
    const id = `llm-${this.#numRequests++}`;
    return new TextGeneration({
      client: this.#client,
      tokenizer: this.tokenizer,
      id,
      promptTokenIds,
      resolved,
      signal,
      onDelta,
    });
  }

  #collect(
    request: { promptTokenIds: readonly number[]; resolved: ResolvedSampling },
    signal: AbortSignal | null,
  ): Collected {
    const { promptTokenIds, resolved } = request;
    const parts = Array.from({ length: resolved.n }, (): TextDelta[] => []);
    const generation = this.#start(promptTokenIds, resolved, signal, (delta) => parts[delta.index]!.push(delta));
    return {
      generation,
      output: () => ({
        promptTokenIds,
        promptLogprobs: parts[0]!.find((delta) => delta.promptLogprobs !== null)?.promptLogprobs ?? null,
        numCachedTokens: parts[0]![0]!.numCachedTokens,
        outputs: parts.map(foldDeltas),
      }),
    };
  }
}

interface Collected {
  readonly generation: TextGeneration;
  /** Only after `generation.done`. */
  output(): RequestOutput;
}

function foldDeltas(deltas: readonly TextDelta[], index: number): CompletionOutput {
  const last = deltas.at(-1)!;
  return {
    index,
    text: deltas.map((delta) => delta.text).join(''),
    tokenIds: deltas.flatMap((delta) => delta.tokenIds),
    finishReason: last.finishReason ?? 'error',
    stopReason: last.stopReason,
    logprobs: last.logprobs === null ? null : deltas.flatMap((delta) => delta.logprobs ?? []),
  };
}

function isOnePrompt(prompts: Prompt | readonly Prompt[]): prompts is Prompt {
  return !Array.isArray(prompts) || typeof prompts[0] === 'number';
}

function loadText(
  checkpoint: Checkpoint,
  options: {
    generationConfig: 'auto' | 'vllm';
    override: Readonly<Record<string, unknown>>;
    chatTemplate: string | null;
  },
): { tokenizer: Tokenizer; chat: ChatPrompts; defaults: GenerationDefaults } {
  const tokenizer = loadTokenizer(checkpoint);
  const fromModel = generationDefaults(checkpoint, tokenizer, { generationConfig: options.generationConfig });
  const defaults = overrideDefaults(fromModel, options.override);
  return { tokenizer, defaults, chat: new ChatPrompts(checkpoint, tokenizer, options.chatTemplate) };
}
