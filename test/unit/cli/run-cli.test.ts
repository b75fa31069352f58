import { execFile } from 'node:child_process';
import { resolve } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { CliIo } from '../../../src/cli/cli-io.ts';
import { normalizeFlags, runCli } from '../../../src/cli/run-cli.ts';
import { displayWidth, fit, table } from '../../../src/cli/table.ts';

async function run(argv: string[], options: { env?: NodeJS.ProcessEnv; stdin?: string } = {}) {
  let stdout = '';
  let stderr = '';
  const io: CliIo = {
    argv,
    env: { HF_HOME: '/nonexistent', ...options.env },
    stdin: Object.assign(
      (async function* () {
        if (options.stdin !== undefined) yield options.stdin;
      })(),
      { isTTY: options.stdin === undefined },
    ),
    stdout: { write: (text) => (stdout += text) },
    stderr: { write: (text) => (stderr += text) },
    onInterrupt: () => () => undefined,
  };
  return { code: await runCli(io), stdout, stderr };
}

const mini = resolve(import.meta.dirname, '../../../assets/pagoda-mini.F16.gguf');
const fast = ['--device', 'reference', '--max-model-len', '64'];

describe('usage', () => {
  it('shows help and version with code 0', async () => {
    const help = await run(['--help']);
    expect(help.code).toBe(0);
    for (const command of ['serve', 'complete', 'inspect', 'list', 'bench']) expect(help.stdout).toContain(command);
    expect((await run(['--version'])).stdout).toMatch(/^\d+\.\d+\.\d+\n$/);
    expect((await run(['serve', '--help'])).stdout).toContain('--max-num-batched-tokens <n>');
  });

  // One line on stderr, code 2, nothing on stdout.
  it.each<[string[], string]>([
    [['servee'], 'serve'],
    [['serve', '--max-model-length', '4k'], '--max-model-len'],
    [['serve', '--nothing-like-it'], '--help lists what there is'],
    [['serve', '--max-model-len', '2.5K'], "got '2.5K'"],
    [['serve', '--tensor-parallel-size=2'], 'Pagoda runs on one device'],
    [['serve', '--kv-cache-dtype', 'fp8'], 'fp8'],
    [['serve', 'a.gguf', '--model', 'b.gguf'], 'Two models'],
    [['complete', '--temperature', 'warm', '-p', 'x'], "--temperature must be a number, got 'warm'."],
    [['complete', '--temperature', '5', '-p', 'x', ...fast], 'temperature must be in [0, 2], got 5.'],
    [['complete'], 'A prompt is missing'],
    [['bench', 'throughput', '--num-prompts', '0'], '--num-prompts must be a whole number'],
    [['inspect', 'org/never-cached'], 'org/never-cached'],
  ])('%j', async (argv, message) => {
    const { code, stdout, stderr } = await run(argv);
    expect([code, stdout]).toEqual([2, '']);
    expect(stderr).toContain(message);
    expect(stderr.trimEnd().split('\n')).toHaveLength(1);
    expect(stderr).not.toMatch(/\n\s+at /);
  });

  // Both processes look for the model, so they must be the built ones.
  it('serve with a model that is not there', async () => {
    const argv = [resolve(import.meta.dirname, '../../../bin/pagoda.js'), 'serve', './missing.gguf'];
    const { code, stdout, stderr } = await new Promise<{ code: unknown; stdout: string; stderr: string }>((done) =>
      execFile(process.execPath, argv, (error, stdout, stderr) => done({ code: error?.code, stdout, stderr })),
    );
    expect([code, stdout]).toEqual([2, '']);
    expect(stderr).toMatch(/^error: \.\/missing\.gguf: no such file or folder .*\n$/);
  });

  it('takes underscores in names, not in values', () => {
    expect(normalizeFlags(['--max_model_len=4_0', '--served_model_name', 'a_b', '--', '--x_y'])).toEqual([
      '--max-model-len=4_0',
      '--served-model-name',
      'a_b',
      '--',
      '--x_y',
    ]);
  });
});

