// Pagoda beside llama.cpp (node-llama-cpp) on this machine, interleaved in one run: same file, same threads, same workloads.
// Usage: npm ci --ignore-scripts --omit=optional && node peers.mjs [--model FILE] [--rounds N] [--threads N] [--json]
// Gates: decode of 32 sequences and prefill of 512 tokens reach at least half of llama.cpp's median.
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { availableParallelism, cpus } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';

const here = import.meta.dirname;
const shared = process.env.PAGODA_SHARED ?? join(here, '../../shared');
const { values } = parseArgs({
  options: {
    model: { type: 'string', default: join(shared, 'models/smollm2-135m-instruct/SmolLM2-135M-Instruct.Q4_1.gguf') },
    rounds: { type: 'string', default: '5' },
    threads: { type: 'string', default: String(availableParallelism()) },
    json: { type: 'boolean', default: false },
  },
});
if (!existsSync(values.model)) {
  process.stderr.write(`No model at ${values.model}: name a GGUF file with --model.\n`);
  process.exit(2);
}

const engines = { pagoda: 'peer-pagoda.mjs', 'llama.cpp': 'peer-llama.mjs' };
const gated = ['prefill:512', 'decode:32:128:48'];
const workloads = [...gated, 'decode:8:128:48', 'decode:1:128:48'];
const median = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];
const rates = new Map();

for (let round = 0; round < Number(values.rounds); round++) {
  for (const workload of workloads) {
    for (const [engine, script] of Object.entries(engines)) {
      const out = execFileSync(process.execPath, [join(here, script), values.model, values.threads, workload], {
        encoding: 'utf8',
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      const { tokensPerSecond } = JSON.parse(out.trim().split('\n').at(-1));
      const key = `${engine} ${workload}`;
      rates.set(key, [...(rates.get(key) ?? []), tokensPerSecond]);
      if (!values.json)
        process.stdout.write(
          `round ${round + 1} ${engine.padEnd(10)} ${workload.padEnd(18)} ${tokensPerSecond.toFixed(1)} tokens/s\n`,
        );
    }
  }
}

const gates = [];
if (!values.json)
  process.stdout.write(
    `\n${cpus()[0].model}, ${values.threads} threads, ${values.rounds} rounds, ${values.model.split('/').at(-1)}\n`,
  );
for (const workload of workloads) {
  const ours = median(rates.get(`pagoda ${workload}`));
  const theirs = median(rates.get(`llama.cpp ${workload}`));
  const ratio = ours / theirs;
  if (gated.includes(workload))
    gates.push({
      name: `${workload} against llama.cpp`,
      value: Number(ratio.toFixed(3)),
      bound: '>= 0.5',
      ok: ratio >= 0.5,
    });
  if (!values.json)
    process.stdout.write(
      `${workload.padEnd(18)} pagoda ${ours.toFixed(1)}  llama.cpp ${theirs.toFixed(1)}  ratio ${ratio.toFixed(2)} (medians)\n`,
    );
}
if (values.json) process.stdout.write(`${JSON.stringify({ gates, rates: Object.fromEntries(rates) })}\n`);
const failed = gates.filter((gate) => !gate.ok).length;
process.stdout.write(`${gates.length - failed} passed, ${failed} failed\n`);
process.exitCode = failed > 0 ? 1 : 0;
