#!/usr/bin/env node
// The command line entry point. It only finds the compiled program and says how to build it when it is missing.
import { existsSync } from 'node:fs';

const compiled = new URL('../dist/cli/cli.js', import.meta.url);
if (!existsSync(compiled)) {
  process.stderr.write('pagoda is not built yet: run `npm run build` in the repository first.\n');
  process.exit(2);
}
await import(compiled.href);
