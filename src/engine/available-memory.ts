// How much memory this process can really still get: what the system has free, cut by every cgroup (v1 or v2) it lives in.
// Page cache that can be dropped counts as available. Anything unreadable is no limit.

import { readFileSync } from 'node:fs';
import { freemem } from 'node:os';
import { posix } from 'node:path';

/** Contents of a file, or null when it cannot be read. */
export type ReadFile = (path: string) => string | null;

const readFile: ReadFile = (path) => {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return null;
  }
};

/** Bytes. */
export function availableMemory(read: ReadFile = readFile, systemFree: () => number = freemem): number {
  const limits = [systemAvailable(read) ?? systemFree(), ...cgroupRooms(read)];
  return Math.max(0, Math.min(...limits));
}

function systemAvailable(read: ReadFile): number | null {
  const match = /^MemAvailable:\s+(\d+) kB/m.exec(read('/proc/meminfo') ?? '');
  return match ? Number(match[1]) * 1024 : null;
}

function cgroupRooms(read: ReadFile): number[] {
  const rooms: number[] = [];
  for (const line of (read('/proc/self/cgroup') ?? '').split('\n')) {
    const [, controllers = '', path = ''] = line.split(/:([^:]*):/);
    if (path === '') continue;
    if (controllers === '') rooms.push(...roomsUpwards(path, (folder) => roomV2(read, `/sys/fs/cgroup${folder}`)));
    else if (controllers.split(',').includes('memory')) {
      rooms.push(...roomsUpwards(path, (folder) => roomV1(read, `/sys/fs/cgroup/memory${folder}`)));
    }
  }
  return rooms;
}

/** A limit may stand on any ancestor. Inside a container the path may not exist; its own group is then mounted at the root. */
function roomsUpwards(path: string, room: (folder: string) => number | null): number[] {
  const rooms: number[] = [];
  for (let folder = posix.normalize(path); ; folder = posix.dirname(folder)) {
    const bytes = room(folder === '/' ? '' : folder);
    if (bytes !== null) rooms.push(bytes);
    if (folder === '/' || folder === '.') return rooms;
  }
}

function roomV2(read: ReadFile, folder: string): number | null {
  const limit = count(read(`${folder}/memory.max`));
  const used = count(read(`${folder}/memory.current`));
  if (limit === null || used === null) return null;
  return limit - used + (stat(read(`${folder}/memory.stat`), 'inactive_file') ?? 0);
}

function roomV1(read: ReadFile, folder: string): number | null {
  const limit = count(read(`${folder}/memory.limit_in_bytes`));
  const used = count(read(`${folder}/memory.usage_in_bytes`));
  // Without a limit, v1 shows a number near 2^63.
  if (limit === null || used === null || limit > 2 ** 60) return null;
  return limit - used + (stat(read(`${folder}/memory.stat`), 'total_inactive_file') ?? 0);
}

function count(text: string | null): number | null {
  return text !== null && /^\d+\s*$/.test(text) ? Number(text) : null;
}

function stat(text: string | null, key: string): number | null {
  const match = new RegExp(`^${key} (\\d+)$`, 'm').exec(text ?? '');
  return match ? Number(match[1]) : null;
}
