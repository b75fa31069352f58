// The engine in a child process: what `serve` uses. A crash of the child, a kill -9 included, is one error event per open
// request and a restart with growing pauses; requests are accepted again as soon as the new child is ready. The child ends
// when this process does.

import { type ChildProcess, fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { GenerateRequest, TokenEvent } from '../core/request.ts';
import { PagodaError } from '../errors.ts';
import type { StepRecord } from '../trace/step-record.ts';
import type { EngineClient, EngineInfo, EngineListeners, TokenListener } from './engine-client.ts';
import type { EngineMessage, ToEngine } from './engine-messages.ts';
import type { EngineOptions } from './engine-options.ts';
import { ListenerTable } from './listener-table.ts';
import { MESSAGE_PIPE, MessageReader } from './message-pipe.ts';
import { decodeStep, type StepFrame } from './step-frame.ts';

/** Little of what a step makes lives on: a young generation of V8's usual 16 MiB would be memory without use (docs/log.md). */
const ENGINE_FLAGS = ['--max-semi-space-size=2'];
const DEFAULT_DRAIN_SECONDS = 30;
const FIRST_PAUSE_SECONDS = 0.5;
const LONGEST_PAUSE_SECONDS = 30;
/** An engine that ran this long starts with the first pause again. */
const STABLE_SECONDS = 60;
/** After draining: what the child may take to free its memory before it is killed. */
const EXIT_SECONDS = 5;

export interface ProcessExtras {
  /** The compiled engine process; only tests that run from source need to say where it is. */
  readonly entry?: string;
  /** Gives up while the engine is still starting. */
  readonly signal?: AbortSignal;
}

/** Starts the child and waits until its engine is ready. Throws the PagodaError with which it failed to start. */
export async function createProcessClient(
  options: EngineOptions,
  listeners: EngineListeners = {},
  extras: ProcessExtras = {},
): Promise<ProcessClient> {
  const entry = extras.entry ?? fileURLToPath(new URL('./engine-process.js', import.meta.url));
  const client = new ProcessClient(options, listeners, entry);
  if (extras.signal?.aborted) throw new PagodaError('aborted', 'The start was given up.');
  const giveUp = () => void client.close({ drainSeconds: 0 });
  extras.signal?.addEventListener('abort', giveUp, { once: true });
  try {
    await client.start();
  } finally {
    extras.signal?.removeEventListener('abort', giveUp);
  }
  return client;
}

export class ProcessClient implements EngineClient {
  readonly #options: EngineOptions;
  readonly #listeners: EngineListeners;
  readonly #entry: string;
  readonly #table: ListenerTable;
  #child: ChildProcess | null = null;
  #info: EngineInfo | null = null;
  #isReady = false;
  #readyTime = 0;
  #pauseSeconds = FIRST_PAUSE_SECONDS;
  #restartTimer: NodeJS.Timeout | null = null;
  #downReason = 'The engine is not running.';
  /** As of the last step, plus what has been submitted since. */
  #numWaiting = 0;
  #closing: Promise<void> | null = null;

  constructor(options: EngineOptions, listeners: EngineListeners, entry: string) {
    this.#options = options;
    this.#listeners = listeners;
    this.#entry = entry;
    this.#table = new ListenerTable((error) => listeners.onLog?.('error', `A listener failed: ${String(error)}`));
  }

  /** Of the running engine, or of the last one that ran. */
  get info(): EngineInfo {
    if (this.#info === null) throw new PagodaError('engine_dead', this.#downReason);
    return this.#info;
  }

  get isAlive(): boolean {
    return this.#isReady && this.#closing === null;
  }

  /** The child's process id, for diagnosis. */
  get pid(): number | null {
    return this.#child?.pid ?? null;
  }

  start(): Promise<void> {
    return new Promise((resolve, reject) => this.#spawn(resolve, reject));
  }

  submit(requests: readonly GenerateRequest[], listener: TokenListener): void {
    if (this.#closing !== null) throw new PagodaError('engine_dead', 'The engine is shutting down.');
    if (!this.#isReady) throw new PagodaError('engine_dead', this.#downReason);
    this.#checkDoor(requests);
    const firstKey = this.#table.add(requests, listener);
    this.#numWaiting += requests.length;
    this.#send({ kind: 'submit', requests, firstKey });
  }

  abort(ids: readonly string[], reason: 'abort' | 'stop'): void {
    this.#send({ kind: 'abort', ids, reason });
  }

  close(options: { drainSeconds?: number } = {}): Promise<void> {
    this.#closing ??= this.#close(options.drainSeconds ?? DEFAULT_DRAIN_SECONDS);
    return this.#closing;
  }

  /**
   * Refusals must come from the call itself. The pool always holds one sequence of maxModelLen (the engine does not start
   * otherwise), so only the prompt's length and the queue are left to look at; the engine checks both again.
   */
  #checkDoor(requests: readonly GenerateRequest[]): void {
    const { maxModelLen } = this.info;
    for (const { promptTokenIds, sampling } of requests) {
      const numPromptTokens = promptTokenIds.length;
      if (numPromptTokens === 0) {
        throw new PagodaError('bad_request', 'The prompt is empty: it needs at least one token.', { param: 'prompt' });
      }
      if (numPromptTokens < maxModelLen) continue;
      throw new PagodaError(
        'context_length_exceeded',
        `This model's maximum context length is ${maxModelLen} tokens. However, you requested ${sampling.maxTokens} output tokens and ` +
          `your prompt contains ${numPromptTokens} input tokens, for a total of ${numPromptTokens + sampling.maxTokens} tokens. ` +
          'Please reduce the length of the input prompt or the number of requested output tokens.',
        { param: 'input_tokens' },
      );
    }
    const { maxNumQueuedReqs } = this.#options;
    if (this.#numWaiting + requests.length > maxNumQueuedReqs) {
      throw new PagodaError(
        'queue_full',
        `The queue is full: ${this.#numWaiting} of at most ${maxNumQueuedReqs} requests are waiting, and ${requests.length} more came. Please try again later.`,
      );
    }
  }

  #send(message: ToEngine): void {
    // A child that is gone has its exit event on the way, which ends what was sent to it.
    if (this.#child?.connected) this.#child.send(message, () => undefined);
  }

  #spawn(onReady: () => void, onFailed: (error: PagodaError) => void): void {
    const stdio = ['ignore', 'inherit', 'inherit', 'ipc', 'pipe'] as const;
    const execArgv = [...process.execArgv, ...ENGINE_FLAGS];
    const child = fork(this.#entry, [], { execArgv, serialization: 'advanced', stdio: [...stdio] });
    this.#child = child;
    let failure: PagodaError | null = null;
    const reader = new MessageReader((message) => {
      if (message instanceof Float64Array) this.#takeFrame(message);
      else if (message.kind === 'failed') {
        failure = new PagodaError(
          message.code,
          message.message,
          message.param === null ? {} : { param: message.param },
        );
      } else if (message.kind === 'ready') {
        this.#info = message.info;
        this.#isReady = true;
        this.#readyTime = performance.now();
        this.#numWaiting = 0;
        this.#listeners.onReady?.(message.info);
        onReady();
      } else if (message.kind === 'down') {
        this.#downReason = message.reason;
        failure = new PagodaError('engine_dead', message.reason);
      } else this.#take(message);
    });
    const pipe = child.stdio[MESSAGE_PIPE];
    pipe?.on('data', (chunk: Buffer) => reader.take(chunk));
    // Whatever happens to the pipe happens to the child, whose end is told below.
    pipe?.on('error', () => undefined);
    child.on('error', (error) => {
      // With a pid it runs, and its exit event says how it ends.
      if (child.pid !== undefined) return;
      const reason = `The engine process could not be started: ${error.message}`;
      this.#onExit(child, reason, () => onFailed(new PagodaError('engine_dead', reason)));
    });
    // After the last message has been read.
    child.on('close', (code, signal) => {
      const how = signal === null ? `with code ${code}` : `by signal ${signal}`;
      const reason = failure?.message ?? `The engine process ended ${how}.`;
      this.#onExit(child, reason, () => onFailed(failure ?? new PagodaError('engine_dead', reason)));
    });
    child.send({ kind: 'start', options: this.#options } satisfies ToEngine, () => undefined);
  }

  #takeFrame(frame: StepFrame): void {
    const { events, record } = decodeStep(frame, (key) => this.#table.idOf(key));
    this.#takeStep(events, record);
  }

  #takeStep(events: readonly TokenEvent[], record: StepRecord | null): void {
    if (record !== null) this.#numWaiting = record.numWaiting;
    this.#table.deliver(events);
    if (record !== null) this.#listeners.onStep?.(record);
  }

  #take(message: Exclude<EngineMessage, { kind: 'ready' | 'failed' | 'down' }>): void {
    switch (message.kind) {
      case 'step':
        this.#takeStep(message.events, message.record);
        return;
      case 'log':
        this.#listeners.onLog?.(message.level, message.message);
        return;
      case 'progress':
        this.#listeners.onLoadProgress?.(message.doneBytes, message.totalBytes);
        return;
      case 'refused':
        this.#table.fail(message.ids, message.message);
        return;
      case 'closed':
        return;
      default:
        message satisfies never;
    }
  }

  #onExit(child: ChildProcess, reason: string, onFailed: () => void): void {
    if (this.#child !== child) return;
    const wasReady = this.#isReady;
    this.#child = null;
    this.#isReady = false;
    if (this.#closing !== null) this.#table.failAll(reason);
    if (this.#closing !== null || !wasReady) {
      onFailed();
      return;
    }
    this.#downReason = `${reason} It is being restarted.`;
    if (performance.now() - this.#readyTime > STABLE_SECONDS * 1000) this.#pauseSeconds = FIRST_PAUSE_SECONDS;
    this.#table.failAll(reason);
    this.#listeners.onDown?.(reason, true);
    this.#restart();
  }

  #restart(): void {
    const pause = this.#pauseSeconds;
    this.#pauseSeconds = Math.min(LONGEST_PAUSE_SECONDS, 2 * pause);
    this.#restartTimer = setTimeout(() => {
      this.#restartTimer = null;
      this.#spawn(
        () => undefined,
        (error) => {
          // It ended because it was told to.
          if (this.#closing !== null) return;
          this.#listeners.onLog?.('error', `The engine could not be restarted: ${error.message}`);
          this.#restart();
        },
      );
    }, pause * 1000);
  }

  async #close(drainSeconds: number): Promise<void> {
    if (this.#restartTimer !== null) clearTimeout(this.#restartTimer);
    const child = this.#child;
    if (child === null) return;
    const exited = new Promise<void>((resolve) => child.once('close', () => resolve()));
    // Loading can take long and answers nothing; there is nothing to drain either.
    if (!this.#isReady) child.kill('SIGKILL');
    this.#send({ kind: 'close', drainSeconds });
    const killTimer = setTimeout(() => child.kill('SIGKILL'), (drainSeconds + EXIT_SECONDS) * 1000);
    await exited;
    clearTimeout(killTimer);
  }
}
