// Runs one generating request and writes its answer, streamed or not. What the engine refuses is an ordinary HTTP error in both
// cases: stream headers go out only after it has accepted. A client that goes away ends its request, streamed or not.

import type { FastifyReply } from 'fastify';
import { PagodaError } from '../errors.ts';
import { toHttpReply } from './errors.ts';
import { Fold } from './fold.ts';
import { type Choice, type ChoiceDelta, Generation, type Usage, type UsageSource } from './generation.ts';
import type { ServerContext } from './server-context.ts';
import { errorFrames, SSE_DONE, SseStream } from './sse.ts';
import { StreamInterval } from './stream-interval.ts';

/** How a family of routes writes its chunks. Frames are complete SSE events. */
export interface StreamWriter {
  /** `source` knows the usage so far. */
  delta(delta: ChoiceDelta, source: UsageSource): string;
  /** Before [DONE]: the usage chunk, or nothing. */
  end(usage: Usage): string;
}

export interface Job {
  readonly choices: readonly Choice[];
  readonly numPromptTokens: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly writer: StreamWriter | null;
  /** Tokens per chunk of a stream. */
  readonly streamInterval: number;
  reply(fold: Fold, usage: Usage): unknown;
}

/** Registers the request as open before anything slow happens, and tells whether its client is still there. */
export class OpenRequest {
  readonly #reply: FastifyReply;
  #generation: Generation | null = null;
  /** Set while a non-streaming reply waits. */
  #reject: ((error: PagodaError) => void) | null = null;
  #isGone = false;
  #isShutDown = false;

  constructor(context: ServerContext, reply: FastifyReply) {
    this.#reply = reply;
    if (context.state.isDraining) {
      throw shuttingDown();
    }
    if (!context.engine.isAlive) {
      throw new PagodaError('engine_dead', 'The engine is not running at the moment; it is being started again.');
    }
    const shutDown = (): void => {
      this.#isShutDown = true;
      this.#generation?.fail(shuttingDown());
    };
    context.state.open.add(shutDown);
    reply.raw.once('close', () => {
      context.state.open.delete(shutDown);
      this.#isGone = true;
      if (this.#generation === null || this.#generation.isOver) return;
      this.#generation.abort();
      this.#reject?.(new PagodaError('aborted', 'The client went away.'));
    });
  }

  async run(context: ServerContext, job: Job): Promise<unknown> {
    if (this.#isGone || this.#isShutDown) {
      for (const choice of job.choices) context.state.liveIds.delete(choice.request.id);
      if (this.#isShutDown) throw shuttingDown();
      return this.#reply.hijack();
    }
    return job.writer === null ? this.#collect(context, job) : this.#stream(context, job, job.writer);
  }

  async #collect(context: ServerContext, job: Job): Promise<unknown> {
    const fold = new Fold();
    const usage = await new Promise<Usage>((resolve, reject) => {
      const generation = new Generation(context, {
        ...job,
        sink: {
          onDelta: (delta) => fold.add(delta),
          onEnd: () => resolve(generation.usage),
          onError: reject,
        },
      });
      this.#generation = generation;
      this.#reject = reject;
      generation.start();
    });
    this.#reply.headers(job.headers);
    return this.#reply.send(job.reply(fold, usage));
  }

  #stream(context: ServerContext, job: Job, writer: StreamWriter): FastifyReply {
    const raw = this.#reply.raw;
    const sse = new SseStream(raw, context.options.limits, () => generation.abort());
    const interval = new StreamInterval(job.streamInterval);
    const write = (delta: ChoiceDelta) => sse.write(writer.delta(delta, generation));
    const generation = new Generation(context, {
      ...job,
      sink: {
        onDelta: (delta) => {
          const due = interval.add(delta);
          if (due !== null) write(due);
        },
        onEnd: () => sse.end(writer.end(generation.usage) + SSE_DONE),
        onError: (error) => {
          const { body, isFault } = toHttpReply(error);
          if (isFault) context.logger.error('server', `A stream failed: ${error.message}`);
          interval.flush().forEach(write);
          sse.end(errorFrames(body));
        },
      },
    });
    this.#generation = generation;
    generation.start();
    this.#reply.hijack();
    sse.open(job.headers);
    return this.#reply;
  }
}

function shuttingDown(): PagodaError {
  return new PagodaError('engine_dead', 'The server is shutting down.');
}
