// A model's chat template, rendered in a worker thread with a deadline, a heap limit and an output limit. A template that
// overruns them is killed and costs its caller one error; the next render gets a fresh thread.

import { Worker } from 'node:worker_threads';
import { PagodaError } from '../errors.ts';
import type { WorkerReply, WorkerSetup } from './chat-template-worker.ts';
import { GLOBAL_NAMES } from './template-globals.ts';

export interface ChatTemplateOptions {
  readonly bosToken: string | null;
  readonly eosToken: string | null;
  /** Of one render. */
  readonly deadlineMs?: number;
  /** From the start of a thread until the template is parsed. */
  readonly loadDeadlineMs?: number;
  readonly maxOutputLength?: number;
  /** What strftime_now sees, as milliseconds since the epoch; the clock by default. */
  readonly fixedTime?: number;
}

export interface TemplateInput {
  readonly messages: readonly unknown[];
  readonly tools?: readonly unknown[] | null;
  readonly addGenerationPrompt: boolean;
  /** chat_template_kwargs; names that the template gets from elsewhere are left out. */
  readonly kwargs?: Readonly<Record<string, unknown>>;
}

/** Starting a thread is not the template's doing, so a busy machine gets time for it. */
const DEFAULTS = { deadlineMs: 5000, loadDeadlineMs: 60_000, maxOutputLength: 4 << 20 };
const HEAP_LIMITS = { maxOldGenerationSizeMb: 128, maxYoungGenerationSizeMb: 16, stackSizeMb: 4 };
const RESERVED = new Set([
  ...GLOBAL_NAMES,
  'messages',
  'tools',
  'documents',
  'add_generation_prompt',
  'bos_token',
  'eos_token',
  'chat_template',
  'tokenize',
]);

/** Sources under test have no worker of their own: theirs is the built one. */
const WORKER_URL = new URL(
  import.meta.url.endsWith('.ts') ? '../../dist/text/chat-template-worker.js' : './chat-template-worker.js',
  import.meta.url,
);

interface Job {
  readonly variables: Readonly<Record<string, unknown>>;
  readonly resolve: (text: string) => void;
  readonly reject: (error: PagodaError) => void;
}

export class ChatTemplate {
  readonly source: string;
  readonly bosToken: string | null;
  readonly eosToken: string | null;
  readonly #setup: WorkerSetup;
  readonly #deadlineMs: number;
  readonly #loadDeadlineMs: number;
  readonly #queue: Job[] = [];
  #worker: Worker | null = null;
  #isReady = false;
  #running: Job | null = null;
  #timer: NodeJS.Timeout | null = null;
  #isClosed = false;

