// The configuration: resolved once from flags, variables, a file and defaults (in this order of precedence), checked, frozen,
// then cut into the slices that engine and server take. Values never come from anywhere else.

import type { Option } from './config/option.ts';
import { OPTIONS, type OptionKey, type ResolvedOptions } from './config/options.ts';
import { type Flags, fromEnvironment, fromFile, fromFlags, type GivenOption } from './config/sources.ts';
import type { EngineOptions } from './engine/engine-options.ts';
import { PagodaError } from './errors.ts';
import type { ServerLimits, ServerOptions } from './server/server-options.ts';

export interface ConfigSources {
  readonly flags: Flags;
  readonly env: NodeJS.ProcessEnv;
  /** YAML file; null = the one in PAGODA_CONFIG, if any. */
  readonly file: string | null;
}

export function resolveConfig(sources: ConfigSources): ResolvedOptions {
  const file = sources.file ?? (sources.env.PAGODA_CONFIG || null);
  const resolved = new Map<OptionKey, unknown>();
  // Weakest first: later ones overwrite. Every text is checked, also one that a stronger source overrules.
  for (const given of [
    ...(file === null ? [] : noRepeats(fromFile(file))),
    ...noRepeats(fromEnvironment(sources.env)),
    ...noRepeats(fromFlags(sources.flags)),
  ]) {
    resolved.set(given.key, parseGiven(given));
  }
  const values = Object.entries(OPTIONS).map(([key, option]) => [
    key,
    resolved.has(key as OptionKey) ? resolved.get(key as OptionKey) : option.default,
  ]);
  const config = Object.fromEntries(values) as ResolvedOptions;
  checkTogether(config);
  return Object.freeze(config);
}

function parseGiven(given: GivenOption): unknown {
  const option: Option<unknown> = OPTIONS[given.key];
  if (option.shape !== 'list' && given.texts.length !== 1) {
    throw new PagodaError('bad_config', `${given.origin} takes one value, got ${given.texts.length}.`, {
      param: given.origin,
    });
  }
  try {
    return option.parse(given.texts);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new PagodaError('bad_config', `${given.origin} ${reason}.`, { param: given.origin, cause: error });
  }
}

/** Two names of one option in one source would silently hide one of the values. */
function noRepeats(given: readonly GivenOption[]): readonly GivenOption[] {
  const seen = new Map<OptionKey, GivenOption>();
  for (const each of given) {
    const other = seen.get(each.key);
    if (other && other.texts.join('\n') !== each.texts.join('\n')) {
      throw new PagodaError('bad_config', `${other.origin} and ${each.origin} are the same option; give one of them.`, {
        param: each.origin,
      });
    }
    seen.set(each.key, each);
  }
  return given;
}

function checkTogether(config: ResolvedOptions): void {
  const { maxNumBatchedTokens, maxNumSeqs, chunkedPrefillSize } = config;
  if (maxNumBatchedTokens !== null && maxNumBatchedTokens < maxNumSeqs) {
    throw new PagodaError(
      'bad_config',
      `--max-num-batched-tokens (${maxNumBatchedTokens}) must be greater than or equal to --max-num-seqs (${maxNumSeqs}).`,
      { param: '--max-num-batched-tokens' },
    );
  }
  if (chunkedPrefillSize !== null && !config.enableChunkedPrefill) {
    throw new PagodaError(
      'bad_config',
      '--chunked-prefill-size needs chunked prefill: drop --no-enable-chunked-prefill.',
      {
        param: '--chunked-prefill-size',
      },
    );
  }
}

/** `org/name` with its --revision; a path stays as it is. */
function modelName(config: ResolvedOptions): string {
  if (config.revision === null) return config.model;
  if (!/^\w[\w.-]*\/[\w.-]+(:[\w.-]+)?$/.test(config.model)) {
    throw new PagodaError('bad_config', `--revision needs a model of the form org/name, got '${config.model}'.`, {
      param: '--revision',
    });
  }
  return `${config.model}@${config.revision}`;
}

export function engineOptions(config: ResolvedOptions): EngineOptions {
  return Object.freeze({
    model: modelName(config),
    device: config.device,
    numThreads: config.threads,
    cpuThreadsBind: config.cpuThreadsBind,
    computeDtype: config.dtype === 'float32' ? 'f32' : config.computeDtype,
    kvCacheDtype: config.kvCacheDtype,
    blockSize: config.blockSize,
    maxModelLen: config.maxModelLen,
    maxNumSeqs: config.maxNumSeqs,
    maxNumBatchedTokens: config.maxNumBatchedTokens,
    chunkedPrefillSize: config.chunkedPrefillSize,
    enableChunkedPrefill: config.enableChunkedPrefill,
    enablePrefixCaching: config.enablePrefixCaching,
    memoryUtilization: config.memoryUtilization,
    kvCacheMemoryBytes: config.kvCacheMemoryBytes,
    numGpuBlocksOverride: config.numGpuBlocksOverride,
    schedulingPolicy: config.schedulingPolicy,
    watermark: config.watermark,
    kvAllocation: config.kvAllocation,
    useKvCache: true,
    maxNumQueuedReqs: config.maxNumQueuedReqs,
    speculativeConfig: config.speculativeConfig,
    packedCache: config.packedCache,
    packedCacheSize: config.packedCacheSize,
    cacheDir: config.cacheDir,
  });
}

export function serverOptions(config: ResolvedOptions, limits: ServerLimits): ServerOptions {
  return Object.freeze({
    host: config.host,
    port: config.port,
    apiKeys: config.apiKey,
    servedModelNames: config.servedModelName.length > 0 ? config.servedModelName : [config.model],
    responseRole: config.responseRole,
    maxLogprobs: config.maxLogprobs,
    schedulingPolicy: config.schedulingPolicy,
    enableLogRequests: config.enableLogRequests,
    disableLogStats: config.disableLogStats,
    enablePromptTokensDetails: config.enablePromptTokensDetails,
    streamInterval: config.streamInterval,
    enableForceIncludeUsage: config.enableForceIncludeUsage,
    enableRequestIdHeaders: config.enableRequestIdHeaders,
    returnTokensAsTokenIds: config.returnTokensAsTokenIds,
    defaultChatTemplateKwargs: config.defaultChatTemplateKwargs,
    limits,
  });
}
