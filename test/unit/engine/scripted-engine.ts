// An engine around the scripted device, and requests for it.

import type { GenerateRequest, TokenEvent } from '../../../src/core/request.ts';
import { DEFAULT_SAMPLING, type SamplingParams } from '../../../src/core/sampling-params.ts';
import { Scheduler } from '../../../src/core/scheduler.ts';
import type { SchedulerOptions } from '../../../src/core/scheduler-options.ts';
import { BatchBuilder } from '../../../src/engine/batch-builder.ts';
import { Engine, type EngineOutputs } from '../../../src/engine/engine.ts';
import type { EngineInfo } from '../../../src/engine/engine-client.ts';
import { nextToken, ScriptedDevice, type ScriptedOptions } from './scripted-device.ts';

export function scriptedEngine(
  outputs: EngineOutputs,
  options: Partial<SchedulerOptions> = {},
  script: Partial<ScriptedOptions> = {},
): { engine: Engine; device: ScriptedDevice; info: EngineInfo } {
  const scheduler = new Scheduler({
    maxNumSeqs: 8,
    maxNumBatchedTokens: 32,
    chunkedPrefillSize: null,
    enableChunkedPrefill: true,
    enablePrefixCaching: true,
    policy: 'fcfs',
    watermark: 0,
    maxModelLen: 128,
    kvAllocation: 'paged',
    useKvCache: true,
    blockSize: 4,
    numBlocks: 65,
    groups: [{ window: 0 }],
    maxNumQueuedReqs: 1000,
    cacheSecret: new Uint8Array(32),
    speculation: null,
    ...options,
  });
  const { blockSize, numBlocks, maxNumSeqs, maxNumBatchedTokens, maxModelLen } = scheduler.options;
  const device = new ScriptedDevice({ blockSize, maxSeqs: maxNumSeqs, ...script });
  device.allocateKvCache(numBlocks);
  const batches = new BatchBuilder({ maxTokens: maxNumBatchedTokens, maxSeqs: maxNumSeqs, numGroups: 1, blockSize });
  const info: EngineInfo = {
    maxModelLen,
    vocabSize: 1000,
    device: 'scripted',
    isa: 'none',
    numThreads: 1,
    computeDtype: 'f32',
    kvCacheDtype: 'f32',
    weightBytes: 0,
    blockSize,
    numBlocks: numBlocks - 1,
    kvPoolBytes: 0,
    kvBytesPerToken: 8,
    kvCacheTokens: 0,
    maxConcurrency: 1,
    maxNumSeqs,
    maxNumBatchedTokens,
    numSpeculativeTokens: scheduler.options.speculation?.numDraftTokens ?? 0,
  };
  return { engine: new Engine({ scheduler, device, batches, outputs }), device, info };
}

export function request(
  id: string,
  promptTokenIds: readonly number[],
  sampling: Partial<SamplingParams> = {},
): GenerateRequest {
  return {
    id,
    promptTokenIds,
    sampling: { ...DEFAULT_SAMPLING, maxTokens: 8, ...sampling },
    priority: 0,
    arrivalTime: 0,
    cacheSalt: null,
  };
}

/** The tokens that a request must get when nobody stops it. */
export function expectedTokens({ promptTokenIds, sampling }: GenerateRequest, vocabulary?: number): number[] {
  const tokens = [...promptTokenIds];
  for (let i = 0; i < sampling.maxTokens; i++) {
    tokens.push(nextToken(tokens, vocabulary));
    if (sampling.eosTokenIds.includes(tokens.at(-1)!)) break;
  }
  return tokens.slice(promptTokenIds.length);
}

/** Collects events and lets a test wait for ends. Fails on anything after an end. */
export class EventLog implements EngineOutputs {
  readonly events = new Map<string, TokenEvent[]>();
  readonly ends = new Map<string, TokenEvent>();
  readonly logs: string[] = [];
  readonly downs: string[] = [];
  numSteps = 0;
  #waiting: Array<{ ids: readonly string[]; resolve: () => void }> = [];

  onEvents = (events: readonly TokenEvent[]): void => {
    for (const event of events) {
      if (this.ends.has(event.id)) throw new Error(`An event of ${event.id} after its end.`);
      this.events.set(event.id, [...(this.events.get(event.id) ?? []), event]);
      if (event.finish !== null) this.ends.set(event.id, event);
    }
    this.#waiting = this.#waiting.filter(({ ids, resolve }) => {
      const isDone = ids.every((id) => this.ends.has(id));
      if (isDone) resolve();
      return !isDone;
    });
  };

  onStep = (): void => {
    this.numSteps++;
  };

  onLog = (_level: string, message: string): void => {
    this.logs.push(message);
  };

  onDown = (reason: string): void => {
    this.downs.push(reason);
  };

  ended(ids: readonly string[]): Promise<void> {
    if (ids.every((id) => this.ends.has(id))) return Promise.resolve();
    return new Promise((resolve) => this.#waiting.push({ ids, resolve }));
  }

  tokens(id: string): number[] {
    return (this.events.get(id) ?? []).flatMap((event) => event.tokenIds);
  }
}