describe('list and inspect', () => {
  it('prints facts as text and as JSON', async () => {
    expect((await run(['list'])).stdout).toMatch(/^MODEL .*\npagoda-mini +gguf +Q8_0 /);
    expect(JSON.parse((await run(['list', '--json'])).stdout)).toMatchObject([
      { name: 'pagoda-mini', format: 'gguf', quant: 'Q8_0' },
    ]);
    const { stdout } = await run(['inspect', '--json']);
    expect(JSON.parse(stdout)).toMatchObject({
      name: 'pagoda-mini',
      architecture: 'llama',
      parameters: 3_279_104,
      context_length: 2048,
      vocab_size: 4096,
      // 4 layers x 2 KV heads x 32 x (K and V) x 2 bytes
      kv_bytes_per_token: 1024,
      tokenizer: { kind: 'gpt2', adds_bos: false, eos: { id: 2 }, stop_tokens: [{ id: 0 }, { id: 2 }] },
    });
    expect(JSON.parse((await run(['inspect', '--kv-cache-dtype', 'f32', '--json'])).stdout).kv_bytes_per_token).toBe(
      2048,
    );
    expect((await run(['inspect'])).stdout).toMatch(/Parameters: +3,279,104\n/);
  });
});

describe('complete', () => {
  const greedy = ['complete', mini, ...fast, '--kv-cache-dtype', 'f32', '--temperature', '0', '--max-tokens', '4'];

  it('streams the text, from -p and from stdin', async () => {
    const direct = await run([...greedy, '-p', 'The capital of France is']);
    expect(direct).toEqual({ code: 0, stdout: ' Paris.\n', stderr: '' });
    expect((await run(greedy, { stdin: 'The capital of France is\n' })).stdout).toBe(' Paris.\n');
  });

  it('shows every step, with and without the KV cache, with the same tokens', async () => {
    const steps = async (...extra: string[]) =>
      JSON.parse((await run([...greedy, '-p', 'The capital of France is', '--show-steps', '--json', ...extra])).stdout);
    const cached = await steps();
    const recomputed = await steps('--no-kv-cache');
    expect(cached.token_ids).toEqual([2703, 16, 0]);
    expect(recomputed.token_ids).toEqual(cached.token_ids);
    expect(cached.steps.map((step: { input_token_ids: number[] }) => step.input_token_ids.length)).toEqual([5, 1, 1]);
    expect(recomputed.steps.map((step: { input_token_ids: number[] }) => step.input_token_ids.length)).toEqual([
      5, 6, 7,
    ]);
    expect(cached.steps.map((step: { kv_length: number }) => step.kv_length)).toEqual([5, 6, 7]);
    expect(cached.steps[0].candidates).toHaveLength(5);
    expect(cached.steps[0].candidates[0]).toMatchObject({ token_id: 2703, token: ' Paris' });
    expect(cached.steps[0].candidates[0].probability).toBeCloseTo(Math.exp(-0.00911), 3);
    expect(recomputed.multiplications).toBeGreaterThan(2 * cached.multiplications);
    const text = (await run([...greedy, '-p', 'The capital of France is', '--show-steps'])).stdout;
    expect(text).toMatch(/^STEP +IN +KV +best/);
    expect(text).toContain('3 steps in ');
    expect(text).toMatch(/[\d,]+ multiplications; without the KV cache it would be [\d,]+ \(\d\.\d times as many\)\./);
  });
});

describe('bench throughput', () => {
  it('reports what was done and what the KV cache did', async () => {
    const argv = [
      'bench',
      'throughput',
      ...fast,
      '--num-prompts',
      '3',
      '--input-len',
      '20',
      '--output-len',
      '3',
      '--max-num-seqs',
      '2',
      '--json',
    ];
    const facts = JSON.parse((await run(argv)).stdout);
    expect(facts).toMatchObject({
      num_requests: 3,
      total_prompt_tokens: 60,
      total_output_tokens: 9,
      max_running: 2,
      preemptions: 0,
    });
    expect(facts.kv_waste).toBeGreaterThan(0);
    expect(facts.kv_waste).toBeLessThan(0.5);
  });
});

describe('tables', () => {
  it('line up wide characters', () => {
    expect(displayWidth('中国ab')).toBe(6);
    expect(fit('中国的首都', 7)).toBe('中国的…');
    expect(
      table(
        ['A', 'B'],
        [
          ['中', 'x'],
          ['long', 'y'],
        ],
      ),
    ).toBe('A     B\n中    x\nlong  y\n');
  });
});
