// npm run test:memory: the engine process of `pagoda serve` keeps to weights + KV pool + 120 MB, at its peak and after a load that fills
// the pool, and 200 warm steps leave the native heap as large as it was. That such steps allocate nothing at all is counted in
// native/test/runtime_test.cc (`npm run test:native`); here nothing may pile up. Linux only. Flags: --model, --json.

import { parseArgs } from 'node:util';
import { heapBytes } from '../device/cpu/cpu-device.ts';
import { EngineRun } from './engine-runs.ts';
import { Gates } from './gates.ts';
import { ServedModel } from './served-model.ts';
import { defaultModel } from './shared-data.ts';

const MAX_OTHER_BYTES = 120e6;
/** What V8 may take from the same heap meanwhile (it compiles, and its arrays live there). */
const MAX_GROWTH_BYTES = 1e6;
const NUM_STEPS = 200;
const NUM_STREAMS = 8;
/** So few that the load below fills every block: memory that nobody touched would not be resident. */
const NUM_BLOCKS = 8 * 40 + 1;

const gates = new Gates();

function modelFlag(): string {
  try {
    const { values } = parseArgs({
      options: {
        model: { type: 'string', default: defaultModel() },
        json: { type: 'boolean' },
      },
    });
    return values.model;
  } catch (error) {
    process.stderr.write(`${(error as Error).message}\n`);
    process.exit(2);
  }
}

const prompt = (salt: number) => Array.from({ length: 400 }, (_, i) => 100 + ((i * 131 + salt * 977) % 1000));

async function checkResident(model: string): Promise<void> {
  const flags = ['--num-gpu-blocks-override', String(NUM_BLOCKS), '--max-model-len', '640', '--max-num-seqs', '8'];
  const server = await ServedModel.start(model, [...flags, '--served-model-name', 'model', '--disable-log-stats']);
  try {
    const bytes = await engineBytes(model);
    await Promise.all(
      Array.from({ length: NUM_STREAMS }, async (_, i) => {
        const body = { model: 'model', prompt: prompt(i), max_tokens: NUM_STEPS, ignore_eos: true, temperature: 0 };
        const reply = await fetch(`${server.url}/v1/completions`, {
          method: 'POST',
          headers: { 'content-type': 'application/json' },
          body: JSON.stringify(body),
        });
        if (!reply.ok) throw new Error(`a request failed: ${await reply.text()}`);
        await reply.text();
      }),
    );
    const { resident, peak } = server.engineMemory();
    gates.note(
      `weights ${mb(bytes.weights)}, KV pool ${mb(bytes.pool)}; resident ${mb(resident)}, at most ${mb(peak)}`,
    );
    const known = bytes.weights + bytes.pool;
    gates.atMost('resident bytes of the engine process beyond weights and KV pool', resident - known, MAX_OTHER_BYTES);
    gates.atMost('the same at its peak, loading included', peak - known, MAX_OTHER_BYTES);
  } finally {
    await server.close();
  }
}

/** From an engine with the same options in this process: the API does not tell. */
async function engineBytes(model: string): Promise<{ weights: number; pool: number }> {
  const run = await EngineRun.start({ model, numGpuBlocksOverride: NUM_BLOCKS, maxModelLen: 640, maxNumSeqs: 8 });
  const { weightBytes, kvPoolBytes } = run.info;
  await checkHeap(run);
  await run.close();
  return { weights: weightBytes, pool: kvPoolBytes };
}

async function checkHeap(run: EngineRun): Promise<void> {
  if (heapBytes() < 0) {
    gates.note('the C library does not tell the size of its heap');
    return;
  }
  const requests = Array.from({ length: NUM_STREAMS }, (_, i) => ({
    promptTokenIds: prompt(i),
    sampling: { temperature: 0.8, topK: 40, topP: 0.9, seed: BigInt(i), maxTokens: NUM_STEPS, ignoreEos: true },
  }));
  await run.together(requests);
  await run.together(requests);
  const before = heapBytes();
  await run.together(requests);
  const growth = heapBytes() - before;
  gates.note(`native heap ${mb(before)} after 400 warm steps, ${growth} bytes more after ${NUM_STEPS} further ones`);
  gates.atMost(`bytes that ${NUM_STEPS} warm steps add to the native heap`, growth, MAX_GROWTH_BYTES);
}

const mb = (bytes: number) => `${(bytes / 1e6).toFixed(1)} MB`;

try {
  await checkResident(modelFlag());
} catch (error) {
  gates.check('every part ran', (error as Error).message, 'no error', false);
}
gates.finish();
