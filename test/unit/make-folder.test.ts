import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { makeFolder } from '../../src/make-folder.ts';

const folder = mkdtempSync(join(tmpdir(), 'pagoda-folder-'));
afterAll(() => rmSync(folder, { recursive: true }));

describe('makeFolder', () => {
  it('makes what is missing, and is content with what is there', () => {
    const path = join(folder, 'a', 'b', 'c');
    makeFolder(path);
    makeFolder(path);
    expect(existsSync(path)).toBe(true);
  });

  it('throws below a file', () => {
    const file = join(folder, 'file');
    writeFileSync(file, '');
    expect(() => makeFolder(join(file, 'a', 'b'))).toThrow(/ENOTDIR/);
  });

  it.runIf(process.platform === 'linux')(
    'throws where the system makes no folders, which Node alone never does',
    () => {
      expect(() => makeFolder('/proc/pagoda/cache')).toThrow(/ENOENT/);
    },
  );
});
