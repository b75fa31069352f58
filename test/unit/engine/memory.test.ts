import { describe, expect, it } from 'vitest';
import type { KvLayout } from '../../../src/device/kv-layout.ts';
import { availableMemory } from '../../../src/engine/available-memory.ts';
import { type MemoryRequest, planMemory } from '../../../src/engine/memory.ts';
import { PagodaError } from '../../../src/errors.ts';

/** Layers of 1,024 bytes per token; a block of 16 tokens is 16 KiB. */
function layout(windows: readonly number[]): KvLayout {
  const blockBytes = 16 * 1024;
  return {
    groups: windows.map((window, i) => ({ window, layers: [i] })),
    layersPerGroup: 1,
    layerPlace: windows.map((_, group) => ({ group, index: 0 })),
    numKvHeads: 1,
    headDim: 256,
    dtype: 'f16',
    blockSize: 16,
    layerBytes: blockBytes,
    blockBytes,
    bytesPerToken: 1024 * windows.length,
  };
}

const base: MemoryRequest = {
  kv: layout([0]),
  contextLength: 2048,
  maxModelLen: null,
  maxNumSeqs: 8,
  maxTokensPerStep: 512,
  availableBytes: 2 ** 30,
  weightBytes: 2 ** 20,
  activationBytes: 2 ** 20,
  memoryUtilization: 0.9,
  kvCacheMemoryBytes: null,
  numGpuBlocksOverride: null,
  kvAllocation: 'paged',
  maxPoolBytes: Number.POSITIVE_INFINITY,
};

function failure(request: MemoryRequest): PagodaError {
  try {
    planMemory(request);
  } catch (error) {
    if (error instanceof PagodaError) return error;
    throw error;
  }
  throw new Error('accepted');
}

describe('planMemory', () => {
  it('the override counts the null block: 129 blocks are 2,048 tokens for one request of 2,048', () => {
    expect(planMemory({ ...base, numGpuBlocksOverride: 129 })).toEqual({
      maxModelLen: 2048,
      numBlocks: 129,
      poolBytes: 129 * 16384,
      kvCacheTokens: 2048,
      maxConcurrency: 1,
    });
  });

  it('never takes more than all slots could use', () => {
    expect(planMemory(base).numBlocks).toBe(8 * 128 + 1);
    expect(planMemory({ ...base, maxModelLen: 160, maxNumSeqs: 2 }).numBlocks).toBe(2 * 10 + 1);
  });

  it('takes the share of what is available, less weights and activations', () => {
    const availableBytes = 10 * 2 ** 20;
    const { numBlocks } = planMemory({ ...base, availableBytes });
    expect(numBlocks).toBe(Math.floor((0.9 * availableBytes - 2 * 2 ** 20) / 16384));
  });

  it('bytes give whole blocks', () => {
    expect(planMemory({ ...base, kvCacheMemoryBytes: 16384 * 140 + 16383 }).numBlocks).toBe(140);
  });

  it('auto is the largest length that fits', () => {
    expect(planMemory({ ...base, maxModelLen: 'auto' }).maxModelLen).toBe(2048);
    // 50 usable blocks: 800 positions, and the last token's KV is never written.
    expect(planMemory({ ...base, maxModelLen: 'auto', numGpuBlocksOverride: 51 })).toMatchObject({
      maxModelLen: 801,
      maxConcurrency: 1,
    });
  });

  it('refuses with the numbers what cannot fit', () => {
    expect(failure({ ...base, numGpuBlocksOverride: 65 })).toMatchObject({
      code: 'out_of_memory',
      message: expect.stringMatching(
        /^To serve at least one request with the model's max seq len \(2048\), \(0\.0020 GiB KV cache is needed, which is larger than the available KV cache memory \(0\.00098 GiB\)\. Based on the available memory, the estimated maximum model length is 1025\. Try increasing `gpu_memory_utilization` or decreasing `max_model_len`/,
      ),
    });
    expect(failure({ ...base, availableBytes: 2 ** 20 }).message).toMatch(
      /^No available memory for the cache blocks\. Try increasing `gpu_memory_utilization`/,
    );
    expect(failure({ ...base, kvCacheMemoryBytes: 2 ** 31 }).message).toMatch(
      /^The KV cache of 2\.00 GiB.*only 1\.00 GiB are available/,
    );
    expect(failure({ ...base, maxModelLen: 8200 })).toMatchObject({
      code: 'bad_config',
      message: expect.stringContaining(
        '(8200) is greater than the derived max_model_len (max_position_embeddings=2048',
      ),
    });
  });

  it('a window holds only what it sees: more requests fit, and the tokens say so', () => {
    const full = planMemory({ ...base, kv: layout([0, 0]), numGpuBlocksOverride: 513 });
    const hybrid = planMemory({ ...base, kv: layout([0, 128]), numGpuBlocksOverride: 513 });
    expect(full).toMatchObject({ maxConcurrency: 2, kvCacheTokens: 4096 });
    // 128 blocks of full attention, and a window of 128 behind a chunk of 512: at most 41 blocks.
    expect(hybrid.maxConcurrency).toBeCloseTo(512 / (128 + 41), 10);
    expect(hybrid.kvCacheTokens).toBe(Math.floor((512 / 169) * 2048));
  });
});

describe('availableMemory', () => {
  const files = (contents: Record<string, string>) => (path: string) => contents[path] ?? null;
  const meminfo = { '/proc/meminfo': 'MemTotal: 9 kB\nMemAvailable:    4096 kB\n' };

  it('is what the system has when there is no limit', () => {
    expect(availableMemory(files(meminfo), () => 1)).toBe(4096 * 1024);
    expect(availableMemory(files({}), () => 77)).toBe(77);
  });

  it('is cut by cgroup v2 limits of the group and of its parents', () => {
    const tree = {
      ...meminfo,
      '/proc/self/cgroup': '0::/a/b\n',
      '/sys/fs/cgroup/a/b/memory.max': 'max\n',
      '/sys/fs/cgroup/a/b/memory.current': '10\n',
      '/sys/fs/cgroup/a/memory.max': '1000000\n',
      '/sys/fs/cgroup/a/memory.current': '600000\n',
      '/sys/fs/cgroup/a/memory.stat': 'anon 1\ninactive_file 50000\n',
    };
    expect(availableMemory(files(tree), () => 1)).toBe(450_000);
  });

  it('is cut by cgroup v1 limits, also when only the mount root shows the own group', () => {
    const tree = {
      ...meminfo,
      '/proc/self/cgroup': '5:cpu,cpuacct:/docker/x\n4:memory:/docker/x\n',
      '/sys/fs/cgroup/memory/memory.limit_in_bytes': '2000000\n',
      '/sys/fs/cgroup/memory/memory.usage_in_bytes': '500000\n',
      '/sys/fs/cgroup/memory/memory.stat': 'total_inactive_file 100\n',
    };
    expect(availableMemory(files(tree), () => 1)).toBe(1_500_100);
    const unlimited = { ...tree, '/sys/fs/cgroup/memory/memory.limit_in_bytes': '9223372036854771712\n' };
    expect(availableMemory(files(unlimited), () => 1)).toBe(4096 * 1024);
  });
});
