import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import { draftDeployment, fitProblem, resolveDeployment } from '../../../../src/plan/resolve-deployment.ts';
import { findModel } from '../../../../src/sim/catalogue/find-model.ts';
import {
  blocksOfSequence,
  kvBytesOfSequence,
  kvBytesPerToken,
  kvFormula,
  longestSequence,
} from '../../../../src/sim/cost/kv-memory.ts';
import { numCaptureSizes } from '../../../../src/sim/cost/memory-ledger.ts';

const GIB = 2 ** 30;
const one = { kvDtype: 'bf16', tensorParallelSize: 1 } as const;
const perToken = (model: string) => kvBytesPerToken(findModel(model).shape, one);

const folder = mkdtempSync(join(tmpdir(), 'pagoda-plan-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** A config.json with dimensions only, as the hub has it; the folder has no weights. */
function configFile(name: string, fields: Readonly<Record<string, unknown>>): string {
  const path = join(folder, `${name}.json`);
  writeFileSync(path, JSON.stringify({ torch_dtype: 'bfloat16', tie_word_embeddings: false, ...fields }));
  return path;
}

describe('KV bytes by the book', () => {
  it('has the figures everybody quotes', () => {
    expect(perToken('llama-7b')).toBe(524_288);
    expect(perToken('llama-7b') * 2048).toBe(GIB);
    expect(perToken('llama-13b') * 2048).toBe(1_677_721_600);
    expect(perToken('opt-13b')).toBe(819_200); // PagedAttention: "800 KB"
    expect(Math.floor((12 * GIB) / perToken('opt-13b'))).toBe(15_728);
    expect(Math.floor((264 * GIB) / perToken('opt-175b'))).toBe(60_074);
    expect(Math.floor((21 * GIB) / perToken('opt-66b'))).toBe(9_557);
    expect(perToken('deepseek-v3')).toBe(70_272);
    expect(kvBytesPerToken(findModel('llama-3-70b').shape, { ...one, kvDtype: 'fp8' })).toBe(163_840);
  });

  it('cuts heads, but not below one, and never the latent vector', () => {
    const at = (model: string, tensorParallelSize: number) =>
      kvBytesPerToken(findModel(model).shape, { kvDtype: 'bf16', tensorParallelSize });
    expect(at('llama-3.1-70b', 8)).toBe(at('llama-3.1-70b', 1) / 8);
    expect(at('llama-3.1-70b', 16)).toBe(at('llama-3.1-70b', 8));
    expect(at('deepseek-v3', 8)).toBe(70_272);
    expect(at('falcon-7b', 1)).toBe(2 * 32 * 64 * 2);
  });

  it('says the formula', () => {
    expect(kvFormula(findModel('llama-7b').shape, one)).toEqual([
      '2 (K and V) x 32 layers x 32 KV heads x 128 per head x 2 bytes = 524,288 bytes',
    ]);
  });
});

describe('questions people asked', () => {
  it('int8 weights do not touch the cache (Qwen2.5-7B)', () => {
    const { shape } = findModel(
      configFile('qwen2.5-7b', {
        architectures: ['Qwen2ForCausalLM'],
        model_type: 'qwen2',
        num_hidden_layers: 28,
        hidden_size: 3584,
        num_attention_heads: 28,
        num_key_value_heads: 4,
        head_dim: 128,
        intermediate_size: 18944,
        vocab_size: 152064,
        max_position_embeddings: 32768,
      }),
    );
    expect(kvBytesPerToken(shape, one)).toBe(57_344);
    expect(kvBytesOfSequence(shape, 3072, one)).toBe(176_160_768);
    expect((50 * kvBytesOfSequence(shape, 3072, one)) / GIB).toBeCloseTo(8.203, 3);
    expect(draftDeployment({ model: 'qwen2.5-7b', weightDtype: 'int8' }).ledger.blockBytes).toBe(57_344 * 16);
  });

  it('windows and head sizes of their own (Gemma 3 27B, Qwen3 0.6B)', () => {
    const gemma = findModel('gemma-3-27b').shape;
    expect(kvBytesOfSequence(gemma, 131_072, one)).toBe(11_173_625_856);
    const { deployment, ledger } = draftDeployment({ model: 'gemma-3-27b', kvCacheMemoryBytes: 64 * GIB });
    const blocks = blocksOfSequence(131_072, deployment.groupWindows, 16);
    // Rounding windows to blocks and the last group up to ten layers.
    expect((blocks * ledger.blockBytes) / 11_173_625_856 - 1).toBeLessThan(0.01);
    expect(perToken('qwen3-0.6b')).toBe(114_688);
    expect((perToken('qwen3-0.6b') * 40_960) / GIB).toBe(4.375);
  });

  it('fp8 cache decides what fits (Qwen3-30B-A3B)', () => {
    const model = configFile('qwen3-30b-a3b', {
      architectures: ['Qwen3MoeForCausalLM'],
      model_type: 'qwen3_moe',
      num_hidden_layers: 48,
      hidden_size: 2048,
      num_attention_heads: 32,
      num_key_value_heads: 4,
      head_dim: 128,
      intermediate_size: 6144,
      vocab_size: 151936,
      max_position_embeddings: 262144,
      num_experts: 128,
      num_experts_per_tok: 8,
      moe_intermediate_size: 768,
    });
    const at = (kvCacheMemoryBytes: number, maxModelLen: number) =>
      draftDeployment({ model, kvCacheDtype: 'fp8', kvCacheMemoryBytes, maxModelLen });
    const pool = at(11_330_912_256, 100_000);
    expect(kvBytesPerToken(pool.found.shape, { ...one, kvDtype: 'fp8' })).toBe(49_152);
    expect(pool.ledger.kvTokens).toBe(230_528);
    expect((pool.ledger.kvTokens! / 100_000).toFixed(2)).toBe('2.31');
    expect(fitProblem(pool)).toBeNull();
    const small = at(Math.floor(5.59 * GIB), 221_000);
    expect(small.ledger.kvTokens).toBe(122_112);
    expect(fitProblem(small)?.message).toContain('needs 10.12 GiB');
    expect(fitProblem(small)?.message).toContain('--max-model-len 122112');
    expect(fitProblem(at(Math.floor(5.59 * GIB), 122_112))).toBeNull();
  });

  it('two GPUs do not add up, the tightest one rules (14B on two RTX 4090)', () => {
    const request = { model: 'deepseek-r1-distill-qwen-14b', gpu: 'rtx-4090:2', tensorParallelSize: 2 };
    const at = (gigabytes: number) => draftDeployment({ ...request, kvCacheMemoryBytes: Math.floor(gigabytes * GIB) });
    expect(at(8.69).ledger.blockBytes / 16).toBe(98_304);
    expect(at(8.69).ledger).toMatchObject({ numBlocks: 5_932, kvTokens: 94_912 });
    expect(at(7.4649).ledger.kvTokens).toBe(81_536);
    expect(fitProblem(at(8.69))?.message).toMatch(/131072.*needs 12\.00 GiB.*longest that fits is 94912/);
  });

  it('q8_0 is not half of 16 bit, fp8 is (Qwen2.5-Coder-32B at 32,768)', () => {
    const { shape } = findModel('qwen2.5-coder-32b');
    const mib = (kvDtype: 'bf16' | 'q8_0' | 'fp8' | 'int8') =>
      kvBytesOfSequence(shape, 32_768, { kvDtype, tensorParallelSize: 1 }) / 2 ** 20;
    expect([mib('bf16'), mib('q8_0'), mib('fp8')]).toEqual([8192, 4352, 4096]);
    // Pagoda's: a float32 scale per head of 128 values.
    expect(mib('int8')).toBe((4096 * 132) / 128);
  });
});

describe('blocks', () => {
  it('the longest sequence is the longest that fits', () => {
    const blockSizes = fc.constantFrom(1, 8, 16, 32);
    const windows = fc.array(fc.constantFrom(0, 0, 17, 64, 1024), { minLength: 1, maxLength: 4 });
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 500 }), windows, blockSizes, (numBlocks, groups, blockSize) => {
        const longest = longestSequence(numBlocks, groups, blockSize);
        const fits = (tokens: number) => blocksOfSequence(tokens, groups, blockSize) <= numBlocks;
        if (longest === Number.POSITIVE_INFINITY) return fits(1_000_000);
        return (longest === 0 || fits(longest)) && !fits(longest + 1);
      }),
    );
  });

  it('captures the batch sizes that vLLM does', () => {
    expect(numCaptureSizes(256)).toBe(3 + 32 + 16);
    expect(numCaptureSizes(1)).toBe(2);
    expect(numCaptureSizes(64)).toBe(3 + 16);
  });
});

