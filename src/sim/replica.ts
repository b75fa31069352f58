// One copy of the model: the real scheduler and a modelled device that takes as long as the cost model says. Steps run in turn:
// plan, let the time pass, take back the tokens. Who waits beyond what the scheduler can look at next stays outside as a few
// numbers, so that a long queue does not hold its prompts in memory.

import { DEFAULT_SAMPLING } from '../core/sampling-params.ts';
import type { Scheduler } from '../core/scheduler.ts';
import type { Sequence } from '../core/sequence.ts';
import type { StepPlan } from '../core/step.ts';
import { PagodaError } from '../errors.ts';
import type { Deployment } from './deployment.ts';
import type { PromptTokens } from './prompt-tokens.ts';
import type { LiveRequest } from './request-source.ts';
import type { RunRecorder } from './run-recorder.ts';
import { schedulerOf } from './scheduler-of.ts';
import type { EndedRequest, SimulatedStep, SimulationObserver } from './simulation-observer.ts';
import type { StepCost } from './step-cost.ts';
import { StepMeter } from './step-meter.ts';

/** Waiting requests that the scheduler gets to see under `fcfs`, where only the first ones matter. */
const VISIBLE_WAITING = 64;

export interface ReplicaOptions {
  readonly index: number;
  readonly deployment: Deployment;
  readonly tokens: PromptTokens;
  readonly recorder: RunRecorder;
  readonly observer: SimulationObserver | null;
  /** A request has ended, served or refused. */
  onEnd(request: LiveRequest, now: number): void;
}

/** A request inside the scheduler. */
interface Running {
  readonly live: LiveRequest;
  lastTokenSeconds: number;
}

export class Replica {
  readonly index: number;
  readonly scheduler: Scheduler;
  /** Accepted and not ended. */
  numUnfinished = 0;
  /** When the step in flight ends; Infinity while idle. */
  endSeconds = Number.POSITIVE_INFINITY;
  readonly #options: ReplicaOptions;
  readonly #cost: StepCost;
  readonly #tokens: PromptTokens;
  readonly #recorder: RunRecorder;
  readonly #meter = new StepMeter();
  readonly #sampled: Int32Array;
  readonly #isCached: boolean;
  readonly #numVisible: number;
  readonly #plansAhead: boolean;
  /** By id, from `add` to the end; by device slot, while running. */
  readonly #byId = new Map<string, Running>();
  readonly #bySlot: Array<Running | null>;
  /** First in, first out, from `#firstWaiting` on. */
  #backlog: LiveRequest[] = [];
  #firstWaiting = 0;
  /** Where the backlog ended when the step in flight (or the last one) began. */
  #planned = 0;
  #lastEndSeconds = Number.NEGATIVE_INFINITY;
  #plan: StepPlan | null = null;
  /** In the scheduler's own queue. */
  #numWaitingInside = 0;

  constructor(options: ReplicaOptions) {
    const { deployment } = options;
    this.index = options.index;
    this.#options = options;
    this.scheduler = schedulerOf(deployment);
    this.#cost = deployment.cost;
    this.#tokens = options.tokens;
    this.#recorder = options.recorder;
    const { maxNumSeqs } = this.scheduler.options;
    this.#sampled = new Int32Array(maxNumSeqs);
    this.#bySlot = new Array<Running | null>(maxNumSeqs).fill(null);
    this.#plansAhead = deployment.plansAhead ?? false;
    this.#isCached = deployment.flags.enablePrefixCaching;
    this.#numVisible = deployment.flags.schedulingPolicy === 'fcfs' ? VISIBLE_WAITING : Number.POSITIVE_INFINITY;
  }

  get isIdle(): boolean {
    return this.#plan === null;
  }

  get hasWork(): boolean {
    return this.numUnfinished > 0;
  }

  /** Takes a request that has reached the engine. */
  accept(live: LiveRequest): void {
    this.numUnfinished++;
    this.#backlog.push(live);
  }

