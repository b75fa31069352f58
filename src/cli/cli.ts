// The entry of the `pagoda` command: gives the process's arguments, environment and streams to runCli.

import { runCli } from './run-cli.ts';

// A reader that goes away early (`pagoda list | head`) ends the command quietly.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code === 'EPIPE') process.exit(0);
});

const code = await runCli({
  argv: process.argv.slice(2),
  env: process.env,
  stdin: process.stdin,
  stdout: process.stdout,
  stderr: process.stderr,
  onInterrupt: (listener) => {
    process.on('SIGINT', listener);
    process.on('SIGTERM', listener);
    return () => {
      process.off('SIGINT', listener);
      process.off('SIGTERM', listener);
    };
  },
});
process.exitCode = code;
// Whatever is still open (a connection, after a second Ctrl-C) must not keep the process; what was written still leaves.
setTimeout(() => process.exit(code), 1000).unref();
