// Numbers as people write them on a command line, vLLM's rule: a small letter is a power of 1000 and may follow a decimal
// fraction (25.6k = 25600), a capital letter is a power of 1024 and follows a whole number (4K = 4096).

const POWERS = ['k', 'm', 'g', 't'];

export const HUMAN_NUMBER_RULE =
  'a whole number like 4096, 4k or 2.5k (small letters k m g t are powers of 1000), or 4K (capital letters are powers of 1024 and take no fraction)';

/** Exact for every value up to 2^53; null when the text breaks the rule. */
export function parseHumanNumber(text: string): number | null {
  const match = /^(\d{1,16})(?:\.(\d{1,16}))?([kmgtKMGT])?$/.exec(text);
  if (!match) return null;
  const [, whole = '', fraction = '', letter = ''] = match;
  if (fraction !== '' && (letter === '' || letter !== letter.toLowerCase())) return null;
  const power = letter === '' ? 0 : POWERS.indexOf(letter.toLowerCase()) + 1;
  const unit = letter === letter.toLowerCase() ? 1000n ** BigInt(power) : 1024n ** BigInt(power);
  // Whole arithmetic on digits: 25.6 * 1000 in floating point is not 25600 for every such number.
  const scaled = BigInt(whole + fraction) * unit;
  const divisor = 10n ** BigInt(fraction.length);
  if (scaled % divisor !== 0n) return null;
  const value = scaled / divisor;
  return value <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(value) : null;
}
