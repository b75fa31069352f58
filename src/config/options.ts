// Every option of Pagoda, once: name, variable, default, meaning and check. The key is its name in the resolved configuration.
// Names, defaults and notations are vLLM's where vLLM has the option; nothing stands here that does nothing.

import {
  BLOCK_SIZES,
  DEFAULT_ENGINE_OPTIONS as ENGINE,
  type EngineOptions,
  THREADS_BIND_CHECK,
} from '../engine/engine-options.ts';
import type { SpeculativeConfig } from '../engine/speculative-config.ts';
import { speculationOptions } from '../engine/speculative-config.ts';
import {
  choiceOption,
  countOption,
  jsonOption,
  listOption,
  maybeJsonOption,
  numberOption,
  switchOption,
  textOption,
} from './option.ts';

const NO_FP8 = 'CPUs have no fp8 arithmetic; int8 takes the same memory';
const WEIGHTS_AS_STORED =
  'weights stay in the format of the file; --compute-dtype and --kv-cache-dtype choose the rest';
const ONE_DEVICE = 'Pagoda runs on one device for now';

const share = { rule: 'a number above 0 and up to 1', accepts: (value: number) => value > 0 && value <= 1 };

export const OPTIONS = {
  // --- model
  model: textOption({
    name: 'model',
    group: 'model',
    default: ENGINE.model,
    help: 'pagoda-mini (embedded), a .gguf file, a Hugging Face folder, or org/name[:QUANT][@revision] in the local Hugging Face cache',
    placeholder: '<model>',
  }),
  revision: textOption<string | null>({
    name: 'revision',
    group: 'model',
    default: null,
    defaultText: 'main',
    help: 'branch, tag or commit of org/name in the Hugging Face cache',
  }),
  maxModelLen: countOption<number | 'auto' | null>(
    {
      name: 'max-model-len',
      group: 'model',
      default: null,
      defaultText: 'from the model',
      help: 'longest sequence, prompt and output; auto or -1 = the largest that fits the memory',
    },
    { words: { auto: 'auto', '-1': 'auto' } },
  ),
  dtype: choiceOption<'auto' | 'float32'>(
    {
      name: 'dtype',
      group: 'model',
      default: 'auto',
      help: 'auto = as --compute-dtype says; float32 is the same as --compute-dtype f32',
    },
    { auto: 'auto', float32: 'float32', float: 'float32' },
    { half: WEIGHTS_AS_STORED, float16: WEIGHTS_AS_STORED, bfloat16: WEIGHTS_AS_STORED },
  ),
  generationConfig: choiceOption<'auto' | 'vllm'>(
    {
      name: 'generation-config',
      group: 'model',
      default: 'auto',
      help: "default sampling parameters: auto = the model's generation_config.json, vllm = vLLM's own",
    },
    { auto: 'auto', vllm: 'vllm' },
  ),
  overrideGenerationConfig: jsonOption({
    name: 'override-generation-config',
    group: 'model',
    default: {},
    defaultText: 'nothing',
    help: 'JSON object with default sampling parameters that win over the generation config',
  }),
  chatTemplate: textOption<string | null>({
    name: 'chat-template',
    group: 'model',
    default: null,
    defaultText: 'from the model',
    help: 'a file with a Jinja chat template, or the template itself',
    placeholder: '<file>',
  }),
  // --- engine
  device: choiceOption<EngineOptions['device']>(
    {
      name: 'device',
      group: 'engine',
      default: ENGINE.device,
      help: 'cpu = native kernels, reference = plain TypeScript (slow), auto = cpu where it was built',
    },
    { auto: 'auto', cpu: 'cpu', reference: 'reference' },
    { cuda: 'there is no GPU device yet', gpu: 'there is no GPU device yet', webgpu: 'there is no GPU device yet' },
  ),
  threads: countOption<number | null>(
    {
      name: 'threads',
      group: 'engine',
      default: null,
      defaultText: 'all cores this process may use',
      help: 'threads of the device',
    },
    { max: 1024, words: { auto: null } },
  ),
  cpuThreadsBind: textOption<string>(
    {
      name: 'cpu-threads-bind',
      group: 'engine',
      default: ENGINE.cpuThreadsBind,
      env: ['VLLM_CPU_OMP_THREADS_BIND'],
      help: 'auto = bind threads to cores when they fill the machine, nobind, or CPUs like 0-3,8: thread i on the i-th',
      placeholder: '<auto|nobind|cpus>',
    },
    THREADS_BIND_CHECK,
  ),
  computeDtype: choiceOption<EngineOptions['computeDtype']>(
    {
      name: 'compute-dtype',
      group: 'engine',
      default: ENGINE.computeDtype,
      help: 'int8 = quantized weights meet int8 activations (fast), f32 = all arithmetic in float32 (exact)',
    },
    { int8: 'int8', f32: 'f32', float32: 'f32' },
  ),
  kvCacheDtype: choiceOption<EngineOptions['kvCacheDtype']>(
    {
      name: 'kv-cache-dtype',
      group: 'engine',
      default: ENGINE.kvCacheDtype,
      help: 'number format of the KV cache; auto = bf16 where the CPU is fast at multiplying pairs of it, else f16',
    },
    {
      auto: 'auto',
      f16: 'f16',
      float16: 'f16',
      bf16: 'bf16',
      bfloat16: 'bf16',
      f32: 'f32',
      float32: 'f32',
      int8: 'int8',
    },
    { fp8: NO_FP8, fp8_e4m3: NO_FP8, fp8_e5m2: NO_FP8, fp8_inc: NO_FP8 },
  ),
  blockSize: choiceOption<number>(
    { name: 'block-size', group: 'engine', default: ENGINE.blockSize, help: 'tokens per KV block' },
    Object.fromEntries(BLOCK_SIZES.map((size) => [size, size])),
  ),
  memoryUtilization: numberOption<number>(
    {
      name: ['gpu-memory-utilization', 'memory-utilization'],
      group: 'engine',
      default: ENGINE.memoryUtilization,
      help: 'share of the memory really available that weights and KV cache may take',
    },
    share,
  ),
  kvCacheMemoryBytes: countOption<number | null>({
    name: 'kv-cache-memory-bytes',
    group: 'engine',
    default: null,
    defaultText: 'from --memory-utilization',
    help: 'bytes of the KV cache (64M = 64 MiB, 64m = 64 MB)',
  }),
  numGpuBlocksOverride: countOption<number | null>(
    {
      name: 'num-gpu-blocks-override',
      group: 'engine',
      default: null,
      defaultText: 'from the memory',
      help: 'number of KV blocks, the null block included',
    },
    { min: 2 },
  ),
  packedCache: switchOption({
    name: 'packed-cache',
    group: 'engine',
    default: ENGINE.packedCache,
    help: 'keep packed weights (32 MiB and more) in the cache folder, so that the next start need not pack them',
  }),
  packedCacheSize: countOption<number>({
    name: 'packed-cache-size',
    group: 'engine',
    default: ENGINE.packedCacheSize,
    defaultText: '32G',
    help: 'most bytes of all packed weights in the folder; the least recently used go first',
  }),
  cacheDir: textOption<string | null>({
    name: 'cache-dir',
    group: 'engine',
    default: null,
    defaultText: '$XDG_CACHE_HOME/pagoda, else ~/.cache/pagoda',
    help: 'folder for what can be made again',
    placeholder: '<folder>',
  }),
  tensorParallelSize: choiceOption<number>(
    { name: 'tensor-parallel-size', group: 'engine', default: 1, help: 'devices per layer; only 1 for now' },
    { 1: 1 },
    Object.fromEntries([2, 4, 8, 16].map((size) => [size, ONE_DEVICE])),
  ),
  pipelineParallelSize: choiceOption<number>(
    { name: 'pipeline-parallel-size', group: 'engine', default: 1, help: 'devices in a row; only 1 for now' },
    { 1: 1 },
    Object.fromEntries([2, 4, 8, 16].map((size) => [size, ONE_DEVICE])),
  ),
  // --- scheduler
  maxNumSeqs: countOption<number>(
    { name: 'max-num-seqs', group: 'scheduler', default: ENGINE.maxNumSeqs, help: 'most sequences that run at once' },
    { max: 4096 },
  ),
  maxNumBatchedTokens: countOption<number | null>(
    {
      name: 'max-num-batched-tokens',
      group: 'scheduler',
      default: null,
      defaultText: '2048, or max-model-len without chunked prefill',
      help: 'most tokens in one step',
    },
    { max: 1_048_576 },
  ),
  chunkedPrefillSize: countOption<number | null>({
    name: 'chunked-prefill-size',
    group: 'scheduler',
    default: null,
    defaultText: 'the step budget',
    help: 'most prompt tokens in one step, over all sequences',
  }),
  enableChunkedPrefill: switchOption({
    name: 'enable-chunked-prefill',
    group: 'scheduler',
    default: ENGINE.enableChunkedPrefill,
    help: 'cut long prompts into chunks that share steps with running sequences',
  }),
  enablePrefixCaching: switchOption({
    name: 'enable-prefix-caching',
    group: 'scheduler',
    default: ENGINE.enablePrefixCaching,
    help: 'reuse the KV of prompts that begin alike',
  }),
  schedulingPolicy: choiceOption<EngineOptions['schedulingPolicy']>(
    {
      name: 'scheduling-policy',
      group: 'scheduler',
      default: ENGINE.schedulingPolicy,
      help: "order of waiting requests; priority = by the request's priority field",
    },
    { fcfs: 'fcfs', priority: 'priority' },
  ),
  watermark: numberOption<number>(
    {
      name: 'watermark',
      group: 'scheduler',
      default: ENGINE.watermark,
      help: 'share of the blocks kept free when a sequence is admitted beside running ones',
    },
    { rule: 'a number from 0 up to, but not including, 1', accepts: (value) => value >= 0 && value < 1 },
  ),
  kvAllocation: choiceOption<EngineOptions['kvAllocation']>(
    {
      name: 'kv-allocation',
      group: 'scheduler',
      default: ENGINE.kvAllocation,
      help: 'static reserves max-model-len for every sequence: only to see what paging saves',
    },
    { paged: 'paged', static: 'static' },
  ),
  maxNumQueuedReqs: countOption<number>({
    name: 'max-num-queued-reqs',
    group: 'scheduler',
    default: ENGINE.maxNumQueuedReqs,
    help: 'waiting sequences beyond this are refused with 503',
  }),
  speculativeConfig: maybeJsonOption<SpeculativeConfig>(
    {
      name: 'speculative-config',
      group: 'scheduler',
      default: null,
      defaultText: 'no speculation',
      help: 'the same output in fewer steps, with drafts from the text so far: {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4, "prompt_lookup_min": 2, "disable_by_batch_size": 4}',
    },
    (value) => {
      speculationOptions(value);
      return value as unknown as SpeculativeConfig;
    },
  ),
  // --- server
  host: textOption({
    name: 'host',
    group: 'server',
    default: '127.0.0.1',
    help: 'address or name to listen on; 0.0.0.0 or :: for every address',
    placeholder: '<host>',
  }),
  port: countOption<number>(
    { name: 'port', group: 'server', default: 8000, help: 'port to listen on; 0 = any free one' },
    { min: 0, max: 65535 },
  ),
  servedModelName: listOption({
    name: 'served-model-name',
    group: 'server',
    default: [],
    defaultText: 'the model',
    help: 'names of the model in the API; the first one is used in replies',
    placeholder: '<name...>',
  }),
  apiKey: listOption({
    name: 'api-key',
    group: 'server',
    default: [],
    defaultText: 'no authentication',
    env: ['VLLM_API_KEY'],
    help: 'keys of which clients must send one as Authorization: Bearer KEY',
    placeholder: '<key...>',
  }),
  responseRole: textOption({
    name: 'response-role',
    group: 'server',
    default: 'assistant',
    help: 'role of replies when a generation prompt is added',
  }),
  maxLogprobs: countOption<number>(
    {
      name: 'max-logprobs',
      group: 'server',
      default: 20,
      help: 'largest logprobs that a request may ask for; -1 = the vocabulary',
    },
    { min: 0, words: { '-1': -1 } },
  ),
  enableLogRequests: switchOption({
    name: 'enable-log-requests',
    group: 'server',
    default: false,
    help: 'log every request',
  }),
  disableLogStats: switchOption({
    name: 'disable-log-stats',
    group: 'server',
    default: false,
    help: 'no line with throughput and KV usage every ten seconds',
  }),
  enablePromptTokensDetails: switchOption({
    name: 'enable-prompt-tokens-details',
    group: 'server',
    default: false,
    help: 'usage tells the cached prompt tokens',
  }),
  streamInterval: countOption<number>(
    {
      name: 'stream-interval',
      group: 'server',
      default: 1,
      help: 'tokens per chunk of a stream after its first; more make fewer writes',
    },
    { min: 1 },
  ),
  enableForceIncludeUsage: switchOption({
    name: 'enable-force-include-usage',
    group: 'server',
    default: false,
    help: 'usage in every stream',
  }),
  enableRequestIdHeaders: switchOption({
    name: 'enable-request-id-headers',
    group: 'server',
    default: false,
    help: 'send X-Request-Id back',
  }),
  returnTokensAsTokenIds: switchOption({
    name: 'return-tokens-as-token-ids',
    group: 'server',
    default: false,
    help: 'tokens in logprobs are written token_id:123',
  }),
  defaultChatTemplateKwargs: jsonOption({
    name: 'default-chat-template-kwargs',
    group: 'server',
    default: {},
    defaultText: 'nothing',
    help: "JSON object with variables for the chat template; a request's own win",
  }),
};

export type OptionKey = keyof typeof OPTIONS;

/** The resolved value of every option. */
export type ResolvedOptions = { readonly [K in OptionKey]: (typeof OPTIONS)[K]['default'] };
