// From options to an engine that is ready to run: opens the model, chooses and fills the device, sizes the KV cache, says on the
// log what it found. Throws PagodaError with the numbers when something cannot fit.

import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import type { Checkpoint } from '../checkpoint/checkpoint.ts';
import { openModel } from '../checkpoint/resolve-model.ts';
import { now } from '../clock.ts';
import { Scheduler } from '../core/scheduler.ts';
import { cpuAutoKvDtype, createCpuDevice, isCpuDeviceAvailable } from '../device/cpu/cpu-device.ts';
import type { PackedCacheOptions } from '../device/cpu/packed-cache.ts';
import type { Device, DeviceLimits } from '../device/device.ts';
import { type KvDtype, kvLayout } from '../device/kv-layout.ts';
import { createReferenceDevice } from '../device/reference/reference-device.ts';
import { PagodaError } from '../errors.ts';
import { type LoadedModel, loadModel } from '../model/load-model.ts';
import type { Program } from '../model/program.ts';
import { availableMemory } from './available-memory.ts';
import { BatchBuilder } from './batch-builder.ts';
import { cacheFolder } from './cache-folder.ts';
import { Engine, type EngineOutputs } from './engine.ts';
import type { EngineInfo } from './engine-client.ts';
import type { EngineOptions } from './engine-options.ts';
import { gib, type MemoryPlan, type MemoryRequest, planMemory } from './memory.ts';
import { speculationOptions } from './speculative-config.ts';

export interface CreatedEngine {
  readonly engine: Engine;
  readonly info: EngineInfo;
}

export interface CreateEngineExtras {
  readonly outputs: EngineOutputs;
  /** Bytes of weights packed so far and in all. */
  readonly onLoadProgress?: (done: number, total: number) => void;
  /** An open checkpoint to use instead of opening `options.model`; it stays the caller's. */
  readonly checkpoint?: Checkpoint;
}

const DEFAULT_STEP_TOKENS = 2048;
/** The reference device is for small models; it keeps the cache as float32 in one typed array. */
const REFERENCE_POOL_BYTES = 512 * 2 ** 20;
/** Packed weights may be a little larger than the file's; only used before they are loaded. */
const PACKING_MARGIN = 1.1;

export async function createEngine(options: EngineOptions, extras: CreateEngineExtras): Promise<CreatedEngine> {
  const { outputs } = extras;
  checkSpeculation(options);
  const startTime = now();
  const availableBytes = availableMemory();
  const kind = chooseDevice(options, outputs);
  const checkpoint = extras.checkpoint ?? openModel(options.model);
  try {
    for (const warning of checkpoint.warnings) outputs.onLog('warn', warning);
    const longModel = loadModel(checkpoint);
    for (const warning of longModel.warnings) outputs.onLog('warn', warning);
    const sizing = memoryRequest(options, longModel, { kind, availableBytes });
    // Before the weights are read, so that what cannot fit is refused at once.
    const estimate = planMemory({ ...sizing, weightBytes: estimateWeightBytes(kind, checkpoint, longModel) });
    const { maxModelLen } = estimate;
    const model = loadModel(checkpoint, { maxModelLen });
    const limits = { maxTokens: stepTokens(options, maxModelLen), maxSeqs: options.maxNumSeqs, maxModelLen };
    checkStepTokens(options, limits.maxTokens, maxModelLen);
    const device = await createDevice(options, { kind, model, checkpoint, limits }, extras);
    try {
      const plan = planMemory({ ...sizing, maxModelLen, weightBytes: device.info.weightBytes });
      device.allocateKvCache(plan.numBlocks);
      const engine = assemble(options, { device, plan, limits, outputs });
      const info = engineInfo(options, { device, plan, limits, vocabSize: model.program.vocabSize });
      announce(info, outputs, now() - startTime);
      return { engine, info };
    } catch (error) {
      await device.dispose();
      throw error;
    }
  } finally {
    if (extras.checkpoint === undefined) checkpoint.close();
  }
}

/** Before anything is loaded. */
function checkSpeculation({ speculativeConfig, useKvCache }: EngineOptions): void {
  if (speculativeConfig === null || useKvCache) return;
  throw new PagodaError(
    'bad_config',
    '--speculative-config needs the KV cache: without it every token is computed again in every step anyway.',
    { param: '--speculative-config' },
  );
}

type DeviceKind = 'cpu' | 'reference';

