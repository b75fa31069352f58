import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import type { CliIo } from '../../../src/cli/cli-io.ts';
import { runCli } from '../../../src/cli/run-cli.ts';

async function run(...argv: string[]) {
  let stdout = '';
  let stderr = '';
  const io: CliIo = {
    argv,
    env: { HF_HOME: '/nonexistent' },
    stdin: Object.assign((async function* () {})(), { isTTY: true }),
    stdout: { write: (text) => (stdout += text) },
    stderr: { write: (text) => (stderr += text) },
    onInterrupt: () => () => undefined,
  };
  return { code: await runCli(io), stdout, stderr };
}

const folder = mkdtempSync(join(tmpdir(), 'pagoda-plan-cli-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** A folder with a config.json and nothing else. */
function configFolder(name: string, fields: Readonly<Record<string, unknown>>): string {
  const path = join(folder, name);
  mkdirSync(path, { recursive: true });
  writeFileSync(join(path, 'config.json'), JSON.stringify({ torch_dtype: 'bfloat16', ...fields }));
  return path;
}

describe('pagoda plan', () => {
  it('prints the memory as a subtraction, the formula, how many fit, the run and commands to paste', async () => {
    const { code, stdout, stderr } = await run(
      ...['plan', '--model', 'llama-7b', '--gpu', 'a100-80gb:4', '--tensor-parallel-size', '4'],
      ...['--max-num-seqs', '64', '--max-model-len', '2048', '--max-num-batched-tokens', '2048'],
      ...['--prompt', '80', '--output', '6', '--concurrency', '8', '--num-requests', '8'],
      ...['--ttft', '1.5s', '--tpot', '50ms', '--percentile', 'p90'],
    );
    expect(stderr).toBe('');
    expect(code).toBe(0);
    for (const part of [
      'Memory per GPU',
      'kept free (--gpu-memory-utilization 0.9)',
      '= KV pool',
      '2 (K and V) x 32 layers x 32 / 4 KV heads x 128 per head x 2 bytes = 131,072 bytes',
      'static: full length reserved',
      'p90 <= 1.50 s: met',
      'Cheapest configurations that meet the target',
      'vllm serve llama-7b',
      'pagoda serve llama-7b',
      '6,738,415,616 parameters',
      '7e9 x 2 bytes = 14 GB',
    ]) {
      expect(stdout).toContain(part);
    }
  });

  it('needs no GPU and no weights for memory arithmetic', async () => {
    const model = configFolder('qwen2.5-7b', {
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
      tie_word_embeddings: false,
    });
    const { code, stdout } = await run('plan', model, '--max-model-len', '3072', '--json');
    expect(code).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject({
      kv_bytes_per_token: 57_344,
      kv_bytes_per_full_request: 176_160_768,
      parameters: 7_615_616_512,
      memory_per_gpu: { total_bytes: null },
      predicted: null,
    });
  });

  it('has exit code 1 when what was given cannot start, and names the length that would', async () => {
    const { code, stdout } = await run(
      ...['plan', 'qwen3-30b-a3b', '--kv-cache-dtype', 'fp8', '--kv-cache-memory-bytes', '6002216796'],
      ...['--max-model-len', '221000'],
    );
    expect(code).toBe(1);
    expect(stdout).toContain('DOES NOT START');
    expect(stdout).toContain('--max-model-len 122112');
  });

  it('has exit code 1 when no configuration meets the target, and says what would have to change', async () => {
    const { code, stdout } = await run(
      ...['plan', 'llama-7b', '--gpu', 'a100-80gb', '--prompt', '64', '--output', '4', '--concurrency', '2'],
      ...['--num-requests', '2', '--tpot', '1ms'],
    );
    expect(code).toBe(1);
    expect(stdout).toContain('THE TARGET CANNOT BE MET');
    expect(stdout).toContain('What would have to change');
    expect(stdout).not.toContain('To paste');
  });

  it.each<[string, string[], RegExp]>([
    ['an unknown model', ['plan', 'lama-7b'], /--model "lama-7b".*llama-7b/],
    ['an unknown GPU', ['plan', 'llama-7b', '--gpu', 'h1000'], /--gpu "h1000" is not known; nearest names: .*h100/],
    ['no model', ['plan'], /--model is needed/],
    ['a bad number', ['plan', 'llama-7b', '--max-num-seqs', '4 k'], /--max-num-seqs must be/],
    ['zero', ['plan', 'llama-7b', '--max-num-seqs', '0'], /nearest is 1/],
    ['a target without load', ['plan', 'llama-7b', '--gpu', 'h100', '--ttft', '1s'], /needs a load/],
    ['a target without GPU', ['plan', 'llama-7b', '--concurrency', '4', '--ttft', '1s'], /needs hardware/],
    [
      'a bad time',
      ['plan', 'llama-7b', '--gpu', 'h100', '--concurrency', '4', '--ttft', 'soon'],
      /--ttft must be a time/,
    ],
    [
      'a rate nobody can change',
      ['plan', 'llama-7b', '--gpu', 'h100', '--concurrency', '4', '--ttft', '1s', '--max-rate'],
      /--max-rate needs arrivals/,
    ],
    ['a broken config.json', ['plan', configFolder('broken', { model_type: 'llama' })], /hidden_size is missing/],
    ['a calibration without data', ['calibrate', 'engine', 'llama-7b', '--gpu', 'h100'], /--bench or --log is needed/],
    [
      'a calibration without a file',
      ['calibrate', 'engine', 'llama-7b', '--gpu', 'h100', '--bench', '/none.json'],
      /no such file/,
    ],
  ])('refuses %s in one line with exit code 2', async (_, argv, message) => {
    const { code, stdout, stderr } = await run(...argv);
    expect(stderr).toMatch(message);
    expect(stderr.trim().split('\n')).toHaveLength(1);
    expect(stdout).toBe('');
    expect(code).toBe(2);
  });
});

describe('pagoda calibrate engine', () => {
  it('fits the constants to a bench result and to a log', async () => {
    const bench = join(folder, 'bench.json');
    writeFileSync(
      bench,
      JSON.stringify({
        completed: 8,
        max_concurrency: 4,
        total_input_tokens: 800,
        total_output_tokens: 80,
        mean_ttft_ms: 90,
        mean_tpot_ms: 20,
      }),
    );
    const first = await run('calibrate', 'engine', 'llama-7b', '--gpu', 'a100-80gb', '--bench', bench);
    expect(first.code).toBe(0);
    const fields = JSON.parse(first.stdout);
    expect(fields).toMatchObject({ format: 'pagoda-calibration-1', kind: 'engine', num_measurements: 1 });
    expect(fields.mean_tpot_error_share).toBeLessThan(1e-6);
    expect(fields.step_seconds).toBeGreaterThan(5e-3);
    const log = join(folder, 'vllm.log');
    const line = (generation: number, running: number) =>
      `INFO Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: ${generation} tokens/s, Running: ${running} reqs, Waiting: 0 reqs, GPU KV cache usage: 5.0%, Prefix cache hit rate: 0.0%`;
    writeFileSync(log, [line(400, 8), line(1200, 32), 'something else'].join('\n'));
    const second = await run('calibrate', 'engine', 'llama-7b', '--gpu', 'a100-80gb', '--log', log);
    expect(JSON.parse(second.stdout)).toMatchObject({ num_measurements: 2 });
  });
});
