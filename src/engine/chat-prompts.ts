// Conversations to token ids with a model's chat template. The template's thread starts with the first conversation.

import type { Checkpoint } from '../checkpoint/checkpoint.ts';
import { PagodaError } from '../errors.ts';
import { ChatTemplate } from '../text/chat-template.ts';
import { detectContentFormat, findChatTemplate } from '../text/find-chat-template.ts';
import { renderChat } from '../text/render-chat.ts';
import type { Tokenizer } from '../text/tokenizer.ts';

export interface ChatMessage {
  readonly role: string;
  readonly content: string;
  /** What else the template may look at: name, tool_calls, ... */
  readonly [extra: string]: unknown;
}

export type ChatMessages = readonly ChatMessage[];

export interface ChatEncodeOptions {
  /** End with the opening of a reply (default true). */
  readonly addGenerationPrompt?: boolean;
  /** Leave the last message open, to be continued. */
  readonly continueFinalMessage?: boolean;
  /** Further variables of the template. */
  readonly kwargs?: Readonly<Record<string, unknown>>;
  readonly addSpecialTokens?: boolean;
}

const NO_TEMPLATE =
  'As of transformers v4.44, default chat template is no longer allowed, so you must provide a chat template if the tokenizer does not define one.';

export class ChatPrompts {
  /** null when the model has none and none was given. */
  readonly source: string | null;
  readonly #tokenizer: Tokenizer;
  #template: Promise<ChatTemplate> | null = null;

  /** `source` replaces the model's template. */
  constructor(checkpoint: Checkpoint, tokenizer: Tokenizer, source: string | null) {
    this.source = source ?? findChatTemplate(checkpoint);
    this.#tokenizer = tokenizer;
  }

  /** Throws template_error with the template's own sentence, or bad_request when there is no template. */
  async encode(messages: ChatMessages, options: ChatEncodeOptions = {}): Promise<number[]> {
    if (!Array.isArray(messages) || messages.length === 0) {
      throw new PagodaError('bad_request', 'messages must be a list of at least one message.', { param: 'messages' });
    }
    const template = await this.load();
    const { tokenIds } = await renderChat(template, this.#tokenizer, {
      messages: detectContentFormat(template.source) === 'openai' ? messages.map(withParts) : messages,
      addGenerationPrompt: options.addGenerationPrompt ?? true,
      continueFinalMessage: options.continueFinalMessage ?? false,
      addSpecialTokens: options.addSpecialTokens ?? false,
      ...(options.kwargs === undefined ? {} : { kwargs: options.kwargs }),
    });
    return tokenIds;
  }

  /** Parses the template, so that a bad one is known before the first conversation. */
  load(): Promise<ChatTemplate> {
    if (this.source === null) return Promise.reject(new PagodaError('bad_request', NO_TEMPLATE, { param: 'messages' }));
    this.#template ??= ChatTemplate.create(this.source, {
      bosToken: spelling(this.#tokenizer, this.#tokenizer.bosTokenId),
      eosToken: spelling(this.#tokenizer, this.#tokenizer.eosTokenId),
    });
    return this.#template;
  }

  async dispose(): Promise<void> {
    const template = await this.#template?.catch(() => null);
    await template?.close();
  }
}

function spelling(tokenizer: Tokenizer, id: number | null): string | null {
  return id === null ? null : tokenizer.tokenText(id);
}

/** For templates that go through the parts of a content. */
function withParts(message: ChatMessage): Record<string, unknown> {
  const { content } = message;
  return typeof content === 'string' ? { ...message, content: [{ type: 'text', text: content }] } : message;
}
