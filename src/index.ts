// The public API of the package: load a model and generate, in this process.

export type { FinishReason, TokenLogprob } from './core/request.ts';
export type { ChatMessage, ChatMessages } from './engine/chat-prompts.ts';
export type { EngineInfo } from './engine/engine-client.ts';
export type { EngineOptions } from './engine/engine-options.ts';
export {
  type CallOptions,
  type CompletionOutput,
  LLM,
  type LLMOptions,
  type Prompt,
  type RequestOutput,
} from './engine/llm.ts';
export type { SamplingInput as SamplingParams } from './engine/resolve-sampling.ts';
export type { TextDelta } from './engine/text-generation.ts';
export { type ErrorCode, PagodaError } from './errors.ts';
