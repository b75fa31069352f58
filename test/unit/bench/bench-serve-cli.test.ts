import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { runLoadInProcesses } from '../../../src/bench/load-processes.ts';
import type { CliIo } from '../../../src/cli/cli-io.ts';
import { runCli } from '../../../src/cli/run-cli.ts';
import { now } from '../../../src/clock.ts';
import { closing, type FakeServer, fakeStreamServer, openStream, token } from './fake-stream-server.ts';

async function run(argv: string[], env: NodeJS.ProcessEnv = {}) {
  let stdout = '';
  let stderr = '';
  const io: CliIo = {
    argv,
    env: { HF_HOME: '/nonexistent', ...env },
    stdin: Object.assign((async function* (): AsyncGenerator<string> {})(), { isTTY: true }),
    stdout: { write: (text) => (stdout += text) },
    stderr: { write: (text) => (stderr += text) },
    onInterrupt: () => () => undefined,
  };
  return { code: await runCli(io), stdout, stderr };
}

interface Seen {
  readonly bodies: Array<Record<string, unknown>>;
  readonly headers: Array<string | undefined>;
}

let server: FakeServer | null = null;
let folder: string | null = null;
afterEach(async () => {
  await server?.close();
  server = null;
  if (folder !== null) rmSync(folder, { recursive: true });
  folder = null;
});

/** Serves model `m`, tokenizes words to ids, answers each completion with three tokens. */
async function modelServer(): Promise<Seen> {
  const seen: Seen = { bodies: [], headers: [] };
  server = await fakeStreamServer((request, body, response) => {
    const json = (value: unknown): void => {
      response.writeHead(200, { 'content-type': 'application/json' });
      response.end(JSON.stringify(value));
    };
    if (request.url === '/v1/models') json({ data: [{ id: 'm' }] });
    else if (request.url === '/tokenize') {
      const { prompt } = JSON.parse(body) as { prompt: string };
      json({
        tokens: prompt
          .trim()
          .split(' ')
          .map((_, i) => 100 + i),
      });
    } else if (request.url === '/v1/completions') {
      const parsed = JSON.parse(body) as Record<string, unknown>;
      seen.bodies.push(parsed);
      seen.headers.push(request.headers.authorization);
      openStream(response);
      response.end(token('a') + token('b') + token('c', 'length') + closing((parsed.prompt as unknown[]).length, 3));
    } else {
      response.writeHead(404);
      response.end('{"detail":"Not Found"}');
    }
  });
  return seen;
}

