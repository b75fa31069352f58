// Memory arithmetic against lines that vLLM printed and figures that papers give (points M1 to M8).

import { capacityRows } from '../plan/capacity.ts';
import { draftDeployment, fitProblem } from '../plan/resolve-deployment.ts';
import { findModel } from '../sim/catalogue/find-model.ts';
import { shapeFromConfig } from '../sim/catalogue/shape-from-config.ts';
import { type KvCacheDtype, kvBytesPerToken } from '../sim/cost/kv-memory.ts';
import type { ValidationContext, ValidationPart } from './validation-part.ts';

const GIB = 2 ** 30;

export const validatePlanner: ValidationPart = {
  name: 'planner',
  run(context) {
    const rows: string[][] = [];
    const check = checker(context, rows);
    bytesPerToken(check);
    llamaOnRtx3090(check);
    otherLogs(check);
    context.add({
      title: 'Memory planner (M1 to M8)',
      text: [
        'Sources: the PagedAttention paper (arXiv 2309.06180), vLLM issue 10517 and pull request 12569, talos pull request 1995,',
        'Tandemn issue 11, the JAX scaling book. Where a log prints GiB with two decimals, the blocks it prints must lie in the',
        'interval that the rounding leaves, and everything that follows from the blocks must be exact.',
      ].join('\n'),
      header: ['Point', 'What', 'Published', 'Computed'],
      rows,
    });
  },
};

type Check = (point: string, what: string, value: number | string, wanted: number | string) => void;

function checker({ gates }: ValidationContext, rows: string[][]): Check {
  const text = (value: number | string) => (typeof value === 'number' ? value.toLocaleString('en-US') : value);
  return (point, what, value, wanted) => {
    gates.equal(`${point} ${what}`, value, wanted);
    rows.push([point, what, text(wanted), text(value)]);
  };
}

const perToken = (model: string, kvDtype: KvCacheDtype = 'bf16') =>
  kvBytesPerToken(findModel(model).shape, { kvDtype, tensorParallelSize: 1 });

function bytesPerToken(check: Check): void {
  check('M1', 'OPT-13B, KV bytes per token', perToken('opt-13b'), 819_200);
  check('M1', 'OPT-13B, slots in 12 GiB', slots('opt-13b', 12), 15_728);
  check('M1', 'OPT-175B, thousand slots in 264 GiB', (slots('opt-175b', 264) / 1000).toFixed(2), '60.07');
  check('M1', 'OPT-66B, thousand slots in 21 GiB', (slots('opt-66b', 21) / 1000).toFixed(2), '9.56');
  check('M7', 'Llama-3-70B, 8-bit KV bytes per token', perToken('llama-3-70b', 'fp8'), 163_840);
  const gigabytes = (32 * 8192 * perToken('llama-3-70b', 'fp8')) / 1e9;
  check('M7', '32 x 8,192 tokens, GB', `${gigabytes.toFixed(1)}`, '42.9');
  check('M8', 'fp8 halves the bytes (Llama-3.1-8B)', perToken('llama-3.1-8b') / perToken('llama-3.1-8b', 'fp8'), 2);
  check('M8', 'DeepSeek-V3, latent bytes per token', perToken('deepseek-v3'), 70_272);
}

function slots(model: string, gib: number): number {
  return draftDeployment({ model, kvCacheMemoryBytes: gib * GIB, blockSize: 1 }).ledger.numBlocks ?? 0;
}

