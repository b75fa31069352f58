// Flags that say what is deployed: model, GPUs, parallelism, memory, scheduler; vLLM's names where it has them. Only texts are read
// here; defaults, clamps and what fits are src/plan/resolve-deployment.ts's.

import { Command, Option as Flag } from 'commander';
import { HUMAN_NUMBER_RULE, parseHumanNumber } from '../config/human-number.ts';
import { PagodaError } from '../errors.ts';
import type { DeploymentRequest } from '../plan/resolve-deployment.ts';
import type { WeightDtype } from '../sim/catalogue/model-shape.ts';
import { ENGINE_PROFILES } from '../sim/cost/engine-profile.ts';
import { KV_DTYPES } from '../sim/cost/kv-memory.ts';

interface FlagSpec {
  readonly names: readonly [string, ...string[]];
  readonly key: keyof DeploymentRequest;
  readonly kind: 'count' | 'number' | 'switch' | 'text' | 'length' | readonly string[];
  readonly help: string;
}

const WEIGHT_DTYPES: readonly WeightDtype[] = ['f32', 'bf16', 'fp8', 'int8', 'int4', 'mxfp4'];

const SPECS: readonly FlagSpec[] = [
  { names: ['gpu'], key: 'gpu', kind: 'text', help: 'kind and number of GPUs: a100-80gb:4' },
  { names: ['tensor-parallel-size'], key: 'tensorParallelSize', kind: 'count', help: 'GPUs that share each layer' },
  { names: ['pipeline-parallel-size'], key: 'pipelineParallelSize', kind: 'count', help: 'GPUs in a row' },
  {
    names: ['data-parallel-size', 'replicas'],
    key: 'dataParallelSize',
    kind: 'count',
    help: 'copies of the model behind a router (default: as many as the GPUs hold)',
  },
  {
    names: ['gpu-memory-utilization', 'memory-utilization'],
    key: 'gpuMemoryUtilization',
    kind: 'number',
    help: 'share of each GPU that the engine may take (default: 0.9)',
  },
  { names: ['kv-cache-memory-bytes'], key: 'kvCacheMemoryBytes', kind: 'count', help: 'size of the KV cache per GPU' },
  { names: ['num-gpu-blocks-override'], key: 'numGpuBlocksOverride', kind: 'count', help: 'number of KV blocks' },
  {
    names: ['quantization'],
    key: 'weightDtype',
    kind: WEIGHT_DTYPES,
    help: 'number format of the weights (default: as the model is published)',
  },
  {
    names: ['kv-cache-dtype'],
    key: 'kvCacheDtype',
    kind: KV_DTYPES,
    help: 'number format of the KV cache (default: bf16)',
  },
  {
    names: ['max-model-len'],
    key: 'maxModelLen',
    kind: 'length',
    help: 'longest sequence; auto = the largest that fits',
  },
  {
    names: ['max-num-seqs'],
    key: 'maxNumSeqs',
    kind: 'count',
    help: 'most sequences that run at once (default: by GPU)',
  },
  {
    names: ['max-num-batched-tokens'],
    key: 'maxNumBatchedTokens',
    kind: 'count',
    help: 'most tokens in one step (default: by GPU)',
  },
  {
    names: ['chunked-prefill-size'],
    key: 'chunkedPrefillSize',
    kind: 'count',
    help: 'most prompt tokens in one step (default: the step)',
  },
  {
    names: ['enable-chunked-prefill'],
    key: 'enableChunkedPrefill',
    kind: 'switch',
    help: 'cut long prompts into chunks (default: on)',
  },
  {
    names: ['enable-prefix-caching'],
    key: 'enablePrefixCaching',
    kind: 'switch',
    help: 'reuse the KV of prompts that begin alike (default: on)',
  },
  { names: ['block-size'], key: 'blockSize', kind: 'count', help: 'tokens per KV block (default: 16)' },
  {
    names: ['watermark'],
    key: 'watermark',
    kind: 'number',
    help: 'share of the blocks kept free at admission (default: 0)',
  },
  {
    names: ['scheduling-policy'],
    key: 'schedulingPolicy',
    kind: ['fcfs', 'priority'],
    help: 'order of waiting requests (default: fcfs)',
  },
  {
    names: ['kv-allocation'],
    key: 'kvAllocation',
    kind: ['paged', 'static'],
    help: 'static reserves --max-model-len for every sequence (default: paged)',
  },
  { names: ['enforce-eager'], key: 'enforceEager', kind: 'switch', help: 'no CUDA graphs (default: off)' },
  {
    names: ['engine-profile'],
    key: 'engineProfile',
    kind: Object.keys(ENGINE_PROFILES),
    help: "what the engine adds to the device's time (default: vllm)",
  },
  {
    names: ['calibration'],
    key: 'calibration',
    kind: 'text',
    help: 'file of pagoda calibrate: the constants of an engine, or a measured device instead of --gpu',
  },
];

