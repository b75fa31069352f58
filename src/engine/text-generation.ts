// One prompt's generation as text, for callers in this process: n sequences submitted together, their tokens turned into text
// deltas, stop strings found and the sequence ended there. The end is a settled promise: fulfilled, or rejected with a PagodaError.

import { now } from '../clock.ts';
import type { FinishReason, GenerateRequest, TokenEvent, TokenLogprob } from '../core/request.ts';
import { PagodaError } from '../errors.ts';
import { TextStream } from '../text/text-stream.ts';
import type { Tokenizer } from '../text/tokenizer.ts';
import type { EngineClient } from './engine-client.ts';
import { childSampling, type ResolvedSampling } from './resolve-sampling.ts';

export interface TextDelta {
  /** Which of the n sequences. */
  readonly index: number;
  readonly text: string;
  readonly tokenIds: readonly number[];
  readonly logprobs: readonly TokenLogprob[] | null;
  /** With the first token of each sequence, when asked for. */
  readonly promptLogprobs: ReadonlyArray<TokenLogprob | null> | null;
  readonly numCachedTokens: number;
  /** Set in the last delta of the sequence. */
  readonly finishReason: FinishReason | null;
  /** The stop string or stop token id that ended it. */
  readonly stopReason: string | number | null;
}

export interface TextGenerationOptions {
  readonly client: EngineClient;
  readonly tokenizer: Tokenizer;
  /** Unique among live requests; sequences are called `id-0`, `id-1`, ... */
  readonly id: string;
  readonly promptTokenIds: readonly number[];
  readonly resolved: ResolvedSampling;
  readonly signal: AbortSignal | null;
  onDelta(delta: TextDelta): void;
}

interface Sequence {
  readonly index: number;
  readonly text: TextStream;
}

export class TextGeneration {
  /** Fulfilled after the last delta. */
  readonly done: Promise<void>;
  readonly #options: TextGenerationOptions;
  readonly #open = new Map<string, Sequence>();
  #settle: { resolve(): void; reject(error: PagodaError): void } | null = null;
  readonly #onSignal = () =>
    this.#fail(new PagodaError('aborted', 'The generation was aborted.', { cause: this.#options.signal?.reason }));

  /** Throws what the engine refuses. */
  constructor(options: TextGenerationOptions) {
    this.#options = options;
    const { client, tokenizer, resolved, promptTokenIds, signal } = options;
    this.done = new Promise((resolve, reject) => {
      this.#settle = { resolve, reject };
    });
    // Whoever awaits it later still gets the error.
    this.done.catch(() => undefined);
    if (signal?.aborted) {
      this.#onSignal();
      return;
    }
    const requests: GenerateRequest[] = [];
    for (let index = 0; index < resolved.n; index++) {
      const id = `${options.id}-${index}`;
      const sampling = childSampling(resolved.sampling, index);
      const text = new TextStream(tokenizer, {
        stop: resolved.stop,
        includeStop: resolved.includeStopStrInOutput,
        skipSpecialTokens: resolved.skipSpecialTokens,
        minTokens: sampling.minTokens,
      });
      this.#open.set(id, { index, text });
      requests.push({ id, promptTokenIds, sampling, priority: 0, arrivalTime: now(), cacheSalt: null });
    }
    client.submit(requests, (event) => this.#onEvent(event));
    signal?.addEventListener('abort', this.#onSignal, { once: true });
  }

  /** Ends what still runs; `done` is rejected with `aborted` if anything did. */
  abort(): void {
    this.#onSignal();
  }

  #onEvent(event: TokenEvent): void {
    const sequence = this.#open.get(event.id);
    if (sequence === undefined) return;
    const { finish } = event;
    if (finish?.reason === 'error' || finish?.reason === 'abort') {
      this.#open.delete(event.id);
      const code = finish.reason === 'error' ? 'device_fault' : 'aborted';
      this.#fail(new PagodaError(code, finish.message ?? 'The generation was aborted.'));
      return;
    }
    const delta = this.#delta(sequence, event);
    if (delta.finishReason !== null) {
      this.#open.delete(event.id);
      if (finish === null) this.#options.client.abort([event.id], 'stop');
    }
    if (delta.tokenIds.length > 0 || delta.text !== '' || delta.finishReason !== null) this.#options.onDelta(delta);
    if (this.#open.size === 0) this.#end()?.resolve();
  }

  #delta({ index, text }: Sequence, event: TokenEvent): TextDelta {
    const { finish, tokenIds } = event;
    // An end token is part of the tokens but not of the text.
    const hidesLast =
      finish?.reason === 'stop' && !this.#options.resolved.includeStopStrInOutput && tokenIds.length > 0;
    const pushed = text.push(hidesLast ? tokenIds.slice(0, -1) : tokenIds);
    const numTokens = pushed.stop === null ? tokenIds.length : pushed.numTokens;
    let shown = pushed.text;
    let { stop } = pushed;
    if (stop === null && finish !== null) {
      const rest = text.finish();
      shown += rest.text;
      stop = rest.stop;
    }
    return {
      index,
      text: shown,
      tokenIds: numTokens === tokenIds.length ? tokenIds : tokenIds.slice(0, numTokens),
      logprobs: event.logprobs === null ? null : event.logprobs.slice(0, numTokens),
      promptLogprobs: event.promptLogprobs,
      numCachedTokens: event.numCachedTokens,
      finishReason: stop !== null ? 'stop' : (finish?.reason ?? null),
      stopReason: stop ?? finish?.stopTokenId ?? null,
    };
  }

  #fail(error: PagodaError): void {
    const settle = this.#end();
    if (settle === null) return;
    const ids = [...this.#open.keys()];
    this.#open.clear();
    if (ids.length > 0) this.#options.client.abort(ids, 'abort');
    settle.reject(error);
  }

  /** Once: the right to settle. */
  #end(): { resolve(): void; reject(error: PagodaError): void } | null {
    const settle = this.#settle;
    this.#settle = null;
    this.#options.signal?.removeEventListener('abort', this.#onSignal);
    return settle;
  }
}
