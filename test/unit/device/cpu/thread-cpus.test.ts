// Where threads go: only on CPUs the process may use, never two on one, and refusals that say what is possible.

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import {
  type CpuTopology,
  isThreadsBind,
  parseCpuList,
  readTopology,
  threadCpus,
  threadsOfBind,
} from '../../../../src/device/cpu/thread-cpus.ts';

const folder = mkdtempSync(join(tmpdir(), 'pagoda-cpus-'));
afterAll(() => rmSync(folder, { recursive: true }));

/** A machine with hardware threads i and i + 4 on core i, of which this process may use some. */
function machine(allowed: string): string {
  const root = `${mkdtempSync(join(folder, 'machine-'))}/`;
  mkdirSync(`${root}proc/self`, { recursive: true });
  writeFileSync(`${root}proc/self/status`, `Name:\tnode\nCpus_allowed:\tff\nCpus_allowed_list:\t${allowed}\n`);
  for (let cpu = 0; cpu < 8; cpu++) {
    const folder = `${root}sys/devices/system/cpu/cpu${cpu}/topology`;
    mkdirSync(folder, { recursive: true });
    writeFileSync(`${folder}/thread_siblings_list`, `${cpu % 4},${(cpu % 4) + 4}\n`);
  }
  return root;
}

describe('threads on CPUs', () => {
  it('reads lists of CPUs', () => {
    expect(parseCpuList('0-3,8')).toEqual([0, 1, 2, 3, 8]);
    expect(parseCpuList('5')).toEqual([5]);
    for (const wrong of ['', 'a', '3-1', '1,1', '0-2,2', '-1', '1,', '0-999999'])
      expect(parseCpuList(wrong)).toBeNull();
    expect(['auto', 'nobind', '0,2', 'all', 3, ''].map(isThreadsBind)).toEqual([true, true, true, false, false, false]);
    expect(threadsOfBind('0-3,8')).toBe(5);
    expect(threadsOfBind('auto')).toBeNull();
  });

  it('honours the affinity mask', () => {
    expect(readTopology(machine('0-7'))).toEqual({
      allowed: [0, 1, 2, 3, 4, 5, 6, 7],
      cores: [
        [0, 4],
        [1, 5],
        [2, 6],
        [3, 7],
      ],
    });
    expect(readTopology(machine('1,3-5'))).toEqual({ allowed: [1, 3, 4, 5], cores: [[1, 5], [3], [4]] });
    expect(readTopology(`${tmpdir()}/nothing-here/`)).toBeNull();
  });

  it('binds when the threads fill the machine, and only then', () => {
    const topology = readTopology(machine('0-7'))!;
    expect(threadCpus('auto', 4, topology)).toEqual(topology.cores);
    expect(threadCpus('auto', 8, topology)).toEqual(topology.allowed.map((cpu) => [cpu]));
    for (const numThreads of [1, 2, 3, 5, 7, 9, 100]) expect(threadCpus('auto', numThreads, topology)).toBeNull();
    expect(threadCpus('nobind', 4, topology)).toBeNull();
    expect(threadCpus('auto', 4, null)).toBeNull();
  });

  it('takes a list as it is, and refuses what cannot be', () => {
    const topology = readTopology(machine('1,3-5'))!;
    expect(threadCpus('5,1', 2, topology)).toEqual([[5], [1]]);
    expect(threadCpus('5,1,3', 2, topology)).toEqual([[5], [1]]);
    expect(() => threadCpus('0-3', 2, topology)).toThrow(/\(0,2\); it may use 1,3,4,5/);
    expect(() => threadCpus('1', 2, topology)).toThrow('names 1 CPUs for 2 threads');
    expect(() => threadCpus('1', 1, null)).toThrow('Linux');
  });

  it('never gives one CPU to two threads, nor one that is not allowed', () => {
    fc.assert(
      fc.property(fc.uniqueArray(fc.nat(63), { minLength: 1 }), fc.integer({ min: 1, max: 70 }), (cpus, numThreads) => {
        const allowed = cpus.sort((a, b) => a - b);
        const cores = new Map<number, number[]>();
        for (const cpu of allowed) cores.set(cpu % 7, [...(cores.get(cpu % 7) ?? []), cpu]);
        const topology: CpuTopology = { allowed, cores: [...cores.values()] };
        const lists = threadCpus('auto', numThreads, topology);
        if (lists === null) return;
        expect(lists).toHaveLength(numThreads);
        expect(lists.flat().sort((a, b) => a - b)).toEqual(allowed);
        expect(lists.every((list) => list.length > 0)).toBe(true);
      }),
    );
  });
});
