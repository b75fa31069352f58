// An engine that plays scripts: what a request generates is chosen by the first of its prompt's tokens, one token per step for
// all running requests. Lets protocol tests see every interleaving without a model.

import type { FinishReason, GenerateRequest, TokenEvent, TokenLogprob } from '../../src/core/request.ts';
import type { EngineClient, EngineInfo, EngineListeners, TokenListener } from '../../src/engine/engine-client.ts';
import { PagodaError } from '../../src/errors.ts';

export interface Script {
  /** Tokens in order; after the last one the request ends with `finish`. */
  readonly tokens: readonly number[];
  readonly finish: FinishReason;
  readonly stopTokenId?: number;
  readonly message?: string;
}

interface Running {
  readonly request: GenerateRequest;
  readonly listener: TokenListener;
  readonly script: Script;
  numDone: number;
  startedAt: number | null;
  firstTokenAt: number | null;
}

export class FakeEngine implements EngineClient {
  readonly info: EngineInfo;
  isAlive = true;
  readonly submitted: GenerateRequest[] = [];
  readonly aborted: string[] = [];
  /** Most requests running at once; the others wait. */
  maxRunning = 64;
  maxQueued = 256;
  /** Steps happen only when this is true; tests set it to false to hold everything. */
  isStepping = true;
  stepMilliseconds = 1;
  stepsPerTick = 1;
  numSteps = 0;
  readonly #listeners: EngineListeners;
  readonly #scriptOf: (request: GenerateRequest) => Script;
  readonly #running: Running[] = [];
  #isScheduled = false;
  #isClosed = false;

  constructor(
    scriptOf: (request: GenerateRequest) => Script,
    listeners: EngineListeners = {},
    info: Partial<EngineInfo> = {},
  ) {
    this.#scriptOf = scriptOf;
    this.#listeners = listeners;
    this.info = { ...INFO, ...info };
  }

