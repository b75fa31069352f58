import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import type { CliIo } from '../../../src/cli/cli-io.ts';
import { runCli } from '../../../src/cli/run-cli.ts';

const folder = mkdtempSync(join(tmpdir(), 'pagoda-simulate-'));
afterAll(() => rmSync(folder, { recursive: true }));

async function run(...argv: string[]) {
  let stdout = '';
  let stderr = '';
  const io: CliIo = {
    argv: ['simulate', ...argv],
    env: {},
    stdin: Object.assign((async function* () {})(), { isTTY: true }),
    stdout: { write: (text) => (stdout += text) },
    stderr: { write: (text) => (stderr += text) },
    onInterrupt: () => () => undefined,
  };
  return { code: await runCli(io), stdout, stderr };
}

const LLAMA = ['--model', 'llama-7b', '--gpu', 'a100-80gb:4'];
const SMALL = ['--prompt', '800', '--output', '300', '--concurrency', '8', '--num-requests', '24'];
const TUNED =
  '--tensor-parallel-size 4 --gpu-memory-utilization 0.92 --max-num-seqs 64 --max-model-len 2048 --enable-chunked-prefill --chunked-prefill-size 512';

interface Json {
  readonly configurations: ReadonlyArray<{
    readonly label: string;
    readonly deployment: string;
    readonly num_completed: number;
    readonly goodput_share: number | null;
    readonly ttft_seconds: { readonly p50: number };
    readonly tpot_seconds: { readonly p50: number };
  }>;
}

