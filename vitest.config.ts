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
    maxWorkers: 2,
    reporters: ['default', './test/summary-reporter.ts'],
  },
});