  submit(requests: readonly GenerateRequest[], listener: TokenListener): void {
    if (!this.isAlive) throw new PagodaError('engine_dead', 'The engine is not running.');
    if (this.#running.length + requests.length > this.maxQueued) {
      throw new PagodaError('queue_full', `${this.maxQueued} requests are waiting already: try again later.`);
    }
    for (const request of requests) {
      if (this.#running.some((other) => other.request.id === request.id)) throw new Error(`id ${request.id} is in use`);
      this.submitted.push(request);
      const script = this.#scriptOf(request);
      this.#running.push({ request, listener, script, numDone: 0, startedAt: null, firstTokenAt: null });
    }
    this.#schedule();
  }

  abort(ids: readonly string[], reason: 'abort' | 'stop'): void {
    for (const id of ids) {
      const entry = this.#running.find((other) => other.request.id === id);
      if (entry === undefined) continue;
      this.aborted.push(id);
      setImmediate(() => this.#end(entry, reason, null));
    }
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    for (const entry of [...this.#running]) this.#end(entry, 'abort', null);
  }

  /** As when the engine process dies: every open request hears of it. */
  crash(): void {
    this.isAlive = false;
    for (const entry of [...this.#running]) this.#end(entry, 'error', 'The engine process ended unexpectedly.');
    this.#listeners.onDown?.('it crashed', true);
  }

  recover(): void {
    this.isAlive = true;
    this.#listeners.onReady?.(this.info);
  }

  get numOpen(): number {
    return this.#running.length;
  }

  #schedule(): void {
    if (this.#isScheduled || this.#isClosed) return;
    this.#isScheduled = true;
    const tick = (): void => {
      this.#isScheduled = false;
      if (this.#isClosed) return;
      for (let i = 0; i < this.stepsPerTick && this.isStepping; i++) this.#step();
      if (this.#running.length > 0) this.#schedule();
    };
    if (this.stepMilliseconds === 0) setImmediate(tick);
    else setTimeout(tick, this.stepMilliseconds);
  }

  #step(): void {
    const batch = this.#running.slice(0, this.maxRunning);
    if (batch.length === 0) return;
    const time = performance.now() / 1000;
    let numPromptTokens = 0;
    this.numSteps++;
    for (const entry of batch) {
      if (entry.startedAt === null) {
        entry.startedAt = time;
        numPromptTokens += entry.request.promptTokenIds.length;
      }
      this.#advance(entry, time);
    }
    this.#listeners.onStep?.({
      stepId: this.numSteps,
      time,
      numRunning: Math.min(this.#running.length, this.maxRunning),
      numWaiting: Math.max(0, this.#running.length - this.maxRunning),
      numPromptTokens,
      numGeneratedTokens: batch.length,
      numRecomputedTokens: 0,
      numPrefixQueryTokens: numPromptTokens,
      numPrefixHitTokens: 0,
      preemptions: [],
      speculation: null,
      numBlocks: this.info.numBlocks,
      numBlocksUsed: Math.min(this.#running.length, this.info.numBlocks),
      numBlocksCached: 0,
      kvWaste: 0.01,
      stepSeconds: 0.001,
      scheduleSeconds: 0.0001,
      deviceSeconds: 0.0008,
      attentionSeconds: 0.0002,
      linearSeconds: 0.0005,
      samplingSeconds: 0.0001,
      updateSeconds: 0.0001,
      fillSeconds: 0.0001,
      launchSeconds: 0.0001,
      handoverSeconds: 0.0002,
      rowsSeconds: 0.00005,
      serialSeconds: 0.00005,
      deliverySeconds: 0.0001,
    });
  }

  #advance(entry: Running, time: number): void {
    const { request, script } = entry;
    if (script.tokens.length === 0) {
      this.#end(entry, script.finish, script.message ?? null);
      return;
    }
    const tokenId = script.tokens[entry.numDone]!;
    entry.numDone++;
    const isFirst = entry.firstTokenAt === null;
    entry.firstTokenAt ??= time;
    const isLast = entry.numDone === script.tokens.length;
    const isFull = entry.numDone >= request.sampling.maxTokens;
    const { logprobs, promptLogprobs } = request.sampling;
    const event: TokenEvent = {
      id: request.id,
      tokenIds: [tokenId],
      logprobs: logprobs === null ? null : [scored(tokenId, logprobs)],
      promptLogprobs:
        promptLogprobs === null || !isFirst
          ? null
          : request.promptTokenIds.map((id, index) => (index === 0 ? null : scored(id, promptLogprobs))),
      numCachedTokens: 0,
      finish: isLast || isFull ? this.#finish(entry, isLast ? script.finish : 'length', script) : null,
    };
    if (event.finish !== null) this.#remove(entry);
    entry.listener(event);
  }

  #end(entry: Running, reason: FinishReason, message: string | null): void {
    if (!this.#remove(entry)) return;
    entry.listener({
      id: entry.request.id,
      tokenIds: [],
      logprobs: null,
      promptLogprobs: null,
      numCachedTokens: 0,
      finish: { ...this.#finish(entry, reason, null), message },
    });
  }

  #remove(entry: Running): boolean {
    const at = this.#running.indexOf(entry);
    if (at >= 0) this.#running.splice(at, 1);
    return at >= 0;
  }

  #finish(entry: Running, reason: FinishReason, script: Script | null) {
    return {
      reason,
      stopTokenId: reason === 'stop' ? (script?.stopTokenId ?? null) : null,
      message: script?.message ?? null,
      timing: {
        arrivalTime: entry.request.arrivalTime,
        firstScheduledTime: entry.startedAt,
        firstTokenTime: entry.firstTokenAt,
        finishTime: performance.now() / 1000,
        numPreemptions: 0,
      },
    };
  }
}

/** The token itself is the likeliest, its neighbours follow. */
function scored(tokenId: number, numTop: number): TokenLogprob {
  const top = Array.from({ length: Math.max(0, numTop) }, (_, index) => ({
    tokenId: tokenId + index,
    logprob: -0.5 - index,
    rank: index + 1,
  }));
  return { tokenId, logprob: -0.5, rank: 1, top };
}

const INFO: EngineInfo = {
  maxModelLen: 1024,
  vocabSize: 300,
  device: 'fake',
  isa: 'none',
  numThreads: 1,
  computeDtype: 'f32',
  kvCacheDtype: 'f32',
  weightBytes: 0,
  blockSize: 16,
  numBlocks: 64,
  kvPoolBytes: 0,
  kvBytesPerToken: 0,
  kvCacheTokens: 1024,
  maxConcurrency: 1,
  maxNumSeqs: 64,
  maxNumBatchedTokens: 512,
  numSpeculativeTokens: 0,
};
