// Replays a workload on a deployment: discrete events (a request reaches the engine, a step ends), a clock that jumps from one to
// the next, the real scheduler in between. Decided by deployment, workload and options alone.

import { PagodaError } from '../errors.ts';
import type { Workload } from '../workload/workload.ts';
import { type WorkloadStatistics, WorkloadStatisticsCollector } from '../workload/workload-statistics.ts';
import type { Deployment } from './deployment.ts';
import { PromptTokens } from './prompt-tokens.ts';
import { Replica } from './replica.ts';
import { RequestSource } from './request-source.ts';
import { Router, type RoutingPolicy } from './router.ts';
import {
  type LatencyTargets,
  NO_TARGETS,
  RunRecorder,
  type SchedulerTotals,
  type StepComposition,
} from './run-recorder.ts';
import type { RunSummary, SchedulerSummary } from './run-summary.ts';
import type { SimulationObserver } from './simulation-observer.ts';
import type { SeriesPoint } from './time-series.ts';

export interface SimulationOptions {
  readonly routing: RoutingPolicy;
  readonly targets: LatencyTargets;
  readonly observer: SimulationObserver | null;
}

export const DEFAULT_SIMULATION_OPTIONS: SimulationOptions = {
  routing: 'least-loaded',
  targets: NO_TARGETS,
  observer: null,
};

/** Values at 101 equally spaced shares, for distribution charts. */
export interface LatencyCurves {
  readonly ttftSeconds: readonly number[];
  readonly tpotSeconds: readonly number[];
  readonly itlSeconds: readonly number[];
  readonly e2eSeconds: readonly number[];
}

export interface SimulationResult {
  readonly deployment: string;
  readonly workload: string;
  readonly seed: number;
  readonly summary: RunSummary;
  readonly scheduler: SchedulerSummary;
  readonly composition: StepComposition;
  /** What the workload really was: realised lengths, rate, burstiness. */
  readonly realised: WorkloadStatistics;
  readonly series: readonly SeriesPoint[];
  readonly curves: LatencyCurves;
  /** Why requests were refused, the first of them; null when none was. */
  readonly firstRefusal: string | null;
}

export class Simulation {
  readonly #deployment: Deployment;
  readonly #workload: Workload;
  readonly #source: RequestSource;
  readonly #recorder: RunRecorder;
  readonly #statistics = new WorkloadStatisticsCollector();
  readonly #replicas: readonly Replica[];
  readonly #router: Router;
  /** Now, and when the last request ended. */
  #now = 0;
  #lastEnd = 0;
  #isDone = false;

