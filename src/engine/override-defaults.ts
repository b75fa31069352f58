// --override-generation-config on top of the model's generation_config.json: same names, same meaning, and it wins.

import { PagodaError } from '../errors.ts';
import type { GenerationDefaults } from '../text/generation-config.ts';

const FIELDS: Readonly<Record<string, keyof GenerationDefaults['sampling']>> = {
  temperature: 'temperature',
  top_k: 'topK',
  top_p: 'topP',
  min_p: 'minP',
  repetition_penalty: 'repetitionPenalty',
  max_new_tokens: 'maxTokens',
};

/** Throws bad_config for a name or value that has no meaning here. */
export function overrideDefaults(
  defaults: GenerationDefaults,
  override: Readonly<Record<string, unknown>>,
): GenerationDefaults {
  const sampling: Record<string, number> = { ...defaults.sampling };
  const fromFile: Record<string, number> = { ...defaults.fromFile };
  for (const [name, value] of Object.entries(override)) {
    const field = Object.hasOwn(FIELDS, name) ? FIELDS[name] : undefined;
    if (field === undefined || typeof value !== 'number' || !Number.isFinite(value)) {
      const problem =
        field === undefined ? `does not know '${name}'` : `needs a number for ${name}, got ${String(value)}`;
      throw new PagodaError(
        'bad_config',
        `--override-generation-config ${problem}; it takes numbers for ${Object.keys(FIELDS).join(', ')}.`,
        { param: '--override-generation-config' },
      );
    }
    sampling[field] = value;
    delete fromFile[name];
  }
  return { ...defaults, sampling, fromFile };
}
