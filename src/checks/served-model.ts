// A `pagoda serve` in processes of its own, as a user starts it, for checks that look at it from outside: its address, its metrics,
// the CPU time of its threads and its memory (these two from /proc, on Linux).

import type { ChildProcess } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { exitOf, startPagoda } from './pagoda-command.ts';

/** Seconds of CPU since the start of the process. */
export interface CpuSeconds {
  /** The front: HTTP, templates, tokenizer. */
  readonly front: number;
  /** The engine process without the threads that compute. */
  readonly engine: number;
  /** The device's threads. */
  readonly device: number;
}

export class ServedModel {
  readonly url: string;
  /** Rejects when the server ends before `close`. */
  readonly ended: Promise<never>;
  readonly #child: ChildProcess;
  readonly #exited: Promise<number | null>;

  private constructor(child: ChildProcess, exited: Promise<number | null>, ended: Promise<never>, url: string) {
    this.#child = child;
    this.#exited = exited;
    this.ended = ended;
    this.url = url;
  }

  static async start(model: string, flags: readonly string[]): Promise<ServedModel> {
    const child = startPagoda(['serve', model, '--port', '0', '--no-packed-cache', ...flags]);
    const exited = exitOf(child);
    const ended = exited.then((code) => {
      throw new Error(`pagoda serve ended with exit code ${code} before the check was done`);
    });
    // After close() it ends as it should.
    ended.catch(() => undefined);
    return new ServedModel(child, exited, ended, await Promise.race([addressOf(child), ended]));
  }

  cpuSeconds(): CpuSeconds {
    const engine = threadSeconds(this.#enginePid());
    return {
      front: threadSeconds(this.#child.pid!).other,
      engine: engine.other,
      device: engine.device,
    };
  }

  /** Resident bytes of the engine process: now and at most so far. */
  engineMemory(): { readonly resident: number; readonly peak: number } {
    const status = readFileSync(`/proc/${this.#enginePid()}/status`, 'utf8');
    const bytes = (name: string) =>
      Number(new RegExp(`^${name}:\\s+(\\d+) kB`, 'm').exec(status)?.[1] ?? Number.NaN) * 1024;
    return { resident: bytes('VmRSS'), peak: bytes('VmHWM') };
  }

  /** Sums of a counter or histogram by one of its labels ('' without). */
  async metric(name: string, label: string | null = null): Promise<Map<string, number>> {
    const text = await (await fetch(`${this.url}/metrics`)).text();
    const values = new Map<string, number>();
    for (const line of text.split('\n')) {
      const match = new RegExp(`^${name}\\{(.*)\\} (\\S+)$`).exec(line);
      if (match === null) continue;
      const key = label === null ? '' : (new RegExp(`${label}="([^"]*)"`).exec(match[1]!)?.[1] ?? '');
      values.set(key, (values.get(key) ?? 0) + Number(match[2]));
    }
    return values;
  }

  async close(): Promise<void> {
    this.#child.kill('SIGTERM');
    await this.#exited;
  }

  /** The last child of the front. */
  #enginePid(): number {
    const { pid } = this.#child;
    return Number(readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(' ').at(-1));
  }
}

/** From the line that a server prints when it is ready. */
async function addressOf(server: ChildProcess): Promise<string> {
  for await (const line of createInterface({ input: server.stdout! })) {
    const url = / on (http:\S+)\. Try/.exec(line)?.[1];
    if (url !== undefined) return url;
  }
  throw new Error('pagoda serve ended before it printed its address');
}

/** The first number of schedstat is the time on a CPU in nanoseconds. */
function threadSeconds(pid: number): { device: number; other: number } {
  const seconds = { device: 0, other: 0 };
  for (const thread of readdirSync(`/proc/${pid}/task`)) {
    const folder = `/proc/${pid}/task/${thread}`;
    try {
      const isDevice = readFileSync(`${folder}/comm`, 'utf8').startsWith('pagoda-');
      seconds[isDevice ? 'device' : 'other'] += Number(readFileSync(`${folder}/schedstat`, 'utf8').split(' ')[0]) / 1e9;
    } catch {
      // A thread that has just ended.
    }
  }
  return seconds;
}