describe('bench serve', () => {
  it('runs a load and saves the result under the names of vLLM', async () => {
    const seen = await modelServer();
    folder = mkdtempSync(join(tmpdir(), 'bench-serve-'));
    const argv = ['bench', 'serve', '--url', `${server!.url}/v1`, '--num-prompts', '6', '--num_warmups', '2'];
    const more = [
      '--random-input-len',
      '40',
      '--random-output-len',
      '3',
      '--max-concurrency',
      '2',
      '--temperature',
      '0',
    ];
    const out = [
      '--save-result',
      '--save-detailed',
      '--result-dir',
      folder,
      '--goodput',
      'ttft:100000',
      '--definitions',
    ];
    const { code, stdout, stderr } = await run([...argv, ...more, ...out, '--metadata', 'gpu=none'], {
      OPENAI_API_KEY: 'k',
    });
    expect([code, stderr]).toEqual([0, expect.stringMatching(/^Result saved in .*\.json\n$/)]);
    expect(stdout).toContain('Successful requests:                     6         \n');
    expect(stdout).toContain('Maximum request concurrency:             2         \n');
    expect(stdout).toContain('QUANTITY');
    expect(seen.bodies).toHaveLength(8);
    expect(new Set(seen.bodies.map((body) => JSON.stringify(body.prompt))).size).toBe(8);
    expect(seen.bodies[3]).toMatchObject({ model: 'm', max_tokens: 3, ignore_eos: true, stream: true, temperature: 0 });
    expect(seen.bodies[3]!.prompt).toHaveLength(40);
    expect(seen.headers[0]).toBe('Bearer k');
    const [name] = readdirSync(folder);
    expect(name).toMatch(/^openai-infqps-concurrency2-m-\d{8}-\d{6}\.json$/);
    expect(JSON.parse(readFileSync(join(folder, name!), 'utf8'))).toMatchObject({
      model_id: 'm',
      num_prompts: 6,
      request_rate: 'inf',
      max_concurrency: 2,
      completed: 6,
      failed: 0,
      cut: 0,
      total_input_tokens: 240,
      total_output_tokens: 18,
      output_lens: [3, 3, 3, 3, 3, 3],
      goodput_share: 1,
      gpu: 'none',
      prompt_lengths: 'server ids',
      finish_reasons: { length: 6 },
    });
  });

  it('takes the times of a trace', async () => {
    await modelServer();
    folder = mkdtempSync(join(tmpdir(), 'bench-serve-'));
    const path = join(folder, 'trace.csv');
    writeFileSync(path, 'arrived_at,num_prefill_tokens,num_decode_tokens\n5,7,3\n5.02,9,3\n5.04,11,3\n');
    const argv = ['bench', 'serve', '--url', server!.url, '--dataset-name', 'trace', '--dataset-path', path, '--json'];
    const { code, stdout } = await run([...argv, '--save-detailed', '--trace-scale', '2']);
    expect(code).toBe(0);
    const result = JSON.parse(stdout) as Record<string, number[]>;
    expect(result).toMatchObject({ input_lens: [7, 9, 11], request_rate: 'trace', completed: 3 });
    expect(result.start_times!.map((time) => Number(time.toFixed(6)))).toEqual([0, 0.01, 0.02]);
  });

  it('takes the workload flags of simulate', async () => {
    const seen = await modelServer();
    const load = ['--prompt', '12', '--output', '3', '--concurrency', '2', '--num-requests', '5', '--num-warmups', '1'];
    const { code, stdout } = await run(['bench', 'serve', '--url', server!.url, ...load, '--json']);
    expect(code).toBe(0);
    const result = {
      max_concurrency: 2,
      num_prompts: 5,
      completed: 5,
      total_input_tokens: 60,
      dataset_name: 'workload',
    };
    expect(JSON.parse(stdout)).toMatchObject(result);
    expect(seen.bodies).toHaveLength(6);
  });

  it.each<[string[], string]>([
    [['--prompt', '800', '--request-rate', '5'], '--prompt and --request-rate belong to two ways'],
    [['--prompt', '800'], 'How do requests come?'],
    [['--url', 'http://127.0.0.1:1'], '--url: no server answers at http://127.0.0.1:1. Nothing listens there'],
    [['--url', 'nonsense'], "--url must be an address like http://127.0.0.1:8000, got 'nonsense'."],
    [['--dataset-name', 'sonnet'], '--dataset-name must be one of random, sharegpt, custom, prefix_repetition, trace'],
    [['--dataset-name', 'custom'], '--dataset-name custom needs --dataset-path'],
    [['--request-rate', '0'], "--request-rate must be a number above 0, or inf, got '0'."],
    [['--goodput', 'itl:5'], '--goodput must be KEY:MILLISECONDS'],
    [['--ramp-up-strategy', 'linear'], '--ramp-up-strategy needs --ramp-up-start-rps'],
    [['--num-prompts', 'many'], '--num-prompts must be a whole number'],
    [['--request_rates', '5'], '--request-rate'],
    [['--percentile-metrics', 'ttft,xyz'], '--percentile-metrics must be one of ttft'],
  ])('bad input %j: one line, code 2', async (argv, message) => {
    const { code, stdout, stderr } = await run(['bench', 'serve', ...argv]);
    expect([code, stdout]).toEqual([2, '']);
    expect(stderr).toContain(message);
    expect(stderr.trimEnd().split('\n')).toHaveLength(1);
  });

  it('says what a server serves, and that it is none', async () => {
    await modelServer();
    const wrong = await run(['bench', 'serve', '--url', server!.url, '--model', 'x']);
    expect(wrong).toMatchObject({
      code: 2,
      stderr: `error: --model 'x' is not served at ${server!.url}; it serves 'm'.\n`,
    });
    await server!.close();
    server = await fakeStreamServer((_request, _body, response) => response.end('<html>'));
    const page = await run(['bench', 'serve', '--url', server.url]);
    expect(page.code).toBe(2);
    expect(page.stderr).toMatch(/^error: --url: .* has no list of models .*\n$/);
  });

  it('prints the definitions of six tools', async () => {
    const { code, stdout } = await run(['bench', 'definitions']);
    expect(code).toBe(0);
    expect(stdout).toMatch(/^QUANTITY +vLLM +SGLang +AIPerf +GuideLLM +llmperf +MLPerf/);
  });
});

const root = resolve(import.meta.dirname, '../../..');
const worker = join(root, 'dist/bench/load-worker.js');
/** A build from before the last change would be another program. */
const isBuilt =
  existsSync(worker) && statSync(worker).mtimeMs > statSync(join(root, 'src/bench/load-worker.ts')).mtimeMs;

describe.skipIf(!isBuilt)('several processes (after a build)', () => {
  it('share a load and report as one', async () => {
    await modelServer();
    const requests = Array.from({ length: 9 }, (_, index) => ({
      index,
      sendSeconds: index * 0.01,
      sessionId: null,
      body: JSON.stringify({ prompt: [index] }),
      numPromptTokens: 1,
      headers: {},
    }));
    const target = {
      url: `${server!.url}/v1/completions`,
      backend: 'openai',
      headers: {},
      idleSeconds: 60,
      insecure: false,
    } as const;
    const job = { target, requests, maxConcurrency: null, isUnpaced: false, thinkSeconds: 0, startSeconds: now() };
    const signal = new AbortController().signal;
    const { records, startSeconds, lag } = await runLoadInProcesses(job, 3, {
      clock: now,
      signal,
      workerEntry: worker,
    });
    expect(records.map((record) => [record.index, record.outcome])).toEqual(
      requests.map(({ index }) => [index, 'completed']),
    );
    expect(records.map((record) => record.scheduledSeconds)).toEqual(requests.map((r) => startSeconds + r.sendSeconds));
    expect(lag.numSamples).toBeGreaterThanOrEqual(0);
  });
});