  private constructor(source: string, options: ChatTemplateOptions) {
    this.source = source;
    this.bosToken = options.bosToken;
    this.eosToken = options.eosToken;
    this.#deadlineMs = options.deadlineMs ?? DEFAULTS.deadlineMs;
    this.#loadDeadlineMs = options.loadDeadlineMs ?? DEFAULTS.loadDeadlineMs;
    this.#setup = {
      source,
      maxOutputLength: options.maxOutputLength ?? DEFAULTS.maxOutputLength,
      fixedTime: options.fixedTime ?? null,
    };
  }

  /** Throws template_error when the source cannot be parsed. */
  static async create(source: string, options: ChatTemplateOptions): Promise<ChatTemplate> {
    const template = new ChatTemplate(source, options);
    await template.#load();
    return template;
  }

  /** Throws template_error: raise_exception's own sentence, or what stopped the template. */
  render(input: TemplateInput): Promise<string> {
    const kwargs = Object.entries(input.kwargs ?? {}).filter(([name]) => !RESERVED.has(name));
    const variables = {
      documents: input.kwargs?.documents ?? null,
      ...Object.fromEntries(kwargs),
      messages: input.messages,
      tools: input.tools && input.tools.length > 0 ? input.tools : null,
      add_generation_prompt: input.addGenerationPrompt,
      bos_token: this.bosToken ?? '',
      eos_token: this.eosToken ?? '',
    };
    return new Promise((resolve, reject) => {
      if (this.#isClosed) return reject(new PagodaError('aborted', 'The chat template was closed.'));
      this.#queue.push({ variables, resolve, reject });
      this.#pump();
    });
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    const error = new PagodaError('aborted', 'The chat template was closed.');
    this.#running?.reject(error);
    for (const job of this.#queue.splice(0)) job.reject(error);
    this.#running = null;
    const worker = this.#worker;
    this.#dropWorker();
    await worker?.terminate();
  }

  /** Resolves when a thread has parsed the template. */
  #load(): Promise<void> {
    return new Promise((resolve, reject) => {
      const fail = (error: PagodaError): void => {
        this.#isClosed = true;
        this.#discardWorker();
        reject(error);
      };
      this.#startWorker((reply) => {
        if (reply.kind === 'ready') return resolve();
        const what = reply.kind === 'failed' ? reply.message : 'it cannot be loaded';
        fail(new PagodaError('template_error', `The model's chat template cannot be used: ${what}.`));
      }, fail);
    });
  }

  #startWorker(onLoaded: (reply: WorkerReply) => void, onDead: (error: PagodaError) => void): void {
    const worker = new Worker(WORKER_URL, {
      workerData: this.#setup,
      resourceLimits: HEAP_LIMITS,
      env: {},
      execArgv: [],
    });
    // A server whose only open handle is a template thread may exit.
    worker.unref();
    this.#worker = worker;
    this.#isReady = false;
    this.#arm(this.#loadDeadlineMs, () => {
      onDead(new PagodaError('template_error', `The chat template did not load within ${this.#loadDeadlineMs} ms.`));
    });
    worker.on('message', (reply: WorkerReply) => {
      if (this.#worker !== worker) return;
      this.#disarm();
      if (!this.#isReady) {
        this.#isReady = reply.kind === 'ready';
        onLoaded(reply);
      } else this.#settle(reply);
    });
    worker.on('error', (error: NodeJS.ErrnoException) => {
      if (this.#worker !== worker) return;
      const isMemory = error.code === 'ERR_WORKER_OUT_OF_MEMORY';
      const what = isMemory ? 'it needs too much memory' : 'its thread ended';
      const failure = new PagodaError('template_error', `The chat template was stopped: ${what}.`);
      if (this.#isReady) this.#kill(failure);
      else onDead(failure);
    });
  }

  #pump(): void {
    if (this.#running || this.#queue.length === 0) return;
    if (!this.#worker) {
      const fail = (error: PagodaError): void => {
        this.#discardWorker();
        for (const job of this.#queue.splice(0)) job.reject(error);
      };
      this.#startWorker((reply) => {
        if (reply.kind === 'ready') this.#pump();
        else fail(new PagodaError('template_error', 'The chat template cannot be loaded again.'));
      }, fail);
      return;
    }
    if (!this.#isReady) return;
    const job = this.#queue.shift()!;
    this.#running = job;
    this.#arm(this.#deadlineMs, () => {
      const text = `The chat template was stopped: it took longer than ${this.#deadlineMs} ms.`;
      this.#kill(new PagodaError('template_error', text));
    });
    try {
      this.#worker.postMessage({ variables: job.variables });
    } catch (error) {
      // Only data that cannot be copied to the thread, such as functions, gets here.
      this.#disarm();
      this.#running = null;
      job.reject(
        new PagodaError('bad_request', 'The chat cannot be rendered: it holds values that are no data.', {
          cause: error,
        }),
      );
      this.#pump();
    }
  }

  #settle(reply: WorkerReply): void {
    const job = this.#running;
    this.#running = null;
    if (job) {
      if (reply.kind === 'text') job.resolve(reply.text);
      else if (reply.kind === 'raised') job.reject(new PagodaError('template_error', reply.message));
      else if (reply.kind === 'failed')
        job.reject(new PagodaError('template_error', `The chat template failed: ${reply.message}.`));
    }
    this.#pump();
  }

  /** Ends the thread and the render that runs on it; the next one starts another. */
  #kill(error: PagodaError): void {
    const job = this.#running;
    this.#running = null;
    this.#discardWorker();
    job?.reject(error);
    this.#pump();
  }

  #discardWorker(): void {
    const worker = this.#worker;
    this.#dropWorker();
    void worker?.terminate();
  }

  #dropWorker(): void {
    this.#disarm();
    this.#worker = null;
    this.#isReady = false;
  }

  #arm(ms: number, onTime: () => void): void {
    this.#disarm();
    this.#timer = setTimeout(onTime, ms);
  }

  #disarm(): void {
    if (this.#timer) clearTimeout(this.#timer);
    this.#timer = null;
  }
}
