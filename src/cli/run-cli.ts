// Dispatches to the commands. Each is loaded when it is called, so that `--help` is quick. Every failure is one clear line on
// stderr and an exit code: 0 done, 1 failed while running, 2 wrong usage, configuration or model.

import { readFileSync } from 'node:fs';
import { Command, CommanderError } from 'commander';
import { type ErrorCode, PagodaError } from '../errors.ts';
import { addBenchCommand } from './bench-flags.ts';
import { addCalibrateCommand } from './calibrate-flags.ts';
import { CliExit, type CliIo } from './cli-io.ts';
import { addCompleteCommand } from './complete-flags.ts';
import { addDoctorCommand } from './doctor-flags.ts';
import { addInspectCommand } from './inspect-flags.ts';
import { addListCommand } from './list-flags.ts';
import { addPlanCommand } from './plan-flags.ts';
import { addServeCommand } from './serve-flags.ts';
import { addSimulateCommand } from './simulate-flags.ts';

/** What the user can put right by changing the command line, the configuration or the model. */
const USAGE_CODES: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  'bad_config',
  'bad_model_file',
  'bad_request',
  'context_length_exceeded',
  'not_found',
  'out_of_memory',
  'unsupported',
]);

/** Runs one command; returns the exit code. Never throws. */
export async function runCli(io: CliIo): Promise<number> {
  try {
    await buildProgram(io).parseAsync(normalizeFlags(io.argv), { from: 'user' });
    return 0;
  } catch (error) {
    return exitCode(error, io);
  }
}

function buildProgram(io: CliIo): Command {
  const program = new Command('pagoda')
    .description('Serve and run language models on Node.js')
    .version(packageVersion(), '-V, --version', 'print the version')
    .exitOverride()
    .configureOutput({
      writeOut: (text) => io.stdout.write(text),
      writeErr: (text) => io.stderr.write(text),
      // One line, "(Did you mean …?)" included, that says where to look.
      outputError: (text, write) => write(`${oneLine(text)} (--help lists what there is)\n`),
    })
    .showHelpAfterError(false);
  addServeCommand(program, io);
  addCompleteCommand(program, io);
  addInspectCommand(program, io);
  addListCommand(program, io);
  addBenchCommand(program, io);
  addDoctorCommand(program, io);
  addCalibrateCommand(program, io);
  addPlanCommand(program, io);
  addSimulateCommand(program, io);
  return program;
}

/** vLLM's habit: --max_model_len is --max-model-len. Values keep their underscores. */
export function normalizeFlags(argv: readonly string[]): string[] {
  const end = argv.indexOf('--');
  return argv.map((arg, index) => {
    if (!arg.startsWith('--') || (end !== -1 && index >= end)) return arg;
    const [name = '', ...value] = arg.split('=');
    return [name.replaceAll('_', '-'), ...value].join('=');
  });
}

function exitCode(error: unknown, io: CliIo): number {
  if (error instanceof CliExit) return error.code;
  // Commander has written its own line already.
  if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2;
  const debug = io.env.PAGODA_DEBUG === '1';
  if (error instanceof PagodaError) {
    io.stderr.write(`error: ${oneLine(error.message)}\n`);
    if (debug) io.stderr.write(`${error.stack}\n`);
    return USAGE_CODES.has(error.code) ? 2 : 1;
  }
  const message = error instanceof Error ? error.message : String(error);
  io.stderr.write(`error: unexpected failure: ${oneLine(message)} (PAGODA_DEBUG=1 shows where)\n`);
  if (debug && error instanceof Error) io.stderr.write(`${error.stack}\n`);
  return 1;
}

function oneLine(text: string): string {
  return text.replace(/\s*\n\s*/g, ' ').trim();
}

export function packageVersion(): string {
  // The same depth in src/ and dist/.
  const text = readFileSync(new URL('../../package.json', import.meta.url), 'utf8');
  return (JSON.parse(text) as { version: string }).version;
}
