// A run as a trace for chrome://tracing or ui.perfetto.dev (Trace Event Format): each replica is a process, its steps are slices with
// what they computed, requests are spans from arrival to the last token with their phases, and counters show queue and KV cache.
// Written piece by piece: a long run's timeline does not fit into memory.

import type { EndedRequest, SimulatedStep, SimulationObserver } from './simulation-observer.ts';

/** Prompt chunks named one by one in a step; more are only counted. */
const MOST_NAMED_CHUNKS = 32;
const STEP_THREAD = 0;

export class Timeline implements SimulationObserver {
  readonly #write: (text: string) => void;
  #numEvents = 0;

  /** `write` gets pieces of one JSON document, in order; `end` completes it. */
  constructor(write: (text: string) => void, options: { numReplicas: number; title: string }) {
    this.#write = write;
    write('{"displayTimeUnit":"ms","traceEvents":[\n');
    for (let replica = 0; replica < options.numReplicas; replica++) {
      const name = options.numReplicas === 1 ? options.title : `${options.title}, replica ${replica}`;
      this.#event({ ph: 'M', pid: replica, tid: STEP_THREAD, name: 'process_name', args: { name } });
      this.#event({ ph: 'M', pid: replica, tid: STEP_THREAD, name: 'thread_name', args: { name: 'steps' } });
    }
  }

  onStep({ replica, startSeconds, stepSeconds, plan, load, stats, numWaiting }: SimulatedStep): void {
    const chunks: Array<{ request: string; tokens: number; from: number }> = [];
    for (const { sequence, numTokens, numComputed } of plan.scheduled) {
      const isDecode = numTokens === 1 && numComputed >= sequence.numPromptTokens;
      if (isDecode || chunks.length === MOST_NAMED_CHUNKS) continue;
      chunks.push({ request: sequence.id, tokens: numTokens, from: numComputed });
    }
    const kind = load.numDecodes === 0 ? 'prefill' : load.numPrefillTokens === 0 ? 'decode' : 'mixed';
    this.#event({
      ph: 'X',
      pid: replica,
      tid: STEP_THREAD,
      name: kind,
      cat: 'step',
      ts: micros(startSeconds),
      dur: micros(stepSeconds),
      args: {
        step: plan.stepId,
        tokens: load.numTokens,
        prefill_tokens: load.numPrefillTokens,
        decode_tokens: load.numDecodes,
        sequences: load.numSequences,
        decode_context_tokens: load.decodeContextTokens,
        chunks,
      },
    });
    this.#counter(replica, startSeconds, 'requests', { running: stats.numRunning, waiting: numWaiting });
    this.#counter(replica, startSeconds, 'KV cache, %', { used: (100 * stats.numBlocksUsed) / stats.numBlocks });
    for (const preemption of plan.preempted) {
      this.#event({
        ph: 'i',
        s: 'p',
        pid: replica,
        tid: STEP_THREAD,
        name: `preempted ${preemption.sequence.id}`,
        cat: 'preemption',
        ts: micros(startSeconds),
        args: {
          needed_by: preemption.neededBy.id,
          tokens_to_recompute: preemption.numTokensToRecompute,
          blocks_freed: preemption.numBlocksFreed,
        },
      });
    }
  }

  onRequestEnd(request: EndedRequest): void {
    const { number, replica, arrivalSeconds, firstScheduledSeconds, firstTokenSeconds, endSeconds } = request;
    this.#span(replica, number, `request ${number}`, [arrivalSeconds, endSeconds], {
      prompt_tokens: request.numPromptTokens,
      output_tokens: request.numOutputTokens,
      cached_tokens: request.numCachedTokens,
      preemptions: request.numPreemptions,
      ttft_seconds: firstTokenSeconds - arrivalSeconds,
    });
    this.#span(replica, number, 'queue', [arrivalSeconds, firstScheduledSeconds], {});
    this.#span(replica, number, 'prefill', [firstScheduledSeconds, firstTokenSeconds], {});
    this.#span(replica, number, 'decode', [firstTokenSeconds, endSeconds], {});
  }

  end(): void {
    this.#write('\n]}\n');
  }

  #span(replica: number, id: number, name: string, times: readonly [number, number], args: object): void {
    const common = { pid: replica, tid: STEP_THREAD, id: String(id), cat: 'request', name };
    this.#event({ ...common, ph: 'b', ts: micros(times[0]), args });
    this.#event({ ...common, ph: 'e', ts: micros(times[1]) });
  }

  #counter(replica: number, seconds: number, name: string, args: Readonly<Record<string, number>>): void {
    this.#event({ ph: 'C', pid: replica, name, ts: micros(seconds), args });
  }

  #event(event: object): void {
    this.#write(`${this.#numEvents++ === 0 ? '' : ',\n'}${JSON.stringify(event)}`);
  }
}

/** The format counts in microseconds; a thousandth of one is kept. */
function micros(seconds: number): number {
  return Math.round(seconds * 1e9) / 1e3;
}