/** Adds [MODEL], --model and all of these. */
export function addDeploymentFlags(command: Command): void {
  command.argument('[MODEL]', 'name of a model (llama-7b), a config.json, a folder or a .gguf file');
  command.addOption(heading(new Flag('--model <model>', 'the same as MODEL')));
  for (const { names, kind, help } of SPECS) {
    for (const [index, name] of names.entries()) {
      const value = kind === 'switch' ? '' : typeof kind === 'string' ? VALUE_NAMES[kind] : ` <${kind.join('|')}>`;
      command.addOption(heading(new Flag(`--${name}${value}`, help).hideHelp(index > 0)));
      if (kind === 'switch') command.addOption(heading(new Flag(`--no-${name}`).hideHelp()));
    }
  }
}

/** What a command line says about the deployment; null where it says nothing. Throws PagodaError `bad_config`. */
export function deploymentRequestOf(command: Command, model: string | undefined): DeploymentRequest {
  const given = changesOf(command);
  const other = given.model;
  if (model !== undefined && other !== undefined && model !== other)
    throw new PagodaError('bad_config', `Two models: ${model} and --model ${other}; give one.`, { param: '--model' });
  const name = model ?? other;
  if (name === undefined)
    throw new PagodaError('bad_config', '--model is needed, like --model llama-7b, or a config.json.', {
      param: '--model',
    });
  return { ...given, model: name };
}

/** Flags in one text, `--max-num-seqs 64 --no-enable-prefix-caching`, over those of another deployment. */
export function changedDeployment(base: DeploymentRequest, text: string, option: string): DeploymentRequest {
  const command = new Command('flags').exitOverride().configureOutput({ writeErr: () => undefined });
  addDeploymentFlags(command);
  const words = text
    .trim()
    .split(/\s+/)
    .filter((word) => word !== '');
  try {
    command.parse(
      words.map((word) => (word.startsWith('--') ? word.replaceAll('_', '-') : word)),
      { from: 'user' },
    );
  } catch (cause) {
    const what = cause instanceof Error ? cause.message.replace(/^error: /, '').replaceAll('\n', ' ') : String(cause);
    throw new PagodaError('bad_config', `${option} '${text}': ${what}.`, { param: option, cause });
  }
  const [model] = command.args;
  return { ...base, ...changesOf(command), ...(model === undefined ? {} : { model }) };
}

function changesOf(command: Command): Partial<DeploymentRequest> {
  const request: Record<string, unknown> = {};
  const model: unknown = command.getOptionValue('model');
  if (typeof model === 'string') request.model = model;
  for (const spec of SPECS) {
    for (const name of spec.names) {
      const attribute = new Flag(`--${name}`).attributeName();
      if (command.getOptionValueSource(attribute) !== 'cli') continue;
      request[spec.key] = parsedValue(`--${name}`, command.getOptionValue(attribute), spec.kind);
    }
  }
  return request as Partial<DeploymentRequest>;
}

function parsedValue(option: string, value: unknown, kind: FlagSpec['kind']): unknown {
  if (kind === 'switch') return value === true;
  const text = String(value);
  const fail = (rule: string): never => {
    throw new PagodaError('bad_config', `${option} must be ${rule}, got '${text}'.`, { param: option });
  };
  if (typeof kind !== 'string') return kind.includes(text) ? text : fail(`one of ${kind.join(', ')}`);
  if (kind === 'text') return text;
  if (kind === 'number') return /^\d*\.?\d+$/.test(text) ? Number(text) : fail('a number like 0.9');
  if (kind === 'length' && (text === 'auto' || text === '-1')) return 'auto';
  return parseHumanNumber(text) ?? fail(HUMAN_NUMBER_RULE);
}

const VALUE_NAMES = { count: ' <n>', number: ' <x>', text: ' <text>', length: ' <n>' } as const;

function heading(flag: Flag): Flag {
  return flag.helpGroup('Deployment:');
}
