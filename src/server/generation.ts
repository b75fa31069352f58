// One HTTP request's generation: n choices per prompt, submitted to the engine together, turned into a stream of text deltas.
// Streaming and not streaming read the same deltas; the non-streaming reply is a fold over them (see fold.ts). Whatever
// happens, the sink hears exactly one of onEnd and onError, and every choice that still runs is aborted in the engine.

import type { FinishReason, GenerateRequest, TokenEvent, TokenLogprob } from '../core/request.ts';
import { PagodaError } from '../errors.ts';
import type { ServerContext } from './server-context.ts';
import { ChoiceGroup, type RequestMeter } from './telemetry.ts';

/** Incremental text of one choice: detokenizer and stop strings. */
export interface ChoiceText {
  /** Text that can be shown after these tokens, and the stop string that ended it, if any. */
  push(tokenIds: readonly number[]): TextPiece;
  /** What was held back. Called once, when no more tokens come. */
  finish(): TextPiece;
}

export interface TextPiece {
  readonly text: string;
  readonly stop: string | null;
  /** Of the tokens just pushed, how many belong to the choice: fewer than all only when a stop string was found. */
  readonly numTokens: number;
}

export interface Choice {
  readonly index: number;
  readonly promptIndex: number;
  readonly request: GenerateRequest;
  readonly text: ChoiceText;
  /** Show the stop token's own text. */
  readonly includeStop: boolean;
}

export interface ChoiceDelta {
  readonly index: number;
  readonly promptIndex: number;
  readonly text: string;
  readonly tokenIds: readonly number[];
  readonly logprobs: readonly TokenLogprob[] | null;
  /** With the first delta of a choice that asked for them. */
  readonly promptLogprobs: ReadonlyArray<TokenLogprob | null> | null;
  readonly isFirst: boolean;
  readonly finishReason: FinishReason | null;
  /** The stop string or stop token id that ended the choice. */
  readonly stopReason: string | number | null;
}

export interface GenerationSink {
  onDelta(delta: ChoiceDelta): void;
  onEnd(): void;
  onError(error: PagodaError): void;
}

interface ChoiceState {
  readonly choice: Choice;
  readonly meter: RequestMeter;
  hasBegun: boolean;
  /** The client has seen the choice's end; the engine's terminal event may still come. */
  isDone: boolean;
}

export interface Usage {
  readonly promptTokens: number;
  readonly completionTokens: number;
  readonly cachedTokens: number;
}

/** Usage is added up when somebody wants it: most chunks do not show it. */
export interface UsageSource {
  readonly usage: Usage;
}

export class Generation implements UsageSource {
  readonly #context: ServerContext;
  readonly #sink: GenerationSink;
  readonly #states = new Map<string, ChoiceState>();
  readonly #numPromptTokens: number;
  readonly #cachedByPrompt: number[] = [];
  #numOpen: number;
  #completionTokens = 0;
  #isOver = false;
  #deadline: NodeJS.Timeout | null = null;

  constructor(
    context: ServerContext,
    options: { choices: readonly Choice[]; numPromptTokens: number; sink: GenerationSink },
  ) {
    this.#context = context;
    this.#sink = options.sink;
    this.#numPromptTokens = options.numPromptTokens;
    this.#numOpen = options.choices.length;
    const groups = new Map<number, ChoiceGroup>();
    const n = options.choices.filter((choice) => choice.promptIndex === 0).length;
    for (const choice of options.choices) {
      const group = groups.get(choice.promptIndex) ?? new ChoiceGroup(n);
      groups.set(choice.promptIndex, group);
      const meter = context.telemetry.meter(choice.request, group);
      this.#states.set(choice.request.id, { choice, meter, hasBegun: false, isDone: false });
    }
  }