/** Llama-3.1-8B on an RTX 3090; the log prints 23.58 GiB, 0.90 and peaks rounded to 0.01 GiB. */
function llamaOnRtx3090(check: Check): void {
  const at = (peakTorchGib: number, numBlocks: number, maxModelLen: number) => {
    const left = 23.58 * 0.9 - peakTorchGib - 0.35;
    // Three rounded numbers: each half a hundredth off at most.
    const isInside = Math.abs(numBlocks * perToken('llama-3.1-8b') * 16 - left * GIB) <= 3 * 0.005 * GIB;
    const deployment = draftDeployment({
      model: 'llama-3.1-8b',
      kvCacheMemoryBytes: numBlocks * 16 * perToken('llama-3.1-8b'),
      maxModelLen,
    });
    return { isInside, deployment, problem: fitProblem(deployment) };
  };
  const fits = at(17.06, 1952, 20_000);
  check('M2', '1,952 blocks agree with the printed subtraction', String(fits.isInside), 'true');
  check('M2', 'blocks in their bytes', fits.deployment.ledger.numBlocks ?? 0, 1952);
  check('M2', 'tokens', fits.deployment.ledger.kvTokens ?? 0, 31_232);
  check('M2', 'concurrency at 20,000', concurrency(fits.deployment.ledger.kvTokens, 20_000), '1.56x');
  check('M2', 'starts', fits.problem === null ? 'yes' : 'no', 'yes');
  const refused = at(17.98, 1478, 29_000);
  check('M3', '1,478 blocks agree with the printed subtraction', String(refused.isInside), 'true');
  check('M3', 'tokens', refused.deployment.ledger.kvTokens ?? 0, 23_648);
  check('M3', 'concurrency at 29,000', concurrency(refused.deployment.ledger.kvTokens, 29_000), '0.82x');
  const names = refused.problem?.message.includes('The longest that fits is 23648') === true;
  check('M3', 'refuses to start and names the longest length', names ? 'refused, 23648' : 'no', 'refused, 23648');
}

const FP8 = { kvDtype: 'fp8', tensorParallelSize: 1 } as const;
/** Three of four layers have linear attention, which keeps nothing per token. */
const HYBRID = {
  model_type: 'qwen3_next',
  hidden_size: 5120,
  num_hidden_layers: 64,
  num_attention_heads: 24,
  num_key_value_heads: 4,
  head_dim: 256,
  intermediate_size: 17408,
  vocab_size: 248320,
  full_attention_interval: 4,
};

function otherLogs(check: Check): void {
  const seventy = draftDeployment({
    model: 'llama-3.1-70b',
    weightDtype: 'int8',
    kvCacheMemoryBytes: 1381 * 16 * perToken('llama-3.1-70b'),
  });
  check('M4', 'Llama-3.1-70B w8a8, blocks in their bytes', seventy.ledger.numBlocks ?? 0, 1381);
  check('M4', 'concurrency at 2,048', concurrency(seventy.ledger.kvTokens, 2048), '10.79x');
  const hybrid = shapeFromConfig(HYBRID, { name: 'hybrid', weightDtype: 'bf16' });
  check('M5', 'Qwen hybrid, 16 of 64 layers attend, fp8: bytes per token', kvBytesPerToken(hybrid, FP8), 32_768);
  check('M5', 'the same on each of two GPUs', kvBytesPerToken(hybrid, { ...FP8, tensorParallelSize: 2 }), 16_384);
  check('M5', 'concurrency at 131,072 of 302,921 tokens', concurrency(302_921, 131_072), '2.31x');
  const seven = draftDeployment({
    model: 'qwen2.5-7b',
    kvCacheMemoryBytes: 77_088 * perToken('qwen2.5-7b'),
    maxModelLen: 1000,
  });
  check('M6', 'Qwen2.5-7B on A10G, tokens in the pool', seven.ledger.kvTokens ?? 0, 77_088);
  const full = capacityRows(seven, null)?.find(({ name }) => name === 'full')?.numRequests ?? 0;
  check(
    'M6',
    'requests of 1,000 tokens that fit, published 70 to 80',
    full >= 70 && full <= 80 ? '70 to 80' : String(full),
    '70 to 80',
  );
}

function concurrency(tokens: number | null, length: number): string {
  return `${((tokens ?? 0) / length).toFixed(2)}x`;
}