describe('pagoda simulate', () => {
  it('compares the given flags with the defaults, in a table', async () => {
    const { code, stdout, stderr } = await run(
      ...LLAMA,
      ...TUNED.split(' '),
      ...SMALL,
      '--compare',
      '--ttft',
      '1.5s',
      '--tpot',
      '50ms',
    );
    expect([code, stderr]).toEqual([0, '']);
    expect(stdout).toContain('given flags');
    expect(stdout).toContain('default flags');
    expect(stdout).toMatch(/met TTFT 1\.50 s, TPOT 50\.0 ms +\d/);
    expect(stdout).toMatch(/completed \/ refused requests +24 \/ 0 +24 \/ 0/);
    expect(stdout).not.toMatch(/NaN|undefined|Infinity/);
  });

  it('gives JSON, a timeline and a page, and repeats exactly', async () => {
    const timeline = join(folder, 'timeline.json');
    const html = join(folder, 'report.html');
    const argv = [...LLAMA, ...SMALL, '--compare=--max-num-seqs 2', '--compare=--tensor-parallel-size 4', '--json'];
    const first = await run(...argv, '--timeline', timeline, '--html', html);
    expect([first.code, first.stderr]).toEqual([0, '']);
    const { configurations } = JSON.parse(first.stdout) as Json;
    expect(configurations.map(({ label }) => label)).toEqual([
      'given flags',
      '--max-num-seqs 2',
      '--tensor-parallel-size 4',
    ]);
    expect(configurations.map((each) => each.num_completed)).toEqual([24, 24, 24]);
    expect(configurations[2]!.tpot_seconds.p50).toBeLessThan(configurations[0]!.tpot_seconds.p50);
    const events = (JSON.parse(readFileSync(timeline, 'utf8')) as { traceEvents: unknown[] }).traceEvents;
    expect(events.length).toBeGreaterThan(300);
    expect(readFileSync(html, 'utf8')).toContain('</html>');
    expect((await run(...argv)).stdout).toBe(first.stdout);
  });

  it('one long prompt beside a decoder: 11 steps with prefill at a budget of 512, 10 with chunks of 512', async () => {
    const trace = join(folder, 'long.csv');
    writeFileSync(trace, 'arrived_at,num_prefill_tokens,num_decode_tokens\n0,16,600\n0.5,5112,2\n');
    const prefillSteps = async (...flags: string[]) => {
      const timeline = join(folder, 'long.json');
      const base = [
        '--model',
        'llama-3.1-8b',
        '--gpu',
        'a100-80gb',
        '--max-model-len',
        '8192',
        '--max-num-seqs',
        '128',
      ];
      const { code, stderr } = await run(...base, '--trace', trace, '--timeline', timeline, ...flags);
      expect([code, stderr]).toEqual([0, '']);
      const { traceEvents } = JSON.parse(readFileSync(timeline, 'utf8')) as {
        traceEvents: Array<{ ph: string; ts: number; args: { prefill_tokens: number; decode_tokens: number } }>;
      };
      const steps = traceEvents.filter(({ ph, ts, args }) => ph === 'X' && ts >= 500_000 && args.prefill_tokens > 0);
      expect(new Set(steps.map(({ args }) => args.decode_tokens))).toEqual(new Set([1]));
      return steps.length;
    };
    expect(await prefillSteps('--max-num-batched-tokens', '512')).toBe(11);
    expect(await prefillSteps('--max-num-batched-tokens', '2048')).toBe(3);
    expect(await prefillSteps('--max-num-batched-tokens', '8192')).toBe(1);
    expect(await prefillSteps('--max-num-batched-tokens', '1024', '--chunked-prefill-size', '512')).toBe(10);
  });

  // One line on stderr that names the option, code 2, nothing on stdout.
  it.each<[string[], RegExp]>([
    [[...SMALL], /--model is needed/],
    [['llama-7b', ...SMALL], /--gpu is needed/],
    [['llama-8b-7', '--gpu', 'a100', ...SMALL], /llama/],
    [['llama-7b', '--gpu', 'a100-90gb', ...SMALL], /a100-80gb/],
    [['llama-7b', '--model', 'opt-13b', '--gpu', 'a100', ...SMALL], /Two models/],
    [[...LLAMA], /How do requests come\? Give --rate/],
    [[...LLAMA, '--rate', '5', '--concurrency', '5'], /--rate does nothing here/],
    [[...LLAMA, '--rate', '-5'], /--rate must be/],
    [[...LLAMA, '--rate', '5', '--burstiness', '0'], /--burstiness must be/],
    [[...LLAMA, '--rate', '5', '--arrival', 'uniform'], /--arrival must be poisson/],
    [[...LLAMA, '--rate', '5', '--prompt', 'many'], /--prompt must be a number of tokens/],
    [[...LLAMA, '--rate', '5', '--think-time', '3s'], /--think-time does nothing here/],
    [[...LLAMA, '--rate', '5', '--shared-prefix-share', '1'], /--shared-prefix-share does nothing here/],
    [[...LLAMA, '--rate', '5', '--num-requests', '0'], /--num-requests/],
    [[...LLAMA, '--rate', '5', '--num-requests', '10', '--duration', '10s'], /--duration does nothing here/],
    [[...LLAMA, '--trace', './no-such-trace.csv'], /--trace \.\/no-such-trace\.csv: there is no such file/],
    [[...LLAMA, '--trace', 'x.csv', '--prompt', '5'], /--prompt does nothing here/],
    [[...LLAMA, '--workload', 'azure'], /--workload must be one of azure-conv/],
    [[...LLAMA, '--rate', '5', '--ttft', 'soon'], /--ttft must be a time/],
    [[...LLAMA, '--rate', '5', '--routing', 'random'], /--routing must be one of round-robin/],
    [[...LLAMA, '--rate', '5', '--compare=--max-num-seq 5'], /--compare '--max-num-seq 5': unknown option/],
    [[...LLAMA, '--rate', '5', '--max-num-seqs', '2.5'], /--max-num-seqs must be/],
    [[...LLAMA, '--rate', '5', '--num-requests', '3', '--prompt', '9000'], /No request of the workload can be served/],
    [
      [...LLAMA, '--rate', '5', '--num-requests', '3', '--html', './no-such-folder/x.html'],
      /--html .*cannot be written \(ENOENT\)/,
    ],
    [
      [...LLAMA, '--rate', '5', '--num-requests', '3', '--timeline', './no-such-folder/x.json'],
      /--timeline .*cannot be written/,
    ],
  ])('%j', async (argv, message) => {
    const { code, stdout, stderr } = await run(...argv);
    expect(stderr).toMatch(message);
    expect([code, stdout]).toEqual([2, '']);
    expect(stderr.trimEnd().split('\n')).toHaveLength(1);
  });
});