  /** Throws PagodaError `bad_config`. */
  constructor(deployment: Deployment, workload: Workload, given: Partial<SimulationOptions> = {}) {
    const options: SimulationOptions = { ...DEFAULT_SIMULATION_OPTIONS, ...given };
    const { flags, numReplicas, cost } = deployment;
    if (!(Number.isSafeInteger(numReplicas) && numReplicas >= 1))
      throw new PagodaError('bad_config', `The number of replicas must be at least 1, got ${numReplicas}.`);
    this.#deployment = deployment;
    this.#workload = workload;
    this.#source = new RequestSource(workload, cost.requestOverheadSeconds);
    this.#recorder = new RunRecorder({
      numReplicas,
      limits: { ...flags, maxNumSeqs: Math.min(flags.maxNumSeqs, flags.maxNumBatchedTokens) },
      overheadSeconds: cost.requestOverheadSeconds,
      targets: options.targets,
    });
    const tokens = new PromptTokens({
      hashBlockTokens: workload.hashBlockTokens,
      enablePrefixCaching: flags.enablePrefixCaching,
    });
    this.#replicas = Array.from(
      { length: numReplicas },
      (_, index) =>
        new Replica({
          index,
          deployment,
          tokens,
          recorder: this.#recorder,
          observer: options.observer,
          onEnd: (live, now) => {
            this.#lastEnd = Math.max(this.#lastEnd, now);
            this.#source.onEnd(live, now);
          },
        }),
    );
    const numCachedIds = Math.floor((deployment.numBlocks * flags.blockSize) / workload.hashBlockTokens);
    this.#router = new Router(options.routing, this.#replicas, numCachedIds);
  }

  /** Seconds on the virtual clock. */
  get nowSeconds(): number {
    return this.#now;
  }

  get numSteps(): number {
    return this.#recorder.steps.count;
  }

  get numEnded(): number {
    return this.#recorder.numCompleted + this.#recorder.numRefused;
  }

  /** Runs at least `numSteps` steps further if there are so many; true when everything has ended. */
  advance(numSteps = Number.POSITIVE_INFINITY): boolean {
    const source = this.#source;
    const replicas = this.#replicas;
    const target = this.numSteps + numSteps;
    while (!this.#isDone && this.#recorder.steps.count < target) {
      let time = source.nextSeconds;
      for (let i = 0; i < replicas.length; i++) time = Math.min(time, replicas[i]!.endSeconds);
      if (time === Number.POSITIVE_INFINITY) {
        this.#finish();
        break;
      }
      if (time > this.#now) this.#now = time;
      for (let i = 0; i < replicas.length; i++) if (replicas[i]!.endSeconds <= time) replicas[i]!.finishStep();
      while (source.nextSeconds <= time) this.#deliver();
      for (let i = 0; i < replicas.length; i++) {
        const replica = replicas[i]!;
        if (replica.isIdle && replica.hasWork) replica.startStep(this.#now);
      }
    }
    return this.#isDone;
  }

  result(): SimulationResult {
    const recorder = this.#recorder;
    const durationSeconds = this.#lastEnd;
    return {
      deployment: this.#deployment.name,
      workload: this.#workload.name,
      seed: this.#workload.seed,
      summary: recorder.summary(durationSeconds),
      scheduler: recorder.schedulerSummary(durationSeconds, this.#totals()),
      composition: recorder.composition(durationSeconds),
      realised: this.#statistics.statistics(),
      series: recorder.series(),
      curves: {
        ttftSeconds: recorder.ttft.knots(101),
        tpotSeconds: recorder.tpot.knots(101),
        itlSeconds: recorder.itl.knots(101),
        e2eSeconds: recorder.e2e.knots(101),
      },
      firstRefusal: recorder.firstRefusal,
    };
  }

  #deliver(): void {
    const live = this.#source.take();
    this.#statistics.add(live.request, live.arrivalSeconds);
    this.#replicas[this.#router.route(live.request)]!.accept(live);
  }

  /** Nothing is due any more: then nobody may be left either. */
  #finish(): void {
    for (const replica of this.#replicas) {
      if (replica.hasWork)
        throw new PagodaError('internal', `Replica ${replica.index} stopped with ${replica.numUnfinished} requests.`);
      replica.scheduler.checkIntegrity();
    }
    this.#isDone = true;
  }

  #totals(): SchedulerTotals {
    let numRecomputedTokens = 0;
    let numPrefixQueryTokens = 0;
    let numPrefixHitTokens = 0;
    for (const { scheduler } of this.#replicas) {
      const stats = scheduler.stats();
      numRecomputedTokens += stats.totalRecomputedTokens;
      numPrefixQueryTokens += stats.totalPrefixQueryTokens;
      numPrefixHitTokens += stats.totalPrefixHitTokens;
    }
    return { numRecomputedTokens, numPrefixQueryTokens, numPrefixHitTokens };
  }
}

/** A whole run at once: for searches, checks and tests. */
export function simulate(
  deployment: Deployment,
  workload: Workload,
  options: Partial<SimulationOptions> = {},
): SimulationResult {
  const simulation = new Simulation(deployment, workload, options);
  simulation.advance();
  return simulation.result();
}
