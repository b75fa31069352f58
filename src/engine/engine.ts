// The engine: commands in, TokenEvents out. Each turn of `step()` is the life of a request in small: take commands, let the
// scheduler decide, fill the batch, run it on the device, tell the scheduler what was sampled, tell the world. While step k
// runs on native threads, step k + 1 is planned and filled; it starts the moment k is done, before k's results are looked at.
// Only when the scheduler makes drafts does a step wait for the results of the one before: drafts continue known tokens.
// Every accepted request gets exactly one event with `finish`, also when the device fails.

import { now } from '../clock.ts';
import type { SequenceProgress } from '../core/progress.ts';
import type { GenerateRequest, TokenEvent } from '../core/request.ts';
import type { Scheduler } from '../core/scheduler.ts';
import type { Sequence } from '../core/sequence.ts';
import type { StepPlan } from '../core/step.ts';
import type { Device } from '../device/device.ts';
import type { StepResult } from '../device/forward-batch.ts';
import { PagodaError } from '../errors.ts';
import type { StepRecord } from '../trace/step-record.ts';
import type { BatchBuilder } from './batch-builder.ts';
import { PromptLogprobs } from './prompt-logprobs.ts';
import { type PlanFacts, planFacts, StepRecorder } from './step-recorder.ts';
import { tokenEvent } from './token-events.ts';

export interface EngineOutputs {
  /** All events of one step, or of a batch of aborts. */
  onEvents(events: readonly TokenEvent[]): void;
  onStep(record: StepRecord): void;
  onLog(level: 'info' | 'warn' | 'error', message: string): void;
  /** The engine can do nothing more; every open request has had its error event. */
  onDown(reason: string): void;
}

interface RunningStep {
  readonly plan: StepPlan;
  readonly facts: PlanFacts;
  readonly result: Promise<StepResult>;
  readonly startTime: number;
  readonly launchSeconds: number;
}

export class Engine {
  readonly scheduler: Scheduler;
  readonly device: Device;
  readonly #batches: BatchBuilder;
  readonly #outputs: EngineOutputs;
  readonly #recorder: StepRecorder;
  /** Which sequence the device holds in each slot. */
  readonly #resident: Array<Sequence | null>;
  /** Slots of sequences that have ended since the device was last told. */
  readonly #vacated: number[] = [];
  readonly #promptLogprobs = new Map<string, PromptLogprobs>();
  readonly #openIds = new Set<string>();
  #aborts: Array<{ ids: readonly string[]; reason: 'abort' | 'stop' }> = [];
  #running: RunningStep | null = null;
  #wake: (() => void) | null = null;
  #isClosing = false;
  #failure: string | null = null;
  #loop: Promise<void> | null = null;
  #isChecked = true;
  /** Of the last step whose events were given out. */
  #deliverySeconds = 0;
  /** When the last result was there: a step that was queued behind it began then. */
  #resultTime = 0;

  constructor(parts: { scheduler: Scheduler; device: Device; batches: BatchBuilder; outputs: EngineOutputs }) {
    this.scheduler = parts.scheduler;
    this.device = parts.device;
    this.#batches = parts.batches;
    this.#outputs = parts.outputs;
    this.#recorder = new StepRecorder(parts.scheduler);
    this.#resident = new Array<Sequence | null>(parts.scheduler.options.maxNumSeqs).fill(null);
  }

  get isAlive(): boolean {
    return this.#failure === null && !this.#isClosing;
  }

  get numOpen(): number {
    return this.#openIds.size;
  }

