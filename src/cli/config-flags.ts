// Puts options of the configuration on a command, and takes back what the user wrote, as text by option name. Checks and
// defaults are the configuration's; here they only appear in the help.

import { type Command, Option as Flag } from 'commander';
import type { Option } from '../config/option.ts';
import { OPTIONS, type OptionKey, type ResolvedOptions } from '../config/options.ts';
import type { Flags } from '../config/sources.ts';
import { PagodaError } from '../errors.ts';
import type { CliIo } from './cli-io.ts';

const HEADINGS = { model: 'Model:', engine: 'Engine:', scheduler: 'Scheduler:', server: 'Server:' } as const;

/** Adds [MODEL], --config and these options. */
export function addConfigFlags(command: Command, keys: readonly OptionKey[]): void {
  command.argument('[MODEL]', OPTIONS.model.help);
  command.option('--config <file.yaml>', 'file with these options as `name: value`; flags and PAGODA_* variables win');
  for (const key of keys) {
    const option: Option<unknown> = OPTIONS[key];
    const names = option.names.slice(1).map((name) => `--${name}`);
    const also = names.length > 0 ? `; same as ${names.join(', ')}` : '';
    const help = `${option.help}${also} (default: ${option.defaultText})`;
    for (const [index, name] of option.names.entries()) {
      const flag = option.shape === 'switch' ? `--${name}` : `--${name} ${option.placeholder}`;
      const heading = HEADINGS[option.group];
      command.addOption(grouped(new Flag(flag, help).hideHelp(index > 0), heading));
      if (option.shape === 'switch') command.addOption(grouped(new Flag(`--no-${name}`).hideHelp(), heading));
    }
  }
}

function grouped(flag: Flag, heading: string): Flag {
  return flag.helpGroup(heading);
}

/** What was given on the command line for these options. */
export function givenFlags(command: Command, keys: readonly OptionKey[]): Flags {
  const flags: Record<string, string | boolean | readonly string[]> = {};
  for (const key of keys) {
    for (const name of OPTIONS[key].names) {
      const attribute = new Flag(`--${name}`).attributeName();
      if (command.getOptionValueSource(attribute) === 'cli') flags[name] = command.getOptionValue(attribute);
    }
  }
  return flags;
}

/** The whole configuration of a command line. `model` is the positional argument. */
export async function configOf(
  io: CliIo,
  command: Command,
  keys: readonly OptionKey[],
  model: string | undefined,
): Promise<ResolvedOptions> {
  const { resolveConfig } = await import('../config.ts');
  const flags = givenFlags(command, keys);
  if (model !== undefined && flags.model !== undefined && flags.model !== model) {
    throw new PagodaError('bad_config', `Two models: ${model} and --model ${String(flags.model)}; give one.`, {
      param: '--model',
    });
  }
  const file: unknown = command.getOptionValue('config');
  return resolveConfig({
    flags: model === undefined ? flags : { ...flags, model },
    env: io.env,
    file: typeof file === 'string' ? file : null,
  });
}

export function keysOfGroups(...groups: ReadonlyArray<Option<unknown>['group']>): OptionKey[] {
  return (Object.keys(OPTIONS) as OptionKey[]).filter((key) => groups.includes(OPTIONS[key].group));
}
