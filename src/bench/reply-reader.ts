// Makes sense of the events of one streamed reply: which brought tokens, what the usage says, whether the stream ended properly.
// Knows the two wire forms (text completion and chat completion) and nothing of sockets.

import type { Outcome } from './request-record.ts';

export type Backend = 'openai' | 'vllm' | 'openai-chat';

export interface Reply {
  readonly firstChoiceSeconds: number | null;
  readonly tokenSeconds: readonly number[];
  readonly outcome: Outcome;
  readonly error: string;
  readonly numPromptTokens: number | null;
  readonly numOutputTokens: number;
  readonly countedBy: 'usage' | 'events';
  readonly finishReason: string | null;
  readonly text: string;
}

type Json = Readonly<Record<string, unknown>>;

const asObject = (value: unknown): Json | null =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Json) : null;
const asText = (value: unknown): string => (typeof value === 'string' ? value : '');
const asCount = (value: unknown): number | null =>
  typeof value === 'number' && Number.isInteger(value) && value >= 0 ? value : null;

export class ReplyReader {
  readonly #isChat: boolean;
  readonly #tokenSeconds: number[] = [];
  readonly #texts: string[] = [];
  #firstChoiceSeconds: number | null = null;
  /** An event that closed the choice without text: a token (the end token) or not, as the usage tells later. */
  #closingSeconds: number | null = null;
  #finishReason: string | null = null;
  #isDone = false;
  #error = '';
  #numPromptTokens: number | null = null;
  #numOutputTokens: number | null = null;

  constructor(backend: Backend) {
    this.#isChat = backend === 'openai-chat';
  }

  /** The data of one event and the time of its socket read. */
  event(data: string, stampSeconds: number): void {
    if (this.#isDone) return;
    if (data.trim() === '[DONE]') {
      this.#isDone = true;
      return;
    }
    let message: Json | null = null;
    try {
      message = asObject(JSON.parse(data));
    } catch {
      // Said below, in one place.
    }
    if (message === null) {
      this.#error ||= `The server sent an event that is not a JSON object: ${data.slice(0, 100)}`;
      return;
    }
    this.#readError(message);
    this.#readUsage(message);
    const choices = Array.isArray(message.choices) ? message.choices : [];
    for (const choice of choices) this.#readChoice(asObject(choice) ?? {}, stampSeconds);
  }

  /** What it amounts to when the connection has ended; `problem` is what the transport saw go wrong. */
  end(problem: string): Reply {
    this.#settleClosing();
    const numEvents = this.#tokenSeconds.length;
    const endedWell = this.#isDone || this.#finishReason !== null;
    const error =
      this.#error ||
      (endedWell
        ? ''
        : problem || (numEvents > 0 ? 'The stream ended without its end mark.' : 'The reply has no tokens.'));
    return {
      firstChoiceSeconds: this.#firstChoiceSeconds,
      tokenSeconds: this.#tokenSeconds,
      outcome: error !== '' ? (numEvents > 0 ? 'cut' : 'failed') : numEvents > 0 ? 'completed' : 'failed',
      error: error === '' && numEvents === 0 ? 'The stream ended without a token.' : error,
      numPromptTokens: this.#numPromptTokens,
      numOutputTokens: this.#numOutputTokens ?? numEvents,
      countedBy: this.#numOutputTokens === null ? 'events' : 'usage',
      finishReason: this.#finishReason,
      text: this.#texts.join(''),
    };
  }

  #readError(message: Json): void {
    if (message.error === undefined || message.error === null) return;
    const error = asObject(message.error);
    this.#error ||= `The server reported: ${(asText(error?.message) || JSON.stringify(message.error)).slice(0, 300)}`;
  }

  #readUsage(message: Json): void {
    const usage = asObject(message.usage);
    if (usage === null) return;
    this.#numPromptTokens = asCount(usage.prompt_tokens) ?? this.#numPromptTokens;
    this.#numOutputTokens = asCount(usage.completion_tokens) ?? this.#numOutputTokens;
  }

  #readChoice(choice: Json, stampSeconds: number): void {
    this.#firstChoiceSeconds ??= stampSeconds;
    const delta = this.#isChat ? asObject(choice.delta) : choice;
    const text = this.#isChat
      ? asText(delta?.content) + asText(delta?.reasoning) + asText(delta?.reasoning_content)
      : asText(delta?.text);
    const tools = delta?.tool_calls;
    const hasTools = Array.isArray(tools) && tools.length > 0;
    const closes = typeof choice.finish_reason === 'string';
    if (closes) this.#finishReason = choice.finish_reason as string;
    this.#texts.push(text);
    if (text !== '' || hasTools) this.#tokenSeconds.push(stampSeconds);
    else if (closes) this.#closingSeconds = stampSeconds;
    // A token whose bytes are not a character yet; a role chunk is none.
    else if (!(this.#isChat && delta?.role !== undefined)) this.#tokenSeconds.push(stampSeconds);
  }

  /** The closing event brought the end token when the usage has more tokens than there were events with text. */
  #settleClosing(): void {
    if (this.#closingSeconds === null || this.#numOutputTokens === null) return;
    if (this.#numOutputTokens > this.#tokenSeconds.length) this.#tokenSeconds.push(this.#closingSeconds);
    this.#closingSeconds = null;
  }
}
