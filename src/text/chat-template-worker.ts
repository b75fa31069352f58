// The thread that chat templates run in, so that one can be killed. Holds one template; answers one message at a time.

import { parentPort, workerData } from 'node:worker_threads';
import { RaisedByTemplate, templateGlobals } from './template-globals.ts';
import { render } from './template-interpreter.ts';
import { TemplateFailure } from './template-limits.ts';
import { type AnyNode, parseTemplate } from './template-syntax.ts';
import { toValue } from './template-values.ts';

export interface WorkerSetup {
  readonly source: string;
  readonly maxOutputLength: number;
  /** Milliseconds since the epoch; null = the clock. */
  readonly fixedTime: number | null;
}

export interface RenderMessage {
  readonly variables: Readonly<Record<string, unknown>>;
}

/** `raised`: raise_exception's sentence; `failed`: anything else, in words that show nothing of the template. */
export type WorkerReply =
  | { readonly kind: 'ready' }
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'raised'; readonly message: string }
  | { readonly kind: 'failed'; readonly message: string };

const MAX_MESSAGE_LENGTH = 300;

function failure(error: unknown): WorkerReply {
  if (error instanceof RaisedByTemplate) return { kind: 'raised', message: error.message };
  if (error instanceof TemplateFailure) return { kind: 'failed', message: error.message.slice(0, MAX_MESSAGE_LENGTH) };
  if (error instanceof RangeError) return { kind: 'failed', message: 'it nests too deeply or builds too long a text' };
  return { kind: 'failed', message: 'it stopped with an internal error' };
}

function start(setup: WorkerSetup): void {
  const now = (): Date => (setup.fixedTime === null ? new Date() : new Date(setup.fixedTime));
  let body: readonly AnyNode[];
  try {
    body = parseTemplate(setup.source);
  } catch (error) {
    const message = error instanceof RangeError ? 'it nests too deeply' : 'its syntax is not understood';
    parentPort!.postMessage({ kind: 'failed', message } satisfies WorkerReply);
    return;
  }
  parentPort!.on('message', (message: RenderMessage) => {
    let reply: WorkerReply;
    try {
      const globals = templateGlobals(now);
      for (const [name, value] of Object.entries(message.variables)) globals.set(name, toValue(value));
      const text = render(body, globals);
      const isTooLong = text.length > setup.maxOutputLength;
      reply = isTooLong
        ? { kind: 'failed', message: `its output is longer than ${setup.maxOutputLength} characters` }
        : { kind: 'text', text };
    } catch (error) {
      reply = failure(error);
    }
    parentPort!.postMessage(reply);
  });
  parentPort!.postMessage({ kind: 'ready' } satisfies WorkerReply);
}

start(workerData as WorkerSetup);
