import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { CliIo } from '../../../src/cli/cli-io.ts';
import { runCli } from '../../../src/cli/run-cli.ts';
import { HEALTHY, KV_BOUND, PREFILL_BOUND, SLOT_BOUND } from './s08-logs.ts';

let onInterrupt: (() => void) | null = null;

async function run(argv: string[], onOutput: (text: string) => void = () => undefined) {
  let stdout = '';
  let stderr = '';
  const io: CliIo = {
    argv,
    env: {},
    stdin: Object.assign((async function* (): AsyncGenerator<string> {})(), { isTTY: true }),
    stdout: {
      write: (text) => {
        stdout += text;
        onOutput(stdout);
      },
    },
    stderr: { write: (text) => (stderr += text) },
    onInterrupt: (listener) => {
      onInterrupt = () => listener('SIGINT');
      return () => undefined;
    },
  };
  return { code: await runCli(io), stdout, stderr };
}

let folder = '';
let close: (() => void) | null = null;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'doctor-'));
});
afterEach(() => {
  rmSync(folder, { recursive: true });
  close?.();
  close = null;
});

function file(name: string, text: string): string {
  const path = join(folder, name);
  writeFileSync(path, text);
  return path;
}

async function serve(handler: (request: http.IncomingMessage, response: http.ServerResponse) => void): Promise<string> {
  const server = http.createServer(handler);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  close = () => {
    server.close();
    server.closeAllConnections();
  };
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

describe('doctor', () => {
  it('one log after the other, as JSON', async () => {
    const paths = Object.entries({ KV_BOUND, PREFILL_BOUND, SLOT_BOUND, HEALTHY }).map(([name, text]) =>
      file(name, text),
    );
    const { code, stdout } = await run(['doctor', '--log', ...paths, '--json']);
    expect(code).toBe(1);
    const all = JSON.parse(stdout) as Array<{ source: string; healthy: boolean; findings: Array<{ rule: string }> }>;
    expect(all.map((each) => each.findings.map((finding) => finding.rule))).toEqual([['R1', 'R2'], ['R4'], ['R3'], []]);
    expect(all.map((each) => each.source)).toEqual(paths);
    expect(all.map((each) => each.healthy)).toEqual([false, false, false, true]);
  });

  it('nothing found: code 0, said plainly', async () => {
    const { code, stdout, stderr } = await run(['doctor', '--log', file('a.log', HEALTHY)]);
    expect([code, stderr]).toEqual([0, '']);
    expect(stdout).toContain('Nothing found: no rule holds.');
  });

  it('flags of the start count: known slots are no guess', async () => {
    const log = file('a.log', SLOT_BOUND);
    // With 64 slots, 32 running ones are not limited by them.
    const { stdout } = await run(['doctor', '--log', log, '--max-num-seqs', '64', '--json']);
    const { findings } = JSON.parse(stdout) as { findings: Array<{ rule: string }> };
    expect(findings.map((finding) => finding.rule)).not.toContain('R3');
  });

  it('predicts the effect by simulating what was observed', async () => {
    const lengths = (name: string, mean: number, n: number) =>
      `vllm:${name}_bucket{le="${2 * mean}"} ${n}\nvllm:${name}_bucket{le="+Inf"} ${n}\nvllm:${name}_sum ${mean * n}\nvllm:${name}_count ${n}\n`;
    const pages = [1, 2, 3, 4].map((n) =>
      file(
        `${n}.txt`,
        'vllm:num_requests_running 8\nvllm:num_requests_waiting 12\nvllm:kv_cache_usage_perc 0.05\n' +
          lengths('request_prompt_tokens', 200, 10 * n) +
          lengths('request_generation_tokens', 40, 10 * n),
      ),
    );
    const argv = ['doctor', 'llama-7b', '--gpu', 'a100-80gb', '--max-num-seqs', '8', '--metrics', ...pages];
    const { code, stdout, stderr } = await run([...argv, '--json']);
    expect([code, stderr]).toEqual([1, '']);
    type Effect = { ttft_p99_seconds: number };
    const { findings } = JSON.parse(stdout) as {
      findings: Array<{
        rule: string;
        changes: Array<{ flag: string; predicted: { before: Effect; after: Effect } | null }>;
      }>;
    };
    expect(findings[0]).toMatchObject({ rule: 'R3' });
    const { predicted } = findings[0]!.changes[0]!;
    expect(predicted!.after.ttft_p99_seconds).toBeLessThan(predicted!.before.ttft_p99_seconds);
  });

  it('reads a server over a window, and watches it until it is told to stop', async () => {
    let numReads = 0;
    const url = await serve((request, response) => {
      expect(request.url).toBe('/metrics');
      numReads++;
      response.end('vllm:num_requests_running 32\nvllm:num_requests_waiting 40\nvllm:kv_cache_usage_perc 0.2\n');
    });
    const short = ['--url', `${url}/v1`, '--window', '40ms', '--interval', '10ms'];
    const once = await run(['doctor', ...short]);
    expect(once.code).toBe(1);
    expect(once.stdout).toContain('R3 All slots are taken');
    expect(numReads).toBe(5);
    const watched = await run(['doctor', ...short, '--watch'], (text) => {
      if (text.includes('still R3')) onInterrupt?.();
    });
    expect(watched.code).toBe(1);
    expect(watched.stdout.match(/R3 All slots/g)).toHaveLength(1);
  });

  it.each<[string[], string]>([
    [[], 'A source is missing: --url'],
    [['--url', 'http://127.0.0.1:1'], '--url: no server answers at http://127.0.0.1:1/metrics. Nothing listens there'],
    [['--url', 'ftp://x'], '--url must be an address like'],
    [['--log', '/nonexistent.log'], '--log /nonexistent.log cannot be read: there is no such file.'],
    [['--result', import.meta.filename], 'is neither a result of bench serve'],
    [['--metrics', import.meta.filename], 'has no vllm:, sglang: or pagoda: metrics'],
    [['--log', import.meta.filename], 'so it is no log of vLLM or Pagoda'],
    [['--watch', '--log', 'x'], '--watch needs --url'],
    [
      ['--url', 'http://127.0.0.1:1', '--window', 'soon'],
      "--window must be a time above 0 like 1.5s or 50ms, got 'soon'.",
    ],
  ])('bad input %j: one line, code 2', async (argv, message) => {
    const { code, stdout, stderr } = await run(['doctor', ...argv]);
    expect([code, stdout]).toEqual([2, '']);
    expect(stderr).toContain(message);
    expect(stderr.trimEnd().split('\n')).toHaveLength(1);
  });

  it('a server of something else', async () => {
    const url = await serve((_request, response) => {
      response.writeHead(404);
      response.end();
    });
    const { code, stderr } = await run(['doctor', '--url', url]);
    expect(code).toBe(2);
    expect(stderr).toMatch(/^error: --url: .*\/metrics answers HTTP 404: this is no vLLM-class server.*\n$/);
  });
});