  /** Plans a step at `now` and lets it run; does nothing when there is nothing to do. */
  startStep(now: number): void {
    // Planned while the step before ran: only with those who were there when that one began.
    const isAhead = this.#plansAhead && now === this.#lastEndSeconds;
    this.#fillScheduler(now, isAhead ? this.#planned : this.#backlog.length);
    if (isAhead && this.#byId.size === 0) this.#fillScheduler(now, this.#backlog.length);
    if (!this.hasWork) return;
    let plan = this.scheduler.schedule(now);
    this.#noteMoves(plan);
    // A plan can be nothing but preemptions; the next one then has room.
    for (let tries = 0; plan.scheduled.length === 0; tries++) {
      if (tries === 3) throw new PagodaError('internal', `Replica ${this.index} has requests and schedules nothing.`);
      plan = this.scheduler.schedule(now);
      this.#noteMoves(plan);
    }
    const meter = this.#meter;
    meter.measure(plan);
    const stepSeconds = this.#cost.stepSeconds(meter);
    if (!(stepSeconds > 0 && stepSeconds < 1e9))
      throw new PagodaError('internal', `The cost model says that a step takes ${stepSeconds} s.`);
    const stats = this.scheduler.stats();
    const step: SimulatedStep = {
      replica: this.index,
      startSeconds: now,
      stepSeconds,
      plan,
      load: meter,
      stats,
      numWaiting: this.numUnfinished - stats.numRunning,
    };
    this.#recorder.onStep(step);
    this.#options.observer?.onStep(step);
    this.#plan = plan;
    this.#planned = this.#backlog.length;
    this.endSeconds = now + stepSeconds;
  }

  /** The step in flight has ended: every sequence that sampled has its token. */
  finishStep(): void {
    const plan = this.#plan;
    if (plan === null) return;
    const now = this.endSeconds;
    this.#plan = null;
    this.#lastEndSeconds = now;
    this.endSeconds = Number.POSITIVE_INFINITY;
    if (this.#isCached) this.#writeTokens(plan);
    const progress = this.scheduler.update(plan, this.#sampled, null, now);
    const recorder = this.#recorder;
    // Sequences that decode together have the same gap: counted once.
    let gapSeconds = 0;
    let numEqualGaps = 0;
    for (let i = 0; i < progress.length; i++) {
      const { sequence, finishReason } = progress[i]!;
      const running = this.#bySlot[sequence.slot]!;
      if (sequence.numOutputTokens === 1) {
        recorder.onFirstToken(now - running.live.arrivalSeconds);
      } else {
        const gap = now - running.lastTokenSeconds;
        if (gap !== gapSeconds && numEqualGaps > 0) {
          recorder.onGaps(gapSeconds, numEqualGaps);
          numEqualGaps = 0;
        }
        gapSeconds = gap;
        numEqualGaps++;
      }
      running.lastTokenSeconds = now;
      if (finishReason !== null) this.#end(sequence, running.live, now);
    }
    if (numEqualGaps > 0) recorder.onGaps(gapSeconds, numEqualGaps);
  }

  #writeTokens(plan: StepPlan): void {
    const { scheduled } = plan;
    for (let i = 0; i < scheduled.length; i++) {
      const { sequence, samples } = scheduled[i]!;
      if (!samples) continue;
      const { request, number } = this.#bySlot[sequence.slot]!.live;
      this.#sampled[i] = this.#tokens.outputAt(request, number, sequence.numTokens);
    }
  }

  /** Gives the scheduler as many waiting requests as it can look at. What can never be served is refused here. */
  #fillScheduler(now: number, end: number): void {
    while (this.#firstWaiting < end && this.#numWaitingInside < this.#numVisible) {
      this.#add(this.#backlog[this.#firstWaiting++]!, now);
    }
    if (this.#firstWaiting < 1024 || 2 * this.#firstWaiting < this.#backlog.length) return;
    this.#backlog = this.#backlog.slice(this.#firstWaiting);
    this.#planned = Math.max(0, this.#planned - this.#firstWaiting);
    this.#firstWaiting = 0;
  }

  #add(live: LiveRequest, now: number): void {
    const { request, number } = live;
    const id = String(number);
    try {
      this.scheduler.add({
        id,
        promptTokenIds: this.#tokens.promptOf(request, number),
        sampling: { ...ALL_OF_IT, maxTokens: request.numOutputTokens },
        priority: request.priority,
        arrivalTime: live.arrivalSeconds,
        cacheSalt: null,
      });
    } catch (error) {
      if (!(error instanceof PagodaError) || error.code === 'internal') throw error;
      this.numUnfinished--;
      this.#recorder.onRefused(error.message);
      this.#options.onEnd(live, now);
      return;
    }
    this.#numWaitingInside++;
    this.#byId.set(id, { live, lastTokenSeconds: 0 });
  }

  /** Slots are handed out at admissions and come back by preemptions and ends. */
  #noteMoves(plan: StepPlan): void {
    if (plan.preempted.length === 0 && plan.admitted.length === 0) return;
    for (const { slot } of plan.preempted) this.#bySlot[slot] = null;
    for (const sequence of plan.admitted) this.#bySlot[sequence.slot] = this.#byId.get(sequence.id)!;
    this.#numWaitingInside += plan.preempted.length - plan.admitted.length;
  }

  #end(sequence: Sequence, live: LiveRequest, now: number): void {
    this.#byId.delete(sequence.id);
    this.numUnfinished--;
    const ended: EndedRequest = {
      number: live.number,
      replica: this.index,
      arrivalSeconds: live.arrivalSeconds,
      firstScheduledSeconds: sequence.firstScheduledTime ?? now,
      firstTokenSeconds: sequence.firstTokenTime ?? now,
      endSeconds: now,
      numPromptTokens: sequence.numPromptTokens,
      numOutputTokens: sequence.numOutputTokens,
      numCachedTokens: sequence.numCachedTokens,
      numPreemptions: sequence.numPreemptions,
    };
    this.#recorder.onRequestEnd(ended);
    this.#options.observer?.onRequestEnd(ended);
    this.#options.onEnd(live, now);
  }
}

const ALL_OF_IT = { ...DEFAULT_SAMPLING, ignoreEos: true, temperature: 0 };
