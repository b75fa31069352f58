// The flags of the bench commands: --help prints the usage; a flag that is unknown or has a bad value is one line and exit code 2.
import { parseArgs } from 'node:util';

export function usageError(message) {
  process.stderr.write(`${message}\n`);
  process.exit(2);
}

/** `options`: parseArgs's, without help. `usage` ends with a newline. */
export function readFlags(usage, options) {
  try {
    const { values } = parseArgs({ options: { ...options, help: { type: 'boolean', short: 'h', default: false } } });
    if (!values.help) return values;
  } catch (error) {
    // The first sentence says which flag; the others are about positional arguments, which no command here takes.
    usageError(`${error.message.split('. ')[0]}. See --help.`);
  }
  process.stdout.write(usage);
  return process.exit(0);
}

/** The value of --name as a number from 1 to 999999. */
export function wholeNumber(name, text) {
  if (!/^[1-9]\d{0,5}$/.test(text)) usageError(`--${name} ${text}: a whole number from 1 on.`);
  return Number(text);
}