function chooseDevice(options: EngineOptions, outputs: EngineOutputs): DeviceKind {
  if (options.device === 'reference') return 'reference';
  const { available, reason } = isCpuDeviceAvailable();
  if (available) return 'cpu';
  if (options.device === 'cpu') {
    throw new PagodaError(
      'bad_config',
      `--device cpu: the native kernels are not there (${reason}). Install a C++17 compiler and run \`npm run build\`.`,
      { param: '--device' },
    );
  }
  outputs.onLog(
    'warn',
    `The native kernels are not there (${reason}), so the slow reference device is used. Install a C++17 compiler ` +
      '(Debian/Ubuntu: apt-get install g++) and run `npm run build` for the fast one.',
  );
  return 'reference';
}

/** Tokens per step: as asked, else enough for every sequence, and for a whole prompt where prompts are not cut. */
function stepTokens(options: EngineOptions, maxModelLen: number): number {
  const wholePrompt = options.enableChunkedPrefill ? 0 : maxModelLen;
  return options.maxNumBatchedTokens ?? Math.max(DEFAULT_STEP_TOKENS, options.maxNumSeqs, wholePrompt);
}

function checkStepTokens(options: EngineOptions, maxTokens: number, maxModelLen: number): void {
  if (options.enableChunkedPrefill || maxTokens >= maxModelLen) return;
  throw new PagodaError(
    'bad_config',
    `max_num_batched_tokens (${maxTokens}) is smaller than max_model_len (${maxModelLen}). This effectively limits the maximum sequence length ` +
      'to max_num_batched_tokens. Please increase --max-num-batched-tokens, decrease --max-model-len, or enable chunked prefill.',
    { param: '--max-num-batched-tokens' },
  );
}

function memoryRequest(
  options: EngineOptions,
  model: LoadedModel,
  { kind, availableBytes }: { kind: DeviceKind; availableBytes: number },
): Omit<MemoryRequest, 'weightBytes'> {
  const maxTokens = stepTokens(options, model.config.contextLength);
  const chunk = options.enableChunkedPrefill ? (options.chunkedPrefillSize ?? maxTokens) : maxTokens;
  return {
    kv: kvLayout(model.program, kvDtype(options, kind), options.blockSize),
    contextLength: model.config.contextLength,
    maxModelLen: options.maxModelLen,
    maxNumSeqs: options.maxNumSeqs,
    maxTokensPerStep: Math.min(chunk, maxTokens),
    availableBytes,
    activationBytes: activationBytes(model.program, maxTokens, options.maxNumSeqs),
    memoryUtilization: options.memoryUtilization,
    kvCacheMemoryBytes: options.kvCacheMemoryBytes,
    numGpuBlocksOverride: options.numGpuBlocksOverride,
    kvAllocation: options.useKvCache ? options.kvAllocation : 'static',
    maxPoolBytes: kind === 'reference' ? REFERENCE_POOL_BYTES : Number.POSITIVE_INFINITY,
  };
}

function kvDtype(options: EngineOptions, kind: DeviceKind): KvDtype {
  if (options.kvCacheDtype !== 'auto') return options.kvCacheDtype;
  return kind === 'cpu' ? cpuAutoKvDtype({ computeDtype: options.computeDtype }) : 'f16';
}

function estimateWeightBytes(kind: DeviceKind, checkpoint: Checkpoint, model: LoadedModel): number {
  if (kind === 'cpu') return checkpoint.weightBytes * PACKING_MARGIN;
  let numValues = 0;
  for (const spec of model.weights.values()) numValues += spec.rows * spec.cols;
  return numValues * 4;
}

/** Room for the activations of the widest stretch of the program, and for the logits; an estimate from above. */
function activationBytes(program: Program, maxTokens: number, maxSeqs: number): number {
  let widest = 0;
  for (const op of program.ops) {
    if ('out' in op && op.out.rows === 'T') widest = Math.max(widest, op.out.cols);
  }
  return 4 * (maxTokens * (4 * widest + 4 * program.hiddenSize) + 2 * maxSeqs * program.vocabSize);
}

