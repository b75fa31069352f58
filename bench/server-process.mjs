// Starts an engine's server, waits until it answers, and ends it.
import { spawn } from 'node:child_process';
import { createServer } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

const READY_SECONDS = 600;
const END_SECONDS = 20;

export function freePort() {
  return new Promise((resolve, reject) => {
    const probe = createServer();
    probe.once('error', reject);
    probe.listen(0, '127.0.0.1', () => {
      const { port } = probe.address();
      probe.close(() => resolve(port));
    });
  });
}

/** `commandFor(port)` -> [program, ...args]. Resolves when GET /health says 200; `end` resolves when the process is gone. */
export async function startServer(commandFor) {
  const port = await freePort();
  const [program, ...args] = commandFor(port);
  const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  let log = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (chunk) => {
      log = (log + chunk).slice(-4000);
    });
  let ended = null;
  const gone = new Promise((resolve) => {
    child.once('error', (error) => resolve((ended = error.message)));
    child.once('exit', (code, signal) => resolve((ended = `it ended (${signal ?? code})`)));
  });
  const end = async () => {
    if (ended !== null) return;
    child.kill('SIGTERM');
    if ((await Promise.race([gone, sleep(END_SECONDS * 1000, null, { ref: false })])) === null) {
      child.kill('SIGKILL');
      await gone;
    }
  };
  const deadline = Date.now() + READY_SECONDS * 1000;
  while (ended === null && Date.now() < deadline) {
    const ok = await fetch(`http://127.0.0.1:${port}/health`).then(
      (reply) => reply.ok,
      () => false,
    );
    if (ok) return { port, pid: child.pid, end };
    await sleep(200);
  }
  const why = ended ?? `no answer within ${READY_SECONDS} s`;
  await end();
  throw new Error(`${why}: ${log.trim().split('\n').slice(-3).join(' | ')}`);
}