describe('a deployment from flags', () => {
  it('fills in what vLLM would', () => {
    const { deployment, ledger } = resolveDeployment({ model: 'llama-7b', gpu: 'a100-80gb:4', tensorParallelSize: 4 });
    expect(deployment.flags).toMatchObject({ maxNumSeqs: 256, maxNumBatchedTokens: 2048, maxModelLen: 2048 });
    expect(deployment.numReplicas).toBe(1);
    expect(ledger.weightBytes).toBeGreaterThan(6_738_415_616 * 2 * 0.25);
    expect(ledger.weightBytes).toBeLessThan(6_738_415_616 * 2 * 0.251);
    const spent = ledger.reservedBytes! + ledger.weightBytes + ledger.activationBytes + ledger.communicationBytes;
    expect(spent + ledger.runtimeBytes + ledger.graphBytes + ledger.kvPoolBytes!).toBe(ledger.totalBytes);
    expect(resolveDeployment({ model: 'llama-3.1-8b', gpu: 'h100' }).deployment.flags).toMatchObject({
      maxNumSeqs: 1024,
      maxNumBatchedTokens: 8192,
    });
  });

  const bad: ReadonlyArray<readonly [string, Parameters<typeof resolveDeployment>[0], string, RegExp]> = [
    ['GPU', { model: 'llama-7b', gpu: 'a1000' }, '--gpu', /a100-80gb/],
    ['GPU count', { model: 'llama-7b', gpu: 'h100:0' }, '--gpu', /h100:4/],
    ['TP', { model: 'llama-7b', gpu: 'h100:8', tensorParallelSize: 3 }, '--tensor-parallel-size', /nearest size is 4/],
    ['too few GPUs', { model: 'llama-7b', gpu: 'h100:2', tensorParallelSize: 4 }, '--gpu', /h100:4/],
    ['utilization', { model: 'llama-7b', gpu: 'h100', gpuMemoryUtilization: 1.5 }, '--gpu-memory-utilization', /0\.9/],
    ['length', { model: 'llama-7b', gpu: 'h100', maxModelLen: 0 }, '--max-model-len', /nearest is 2/],
    [
      'budget',
      { model: 'llama-7b', gpu: 'h100', maxNumSeqs: 64, maxNumBatchedTokens: 32 },
      '--max-num-batched-tokens',
      /64/,
    ],
    ['memory', { model: 'llama-3.1-70b', gpu: 'a100-80gb' }, '--gpu', /does not fit/],
  ];
  it.each(bad)('refuses an impossible %s by name', (_, request, param, message) => {
    expect(() => resolveDeployment(request)).toThrowError(expect.objectContaining({ param }));
    expect(() => resolveDeployment(request)).toThrowError(message);
  });
});