function createDevice(
  options: EngineOptions,
  {
    kind,
    model,
    checkpoint,
    limits,
  }: { kind: DeviceKind; model: LoadedModel; checkpoint: Checkpoint; limits: DeviceLimits },
  { onLoadProgress, outputs }: CreateEngineExtras,
): Promise<Device> | Device {
  const kv = { dtype: kvDtype(options, kind), blockSize: options.blockSize };
  if (kind === 'reference') return createReferenceDevice(model, checkpoint, kv, limits);
  return createCpuDevice(model, checkpoint, kv, limits, {
    computeDtype: options.computeDtype,
    threadsBind: options.cpuThreadsBind,
    ...(options.packedCache ? { packedCache: packedCacheOptions(options, outputs) } : {}),
    ...(options.numThreads === null ? {} : { numThreads: options.numThreads }),
    ...(onLoadProgress === undefined ? {} : { onProgress: onLoadProgress }),
  });
}

function packedCacheOptions(options: EngineOptions, outputs: EngineOutputs): PackedCacheOptions {
  return {
    folder: join(cacheFolder(options.cacheDir), 'packed'),
    maxBytes: options.packedCacheSize,
    onLog: (level, message) => outputs.onLog(level, message),
  };
}

interface Parts {
  readonly device: Device;
  readonly plan: MemoryPlan;
  readonly limits: DeviceLimits;
}

function assemble(
  options: EngineOptions,
  { device, plan, limits, outputs }: Parts & { outputs: EngineOutputs },
): Engine {
  const { groups, blockSize } = device.kv;
  const scheduler = new Scheduler({
    maxNumSeqs: options.maxNumSeqs,
    maxNumBatchedTokens: limits.maxTokens,
    chunkedPrefillSize: options.chunkedPrefillSize,
    enableChunkedPrefill: options.enableChunkedPrefill,
    enablePrefixCaching: options.enablePrefixCaching,
    policy: options.schedulingPolicy,
    watermark: options.watermark,
    maxModelLen: plan.maxModelLen,
    kvAllocation: options.kvAllocation,
    useKvCache: options.useKvCache,
    blockSize,
    numBlocks: plan.numBlocks,
    groups: groups.map(({ window }) => ({ window })),
    maxNumQueuedReqs: options.maxNumQueuedReqs,
    cacheSecret: randomBytes(32),
    speculation: options.speculativeConfig === null ? null : speculationOptions(options.speculativeConfig),
  });
  const batches = new BatchBuilder({
    maxTokens: limits.maxTokens,
    maxSeqs: limits.maxSeqs,
    numGroups: groups.length,
    blockSize,
  });
  return new Engine({ scheduler, device, batches, outputs });
}

function engineInfo(
  options: EngineOptions,
  { device, plan, limits, vocabSize }: Parts & { vocabSize: number },
): EngineInfo {
  return {
    maxModelLen: plan.maxModelLen,
    vocabSize,
    device: device.info.name,
    isa: device.info.isa,
    numThreads: device.info.numThreads,
    computeDtype: device.info.computeDtype,
    kvCacheDtype: device.kv.dtype,
    weightBytes: device.info.weightBytes,
    blockSize: device.kv.blockSize,
    numBlocks: plan.numBlocks - 1,
    kvPoolBytes: plan.poolBytes,
    kvBytesPerToken: device.kv.bytesPerToken,
    kvCacheTokens: plan.kvCacheTokens,
    maxConcurrency: plan.maxConcurrency,
    maxNumSeqs: options.maxNumSeqs,
    maxNumBatchedTokens: limits.maxTokens,
    numSpeculativeTokens: options.speculativeConfig?.num_speculative_tokens ?? 0,
  };
}

function announce(info: EngineInfo, outputs: EngineOutputs, seconds: number): void {
  const count = (value: number) => value.toLocaleString('en-US');
  outputs.onLog(
    'info',
    `Model loading took ${gib(info.weightBytes)} GiB memory and ${seconds.toFixed(2)} seconds ` +
      `(device ${info.device}, ${info.isa}, ${info.numThreads} threads, ${info.computeDtype} arithmetic)`,
  );
  outputs.onLog(
    'info',
    `KV cache: ${gib(info.kvPoolBytes)} GiB in ${count(info.numBlocks)} blocks of ${info.blockSize} tokens (${info.kvCacheDtype}, ` +
      `${count(info.kvBytesPerToken)} bytes per token)`,
  );
  outputs.onLog(
    'info',
    `GPU KV cache size: ${count(info.kvCacheTokens)} tokens, Maximum concurrency for ${count(info.maxModelLen)} tokens per request: ` +
      `${info.maxConcurrency.toFixed(2)}x`,
  );
}
