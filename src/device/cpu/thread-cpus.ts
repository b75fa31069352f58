// Which CPUs each thread of the device may use. Linux only: elsewhere threads go where the system likes.
//
// `auto` binds when the threads fill the machine: one thread per physical core (its hardware threads together), or one per CPU. With
// fewer threads it does not: several processes would all bind to the same first CPUs while others are idle. Affinity masks and
// cgroup cpusets are honoured, since only the CPUs this process may use are looked at.

import { readFileSync } from 'node:fs';

/** `auto`, `nobind`, or a list of CPUs like `0-3,8`: thread i on the i-th. */
export type ThreadsBind = string;

export const THREADS_BIND_RULE = 'auto, nobind or a list of CPUs like 0-3,8';

/** CPU numbers of `0-3,8`, in this order; null when it is no such list. */
export function parseCpuList(text: string): number[] | null {
  const cpus: number[] = [];
  for (const part of text.split(',')) {
    const match = /^(\d{1,5})(?:-(\d{1,5}))?$/.exec(part.trim());
    if (match === null) return null;
    const first = Number(match[1]);
    const last = match[2] === undefined ? first : Number(match[2]);
    if (last < first) return null;
    for (let cpu = first; cpu <= last; cpu++) cpus.push(cpu);
  }
  return new Set(cpus).size === cpus.length ? cpus : null;
}

export function isThreadsBind(value: unknown): value is ThreadsBind {
  return value === 'auto' || value === 'nobind' || (typeof value === 'string' && parseCpuList(value) !== null);
}

export interface CpuTopology {
  /** CPUs this process may use, ascending. */
  readonly allowed: readonly number[];
  /** The allowed CPUs of each physical core. */
  readonly cores: ReadonlyArray<readonly number[]>;
}

/** Null where the system does not tell. `root` is for tests. */
export function readTopology(root = '/'): CpuTopology | null {
  try {
    const status = readFileSync(`${root}proc/self/status`, 'utf8');
    const allowed = parseCpuList(/^Cpus_allowed_list:\s*(\S+)/m.exec(status)?.[1] ?? '');
    if (allowed === null) return null;
    const cores = new Map<string, number[]>();
    for (const cpu of allowed) {
      const siblings = readFileSync(
        `${root}sys/devices/system/cpu/cpu${cpu}/topology/thread_siblings_list`,
        'utf8',
      ).trim();
      const core = cores.get(siblings);
      if (core === undefined) cores.set(siblings, [cpu]);
      else core.push(cpu);
    }
    return { allowed, cores: [...cores.values()] };
  } catch {
    return null;
  }
}

/** One list of CPUs per thread, or null = not bound. Throws an Error that says what is possible. */
export function threadCpus(
  bind: ThreadsBind,
  numThreads: number,
  topology: CpuTopology | null,
): ReadonlyArray<readonly number[]> | null {
  if (bind === 'nobind') return null;
  if (bind === 'auto') {
    if (topology === null || numThreads === 1) return null;
    if (numThreads === topology.cores.length) return topology.cores;
    return numThreads === topology.allowed.length ? topology.allowed.map((cpu) => [cpu]) : null;
  }
  const cpus = parseCpuList(bind);
  if (cpus === null) throw new Error(`must be ${THREADS_BIND_RULE}, got '${bind}'`);
  if (topology === null) throw new Error('a list of CPUs needs Linux: this system does not bind threads to CPUs');
  const forbidden = cpus.filter((cpu) => !topology.allowed.includes(cpu));
  if (forbidden.length > 0) {
    throw new Error(
      `names CPUs that this process may not use (${forbidden}); it may use ${topology.allowed.join(',')}`,
    );
  }
  if (cpus.length < numThreads) throw new Error(`names ${cpus.length} CPUs for ${numThreads} threads`);
  return cpus.slice(0, numThreads).map((cpu) => [cpu]);
}

/** Threads when nobody says how many: one per CPU of a list, else null. */
export function threadsOfBind(bind: ThreadsBind): number | null {
  return parseCpuList(bind)?.length ?? null;
}
