import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    // No test is about time: these only end a hang, also on a machine that many share.
    testTimeout: 900_000,
    hookTimeout: 900_000,
    pool: 'forks',
    // Files of one worker share its modules, which are most of a file's start. Tests leave no global state behind.
    isolate: false,
    // Tests never write into the user's own cache.
    env: { PAGODA_CACHE_DIR: join(tmpdir(), 'pagoda-test-cache') },
    maxWorkers: 2,
    reporters: ['default', './test/summary-reporter.ts'],
  },
});