  /** Takes requests that belong together; they are looked at when the next step is planned. Throws what the scheduler refuses. */
  submit(requests: readonly GenerateRequest[]): void {
    if (!this.isAlive) {
      throw new PagodaError('engine_dead', this.#failure ?? 'The engine is shutting down.');
    }
    this.scheduler.addAll(requests);
    for (const request of requests) {
      this.#openIds.add(request.id);
      if (request.sampling.promptLogprobs !== null) {
        this.#promptLogprobs.set(request.id, new PromptLogprobs(request.promptTokenIds.length));
      }
    }
    this.#wakeUp();
  }

  /** Ends requests at the next step's border; unknown ids are ignored. */
  abort(ids: readonly string[], reason: 'abort' | 'stop'): void {
    this.#aborts.push({ ids, reason });
    this.#wakeUp();
  }

  start(): void {
    this.#loop ??= this.#run();
  }

  /** Lets open requests finish for up to `drainSeconds`, aborts the rest, frees the device. */
  async close(drainSeconds: number): Promise<void> {
    const deadline = now() + drainSeconds;
    this.#isClosing = true;
    while (this.#openIds.size > 0 && this.#failure === null && now() < deadline) await sleep(20);
    if (this.#openIds.size > 0) this.abort([...this.#openIds], 'abort');
    this.#wakeUp();
    await this.#loop;
    await this.device.dispose();
  }

  async #run(): Promise<void> {
    try {
      while (!(this.#isClosing && this.#openIds.size === 0 && this.#running === null)) {
        if (!(await this.step())) await this.#idle();
      }
      this.#tellDevice(null);
    } catch (error) {
      await this.#fail(error);
    }
  }

  /** One turn. Returns false when there is nothing to do until a command comes. */
  async step(): Promise<boolean> {
    this.#takeAborts();
    if (this.scheduler.plansInTurn) await this.#finishRunning();
    const startTime = now();
    const plan = this.scheduler.schedule(startTime);
    const fillTime = now();
    const batch = plan.scheduled.length > 0 ? this.#batches.fill(plan, this.#promptLogprobs) : null;
    const facts = planFacts(plan, { scheduleSeconds: fillTime - startTime, fillSeconds: now() - fillTime });

    // The device knows what it sampled, so the next step queues behind the running one and starts the moment that ends.
    const finished = this.#running;
    const launchTime = now();
    this.#tellDevice(plan);
    this.#running = batch === null ? null : this.#launch(plan, facts, this.device.step(batch), launchTime);
    if (finished !== null) this.#deliver(finished, await finished.result, now());
    if (batch !== null) return true;
    if (finished === null && this.scheduler.hasWork) {
      throw new PagodaError('internal', 'Requests wait, nothing runs, and nothing can be scheduled.');
    }
    return finished !== null;
  }

  /** For plans that depend on the last step's tokens: takes in the step that runs. */
  async #finishRunning(): Promise<void> {
    const finished = this.#running;
    if (finished === null) return;
    const result = await finished.result;
    this.#running = null;
    this.#deliver(finished, result, now());
  }

  #launch(plan: StepPlan, facts: PlanFacts, result: Promise<StepResult>, launchTime: number): RunningStep {
    // The loop awaits it one turn later; until then a failure must not count as unhandled.
    result.catch(() => undefined);
    return { plan, facts, result, startTime: launchTime, launchSeconds: now() - launchTime };
  }

  #takeAborts(): void {
    if (this.#aborts.length === 0) return;
    const aborts = this.#aborts;
    this.#aborts = [];
    const events: TokenEvent[] = [];
    for (const { ids, reason } of aborts) {
      for (const id of ids) {
        const progress = this.scheduler.abort(id, reason, now());
        if (progress !== null) events.push(this.#event(progress, null));
      }
    }
    if (events.length > 0) this.#outputs.onEvents(events);
  }

  /** Between two steps: slots change hands. Ended and preempted sequences leave before admitted ones move in. */
  #tellDevice(plan: StepPlan | null): void {
    for (const slot of this.#vacated) this.#vacate(slot);
    this.#vacated.length = 0;
    if (plan === null) return;
    for (const { slot } of plan.preempted) this.#vacate(slot);
    for (const sequence of plan.admitted) {
      this.device.addSequence({
        slot: sequence.slot,
        tokenIds: sequence.tokenIds.subarray(0, sequence.numTokens),
        numPromptTokens: sequence.numPromptTokens,
        sampling: sequence.request.sampling,
      });
      this.#resident[sequence.slot] = sequence;
    }
  }

  #vacate(slot: number): void {
    if (this.#resident[slot] === null) return;
    this.device.removeSequence(slot);
    this.#resident[slot] = null;
  }

  /** `resultTime`: when the result was there. */
  #deliver(finished: RunningStep, result: StepResult, resultTime: number): void {
    const time = now();
    for (const row of result.promptLogprobs) {
      const scheduled = finished.plan.scheduled[row.seq];
      if (scheduled) this.#promptLogprobs.get(scheduled.sequence.id)?.add(row);
    }
    const progresses = this.scheduler.update(finished.plan, result.sampledTokens, result.faults, time);
    const events: TokenEvent[] = new Array(progresses.length);
    let numGeneratedTokens = 0;
    for (let i = 0; i < progresses.length; i++) {
      const progress = progresses[i]!;
      numGeneratedTokens += progress.numNewTokens;
      events[i] = this.#event(progress, result);
    }
    this.#isChecked = false;
    const record = this.#recorder.record({
      facts: finished.facts,
      time,
      numGeneratedTokens,
      stepSeconds: resultTime - Math.max(finished.startTime, this.#resultTime),
      startsIdle: finished.startTime > this.#resultTime,
      launchSeconds: finished.launchSeconds,
      updateSeconds: now() - time,
      deliverySeconds: this.#deliverySeconds,
      device: result.timing,
    });
    this.#resultTime = resultTime;
    const deliveryTime = now();
    if (events.length > 0) this.#outputs.onEvents(events);
    this.#outputs.onStep(record);
    this.#deliverySeconds = now() - deliveryTime;
  }

  #event(progress: SequenceProgress, result: StepResult | null, message: string | null = null): TokenEvent {
    const { sequence, finishReason } = progress;
    const event = tokenEvent(progress, result, this.#promptLogprobs.get(sequence.id) ?? null, message);
    if (finishReason !== null) {
      this.#openIds.delete(sequence.id);
      this.#promptLogprobs.delete(sequence.id);
      // A preempted sequence has no slot any more, and its old one may be somebody else's.
      if (sequence.slot >= 0) this.#vacated.push(sequence.slot);
    }
    return event;
  }

  /** Nothing to do: check the books once, then wait for a command. */
  async #idle(): Promise<void> {
    this.#tellDevice(null);
    if (!this.#isChecked) {
      this.#isChecked = true;
      this.scheduler.checkIntegrity();
    }
    if (this.#aborts.length > 0 || this.scheduler.hasWork || this.#isClosing) return;
    await new Promise<void>((resolve) => {
      this.#wake = resolve;
    });
  }

  #wakeUp(): void {
    this.#wake?.();
    this.#wake = null;
  }

  /** The device threw, or the books are wrong: nothing that runs can be trusted, so everything ends, each with one event. */
  async #fail(error: unknown): Promise<void> {
    const detail = error instanceof Error ? error.message : String(error);
    this.#failure = `The engine failed: ${detail}`;
    await this.#running?.result.catch(() => undefined);
    this.#running = null;
    const events: TokenEvent[] = [];
    for (const id of [...this.#openIds]) {
      const progress = this.scheduler.abort(id, 'error', now());
      if (progress !== null) events.push(this.#event(progress, null, this.#failure));
    }
    this.#openIds.clear();
    if (events.length > 0) this.#outputs.onEvents(events);
    this.#outputs.onLog('error', error instanceof Error ? (error.stack ?? detail) : detail);
    this.#outputs.onDown(this.#failure);
  }
}

function sleep(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}
