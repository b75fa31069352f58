// The cache of packed weights as the device uses it: the same logits with and without, and every kind of wrong file is noticed,
// named in one line, and made again.

import { spawn } from 'node:child_process';
import {
  copyFileSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeEach, describe, expect, it } from 'vitest';
import { openGguf } from '../../../../src/checkpoint/gguf.ts';
import { cpuIsas, createCpuDevice, isCpuDeviceAvailable } from '../../../../src/device/cpu/cpu-device.ts';
import { hashedRanges, type PackedCacheOptions } from '../../../../src/device/cpu/packed-cache.ts';
import { loadModel } from '../../../../src/model/load-model.ts';

const assets = join(import.meta.dirname, '../../../../assets');
const folder = mkdtempSync(join(tmpdir(), 'pagoda-packed-'));
const model = join(folder, 'model.gguf');
const LIMITS = { maxTokens: 32, maxSeqs: 2, maxModelLen: 64 };
const PROMPT = [5, 17, 99, 4, 23];

interface Start {
  readonly logits: Float32Array;
  readonly lines: string[];
}

/** One start of a device with the cache, to its end. */
async function start(options: Partial<PackedCacheOptions> & { isa?: string; cached?: boolean } = {}): Promise<Start> {
  const lines: string[] = [];
  const checkpoint = openGguf(model);
  const packedCache: PackedCacheOptions = {
    folder: cacheFolder,
    maxBytes: 2 ** 30,
    minBytes: 1,
    graceSeconds: 600,
    onLog: (level, message) => lines.push(`${level}: ${message}`),
    ...options,
  };
  const device = await createCpuDevice(
    loadModel(checkpoint, { maxModelLen: LIMITS.maxModelLen }),
    checkpoint,
    { dtype: 'f16', blockSize: 16 },
    LIMITS,
    {
      numThreads: 2,
      ...(options.isa ? { isa: options.isa } : {}),
      ...(options.cached === false ? {} : { packedCache }),
    },
  );
  checkpoint.close();
  device.allocateKvCache(8);
  const logits = await device.logits(PROMPT);
  const { weightBytes } = device.info;
  await device.dispose();
  expect(weightBytes).toBeGreaterThan(0);
  return { logits, lines };
}

let cacheFolder = '';
const cacheFiles = () => readdirSync(cacheFolder).filter((name) => name.endsWith('.packed'));
const cacheFile = () => join(cacheFolder, cacheFiles()[0]!);

