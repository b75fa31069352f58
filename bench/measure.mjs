// One measurement of one engine: a process of its own that takes a job, or a server and a burst of requests.
import { spawn } from 'node:child_process';
import { burst, complete } from './http-client.mjs';
import { startServer } from './server-process.mjs';
import { median } from './statistics.mjs';

const PROCESS_SECONDS = 1800;

/** -> {rates} in tokens/s, one per window; for bursts one rate, output tokens/s, with seconds, ttft, tpot and clientCpuSeconds. */
export async function measure(engine, { model, threads, settings, job }) {
  const result =
    job.kind === 'http' && engine.server
      ? await overHttp(engine, { model, threads, settings, job })
      : await inProcess(engine, { model, threads, settings, job });
  if (job.kind === 'http') return { ...result, rates: [(job.prompts.length * job.outputTokens) / result.seconds] };
  if (!Array.isArray(result.rates) || result.rates.length === 0 || !result.rates.every((rate) => rate > 0))
    throw new Error(`no rates in ${JSON.stringify(result).slice(0, 200)}`);
  return result;
}

export const rateOf = (result) => median(result.rates);

function inProcess(engine, input) {
  const [program, ...args] = engine.command(input);
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, { stdio: ['pipe', 'pipe', 'pipe'], timeout: PROCESS_SECONDS * 1000 });
    let out = '';
    let log = '';
    child.stdout.on('data', (chunk) => {
      out += chunk;
    });
    child.stderr.on('data', (chunk) => {
      log = (log + chunk).slice(-4000);
    });
    child.stdin.on('error', () => {}); // the exit says why it no longer listens
    child.once('error', reject);
    child.once('close', (code, signal) => {
      const line = out.trim().split('\n').at(-1);
      if (code === 0 && line.startsWith('{')) resolve(JSON.parse(line));
      else reject(new Error(`it ended (${signal ?? code}): ${log.trim().split('\n').slice(-3).join(' | ')}`));
    });
    child.stdin.end((engine.encode ?? JSON.stringify)(input));
  });
}

async function overHttp(engine, { model, threads, settings, job }) {
  const contextTokens = Math.max(...job.prompts.map((prompt) => prompt.length)) + job.outputTokens + 64;
  const numSeqs = job.prompts.length;
  const server = await startServer((port) => engine.server({ model, threads, port, settings, numSeqs, contextTokens }));
  try {
    await complete(server.port, job.warmup, 4);
    return await burst(server.port, job.prompts, job.outputTokens);
  } finally {
    await server.end();
  }
}