  /** Throws what the engine refuses; then nothing was started and the sink hears nothing. */
  start(): void {
    const { engine, telemetry, state, options } = this.#context;
    const states = [...this.#states.values()];
    for (const each of states) each.meter.open();
    try {
      engine.submit(
        states.map((each) => each.choice.request),
        (event) => this.#onEvent(event),
      );
    } catch (error) {
      for (const each of states) {
        each.meter.refuse();
        state.liveIds.delete(each.choice.request.id);
      }
      if (error instanceof PagodaError && error.code === 'queue_full') telemetry.rejected();
      throw error;
    }
    const seconds = options.limits.requestTimeoutSeconds;
    this.#deadline = setTimeout(() => {
      this.fail(new PagodaError('timeout', `The request took longer than ${seconds} seconds and was given up.`));
    }, seconds * 1000);
  }

  /** The caller went away. The sink hears no more. */
  abort(): void {
    if (this.#isOver) return;
    this.#close();
    this.#abortOpen();
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  get usage(): Usage {
    return {
      promptTokens: this.#numPromptTokens,
      completionTokens: this.#completionTokens,
      cachedTokens: this.#cachedByPrompt.reduce((sum, tokens) => sum + (tokens ?? 0), 0),
    };
  }

  #onEvent(event: TokenEvent): void {
    const state = this.#states.get(event.id);
    if (state === undefined) return;
    if (!state.isDone && !this.#isOver) this.#deliver(state, event);
    if (event.finish !== null) {
      this.#states.delete(event.id);
      this.#context.state.liveIds.delete(event.id);
      state.meter.finish(event.finish);
    }
  }

  #deliver(state: ChoiceState, event: TokenEvent): void {
    const { choice } = state;
    const finish = event.finish;
    if (finish?.reason === 'error') {
      this.fail(new PagodaError('internal', finish.message ?? 'The engine failed this request.'));
      return;
    }
    this.#cachedByPrompt[choice.promptIndex] ??= event.numCachedTokens;
    // A stop token ends the text before itself.
    const hidesLast = finish?.reason === 'stop' && !choice.includeStop && event.tokenIds.length > 0;
    const piece = choice.text.push(hidesLast ? event.tokenIds.slice(0, -1) : event.tokenIds);
    let { text, stop } = piece;
    let numTokens = stop === null ? event.tokenIds.length : piece.numTokens;
    if (stop === null && finish !== null) {
      const rest = choice.text.finish();
      text += rest.text;
      stop = rest.stop;
    }
    numTokens = Math.min(numTokens, event.tokenIds.length);
    if (numTokens > 0) state.meter.tokens(numTokens, event);
    this.#completionTokens += numTokens;
    const ended = stop !== null || finish !== null;
    if (numTokens === 0 && text === '' && !ended) return;
    const isFirst = !state.hasBegun;
    state.hasBegun = true;
    if (ended) this.#markDone(state, stop !== null, finish === null);
    this.#sink.onDelta({
      index: choice.index,
      promptIndex: choice.promptIndex,
      text,
      tokenIds: numTokens === event.tokenIds.length ? event.tokenIds : event.tokenIds.slice(0, numTokens),
      logprobs: event.logprobs === null ? null : event.logprobs.slice(0, numTokens),
      promptLogprobs: event.promptLogprobs,
      isFirst,
      finishReason: ended ? (stop !== null ? 'stop' : (finish?.reason ?? null)) : null,
      stopReason: stop ?? finish?.stopTokenId ?? null,
    });
    if (this.#numOpen === 0 && !this.#isOver) {
      this.#close();
      this.#sink.onEnd();
    }
  }

  #markDone(state: ChoiceState, byStopString: boolean, stillRuns: boolean): void {
    state.isDone = true;
    this.#numOpen--;
    if (byStopString) state.meter.stopped();
    if (stillRuns) this.#context.engine.abort([state.choice.request.id], 'stop');
  }

  /** Ends the request for a reason of ours: the sink hears of it. */
  fail(error: PagodaError): void {
    if (this.#isOver) return;
    this.#close();
    this.#abortOpen();
    this.#sink.onError(error);
  }

  #abortOpen(): void {
    const open = [...this.#states.values()].filter((state) => !state.isDone);
    for (const state of open) state.isDone = true;
    if (open.length > 0)
      this.#context.engine.abort(
        open.map((state) => state.choice.request.id),
        'abort',
      );
  }

  #close(): void {
    this.#isOver = true;
    if (this.#deadline !== null) clearTimeout(this.#deadline);
  }
}
