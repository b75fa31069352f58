// What every route needs, built once by startServer.

import type { EngineClient } from '../engine/engine-client.ts';
import type { SamplingDefaults } from '../engine/resolve-sampling.ts';
import type { Tokenizer } from '../text/tokenizer.ts';
import type { ChoiceText } from './generation.ts';
import type { Logger } from './logger.ts';
import type { ChatMessage, ContentFormat } from './messages.ts';
import type { ServerOptions } from './server-options.ts';
import type { Telemetry } from './telemetry.ts';

export interface ChatRenderRequest {
  readonly messages: readonly ChatMessage[];
  readonly addGenerationPrompt: boolean;
  readonly continueFinalMessage: boolean;
  readonly kwargs: Readonly<Record<string, unknown>>;
  readonly addSpecialTokens: boolean;
}

/** The text side of the server, so that protocol tests can bring their own. */
export interface TextService {
  readonly tokenizer: Tokenizer;
  /** Whether the chat template wants a message's content as one text or as a list of parts. */
  readonly contentFormat: ContentFormat;
  /** A text as the user gave it, to token ids. */
  encodePrompt(text: string, options: { addSpecialTokens: boolean }): number[];
  /** Renders and encodes. Throws template_error with the template's own sentence. */
  encodeChat(request: ChatRenderRequest): Promise<number[]>;
  openText(options: {
    stop: readonly string[];
    includeStop: boolean;
    skipSpecialTokens: boolean;
    minTokens: number;
  }): ChoiceText;
}

export interface ModelInfo {
  /** The path or name the model was loaded from, for /v1/models. */
  readonly root: string;
  /** End-of-sequence ids: the union of tokenizer, config and generation_config. */
  readonly eosTokenIds: readonly number[];
  readonly samplingDefaults: SamplingDefaults;
  /** Defaults that come from generation_config.json, by their names there; empty when none. */
  readonly overriddenDefaults: Readonly<Record<string, unknown>>;
}

export interface ServerContext {
  readonly options: ServerOptions;
  readonly engine: EngineClient;
  readonly text: TextService;
  readonly model: ModelInfo;
  readonly version: string;
  readonly logger: Logger;
  readonly telemetry: Telemetry;
  /** Unix seconds of the start: `created` of the models. */
  readonly startedAt: number;
  /** Bytes of the longest token. */
  readonly maxTokenBytes: number;
  readonly state: ServerState;
}

/** What changes while the server runs. */
export interface ServerState {
  isDraining: boolean;
  /** Generating HTTP requests that are open, with how to end each. */
  readonly open: Set<() => void>;
  /** Engine ids in use. */
  readonly liveIds: Set<string>;
}
