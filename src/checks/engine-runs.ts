// Runs token-id requests on an engine in this process and collects what comes back: what the check commands share.

import type { TokenLogprob } from '../core/request.ts';
import { DEFAULT_SAMPLING, type SamplingParams } from '../core/sampling-params.ts';
import { createEngine } from '../engine/create-engine.ts';
import type { Engine } from '../engine/engine.ts';
import type { EngineInfo } from '../engine/engine-client.ts';
import type { EngineOptions } from '../engine/engine-options.ts';
import type { StepRecord } from '../trace/step-record.ts';

export const CHECK_OPTIONS: EngineOptions = {
  model: 'pagoda-mini',
  device: 'auto',
  numThreads: null,
  cpuThreadsBind: 'auto',
  computeDtype: 'int8',
  kvCacheDtype: 'auto',
  blockSize: 16,
  maxModelLen: null,
  maxNumSeqs: 64,
  maxNumBatchedTokens: null,
  chunkedPrefillSize: null,
  enableChunkedPrefill: true,
  enablePrefixCaching: false,
  memoryUtilization: 0.5,
  kvCacheMemoryBytes: null,
  numGpuBlocksOverride: null,
  schedulingPolicy: 'fcfs',
  watermark: 0,
  kvAllocation: 'paged',
  useKvCache: true,
  maxNumQueuedReqs: 4096,
  speculativeConfig: null,
  // Checks leave nothing in the user's cache.
  packedCache: false,
  packedCacheSize: 1,
  cacheDir: null,
};

export interface CheckRequest {
  readonly promptTokenIds: readonly number[];
  readonly sampling: Partial<SamplingParams>;
}

export interface CheckOutput {
  readonly tokenIds: number[];
  readonly logprobs: TokenLogprob[];
  finishReason: string | null;
  /** Events that carried tokens: more than one when the output was streamed step by step. */
  numEvents: number;
}

export class EngineRun {
  readonly engine: Engine;
  readonly info: EngineInfo;
  readonly records: StepRecord[] = [];
  readonly #open = new Map<string, { output: CheckOutput; done: () => void }>();
  #numRequests = 0;

  private constructor(engine: Engine, info: EngineInfo) {
    this.engine = engine;
    this.info = info;
  }

  /** Starts an engine; `isa` forces one instruction set of the cpu device. */
  static async start(options: Partial<EngineOptions>, isa: string | null = null): Promise<EngineRun> {
    if (isa === null) delete process.env.PAGODA_CPU_ISA;
    else process.env.PAGODA_CPU_ISA = isa;
    let run: EngineRun | null = null;
    const { engine, info } = await createEngine(
      { ...CHECK_OPTIONS, ...options },
      {
        outputs: {
          onEvents: (events) => run?.take(events),
          onStep: (record) => run?.records.push(record),
          onLog: (level, message) => {
            if (level === 'error') process.stderr.write(`${message}\n`);
          },
          onDown: (reason) => process.stderr.write(`${reason}\n`),
        },
      },
    );
    run = new EngineRun(engine, info);
    engine.start();
    return run;
  }

  get numPreemptions(): number {
    return this.records.reduce((sum, record) => sum + record.preemptions.length, 0);
  }

  get numRecomputedTokens(): number {
    return this.records.reduce((sum, record) => sum + record.numRecomputedTokens, 0);
  }

  get numPrefixHitTokens(): number {
    return this.records.reduce((sum, record) => sum + record.numPrefixHitTokens, 0);
  }

  get numAcceptedTokens(): number {
    return this.records.reduce((sum, record) => sum + (record.speculation?.numAcceptedTokens ?? 0), 0);
  }

  get numDraftTokens(): number {
    return this.records.reduce((sum, record) => sum + (record.speculation?.numDraftTokens ?? 0), 0);
  }

  /** All requests at once. */
  async together(requests: readonly CheckRequest[]): Promise<CheckOutput[]> {
    return Promise.all(requests.map((request) => this.#submit(request)));
  }

  /** One after the other: nobody shares a step. */
  async alone(requests: readonly CheckRequest[]): Promise<CheckOutput[]> {
    const outputs: CheckOutput[] = [];
    for (const request of requests) outputs.push(await this.#submit(request));
    return outputs;
  }

  async close(): Promise<void> {
    await this.engine.close(0);
  }

  private take(events: Parameters<Parameters<typeof createEngine>[1]['outputs']['onEvents']>[0]): void {
    for (const event of events) {
      const open = this.#open.get(event.id);
      if (open === undefined) continue;
      open.output.tokenIds.push(...event.tokenIds);
      if (event.logprobs) open.output.logprobs.push(...event.logprobs);
      if (event.tokenIds.length > 0) open.output.numEvents++;
      if (event.finish === null) continue;
      open.output.finishReason = event.finish.reason;
      this.#open.delete(event.id);
      open.done();
    }
  }

  #submit(request: CheckRequest): Promise<CheckOutput> {
    const id = `check-${this.#numRequests++}`;
    const output: CheckOutput = { tokenIds: [], logprobs: [], finishReason: null, numEvents: 0 };
    return new Promise((resolve) => {
      this.#open.set(id, { output, done: () => resolve(output) });
      this.engine.submit([
        {
          id,
          promptTokenIds: request.promptTokenIds,
          sampling: { ...DEFAULT_SAMPLING, ...request.sampling },
          priority: 0,
          arrivalTime: 0,
          cacheSalt: null,
        },
      ]);
    });
  }
}