describe.skipIf(!isCpuDeviceAvailable().available)('cache of packed weights', () => {
  beforeEach(() => {
    cacheFolder = join(mkdtempSync(join(folder, 'cache-')), 'made', 'when needed');
    copyFileSync(join(assets, 'pagoda-mini.Q8_0.gguf'), model);
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  it('gives the same bits without, when it is written and when it is read, on every instruction set', async () => {
    for (const isa of cpuIsas()) {
      const without = await start({ isa, cached: false });
      const first = await start({ isa });
      const second = await start({ isa });
      expect(first.logits).toEqual(without.logits);
      expect(second.logits).toEqual(without.logits);
      // amx and avx512 pack alike, so do avx2 and portable: the second of each pair reads at once.
      if (first.lines[0]!.includes('kept')) expect(second.lines.join()).toMatch(/^info: Packed weights read from/);
      expect(second.lines).toHaveLength(1);
    }
    expect(cacheFiles().length).toBeLessThanOrEqual(2);
    expect(readdirSync(cacheFolder).filter((name) => !name.endsWith('.packed'))).toEqual(['lock']);
  });

  async function isMadeAgain(why: RegExp, before: Start): Promise<void> {
    const { logits, lines } = await start();
    expect(logits).toEqual(before.logits);
    expect(lines).toHaveLength(2);
    expect(lines[0]).toMatch(/^info: The packed weights in .* are not used and will be made again: /);
    expect(lines[0]).toMatch(why);
    expect(lines[1]).toContain('kept in');
  }

  it('notices damage, wherever it is, and makes the file again', async () => {
    const before = await start();
    const good = readFileSync(cacheFile());
    // Head, header, content, checksums.
    for (const at of [3, 200, Math.floor(good.length / 2), good.length - 3]) {
      const bytes = Buffer.from(good);
      bytes[at]! ^= 1;
      writeFileSync(cacheFile(), bytes);
      await isMadeAgain(/no file of packed weights|damaged/, before);
    }
    writeFileSync(cacheFile(), good.subarray(0, good.length - 1));
    await isMadeAgain(/bytes where .* are wanted/, before);
    writeFileSync(cacheFile(), '');
    await isMadeAgain(/no file of packed weights/, before);
    const version = Buffer.from(good);
    version.writeUInt32LE(999, 8);
    writeFileSync(cacheFile(), version);
    await isMadeAgain(/version 999/, before);
    expect((await start()).lines.join()).toContain('read from');
  });

  it('notices a checkpoint that has changed, also when size and time are the same', async () => {
    await start();
    const { mtime, atime, size } = statSync(model);
    const bytes = readFileSync(model);
    bytes[bytes.length - 5]! ^= 1;
    writeFileSync(model, bytes);
    utimesSync(model, atime, mtime);
    expect(statSync(model).size).toBe(size);
    const changed = await start({ cached: false });
    await isMadeAgain(/has changed \(content\)/, changed);
    utimesSync(model, atime, new Date(mtime.getTime() + 5000));
    await isMadeAgain(/has changed \(time of modification\)/, changed);
  });

  it('starts all the same where nothing can be written, and warns once', async () => {
    const file = join(folder, 'a file');
    writeFileSync(file, '');
    const without = await start({ cached: false });
    for (const impossible of [join(file, 'cache'), '/proc/pagoda-cache']) {
      const { logits, lines } = await start({ folder: impossible });
      expect(logits).toEqual(without.logits);
      expect(lines).toHaveLength(1);
      expect(lines[0]).toMatch(/^warn: The packed weights cannot be kept in .*--no-packed-cache/);
    }
  });

  it('keeps to its limits: small models, and the size of the folder', async () => {
    expect((await start({ minBytes: 2 ** 30 })).lines).toEqual([]);
    expect((await start({ maxBytes: 1000 })).lines).toEqual([
      expect.stringContaining('larger than --packed-cache-size'),
    ]);
    expect(existsSync(cacheFolder)).toBe(false);
    await start({ isa: 'portable' });
    const { size } = statSync(cacheFile());
    const isas = cpuIsas();
    // Another layout makes another file: together they are too much.
    if (!isas.includes('avx512')) return;
    const before = cacheFiles();
    await start({ isa: 'avx512', maxBytes: size + 1000 });
    expect(cacheFiles()).toHaveLength(1);
    expect(cacheFiles()).not.toEqual(before);
  });

  it('two processes that start at once both serve, and leave one whole file', async () => {
    const source = `
      import { createCpuDevice } from ${JSON.stringify(join(import.meta.dirname, '../../../../dist/device/cpu/cpu-device.js'))};
      import { openGguf } from ${JSON.stringify(join(import.meta.dirname, '../../../../dist/checkpoint/gguf.js'))};
      import { loadModel } from ${JSON.stringify(join(import.meta.dirname, '../../../../dist/model/load-model.js'))};
      const checkpoint = openGguf(${JSON.stringify(model)});
      const device = await createCpuDevice(loadModel(checkpoint, { maxModelLen: 64 }), checkpoint, { dtype: 'f16', blockSize: 16 },
        ${JSON.stringify(LIMITS)}, { numThreads: 2, packedCache: { folder: ${JSON.stringify(cacheFolder)}, maxBytes: 1e9, minBytes: 1, graceSeconds: 600, onLog() {} } });
      device.allocateKvCache(8);
      const logits = await device.logits(${JSON.stringify(PROMPT)});
      await device.dispose();
      process.stdout.write(JSON.stringify(Array.from(logits)));
    `;
    const run = () =>
      new Promise<string>((resolve, reject) => {
        const child = spawn(process.execPath, ['--input-type=module', '-e', source], {
          stdio: ['ignore', 'pipe', 'inherit'],
        });
        let output = '';
        child.stdout.setEncoding('utf8').on('data', (part: string) => {
          output += part;
        });
        child.on('error', reject);
        child.on('close', () => resolve(output));
      });
    const [a, b] = await Promise.all([run(), run()]);
    const { logits, lines } = await start();
    expect(JSON.parse(a)).toEqual(Array.from(logits));
    expect(b).toBe(a);
    expect(lines.join()).toContain('read from');
    expect(readdirSync(cacheFolder).sort()).toEqual([...cacheFiles(), 'lock'].sort());
  });
});

describe('hashed ranges', () => {
  it('are inside the file, cover small files whole, and both ends of large ones', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 2 ** 40 }), (size) => {
        const ranges = hashedRanges(size);
        let total = 0;
        for (const [start, length] of ranges) {
          expect(start).toBeGreaterThanOrEqual(0);
          expect(start + length).toBeLessThanOrEqual(size);
          total += length;
        }
        expect(ranges[0]![0]).toBe(0);
        expect(ranges.at(-1)![0] + ranges.at(-1)![1]).toBe(size);
        if (size <= 16 * 2 ** 20) expect(total).toBe(size);
        else expect(total).toBeLessThan(8 * 2 ** 20);
      }),
    );
  });
});
