// The trace formats of the field, one parser per line. A parser answers a row, null for a row to leave out (a failed request),
// or a text that says what is wrong with the line.
//   azure     TIMESTAMP,ContextTokens,GeneratedTokens                       AzurePublicDataset 2023, 2024 (+00:00), LMM 2025 (NumImages)
//   burstgpt  Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type   whole seconds; 0 response tokens = failure
//   mooncake  {"timestamp": ms, "input_length", "output_length", "hash_ids"}          one object per line, 512 tokens per id
//   vidur     arrived_at,num_prefill_tokens,num_decode_tokens               seconds

export type TraceFormat = 'azure' | 'burstgpt' | 'mooncake' | 'vidur' | 'sharegpt';

export const TRACE_FORMATS: readonly TraceFormat[] = ['azure', 'burstgpt', 'mooncake', 'vidur', 'sharegpt'];

export interface TraceRow {
  /** Seconds on the trace's own clock. */
  readonly seconds: number;
  readonly numPromptTokens: number;
  readonly numOutputTokens: number;
  readonly hashIds: readonly number[] | null;
  readonly sessionId: number | null;
}

export type LineParser = (line: string) => TraceRow | string | null;

/** Tokens per id of hash_ids in Mooncake's traces. */
export const MOONCAKE_BLOCK_TOKENS = 512;

/** What a first line says; null = no known format. ShareGPT is one JSON array and has no lines. */
export function detectFormat(firstLine: string): TraceFormat | null {
  const line = firstLine.trim();
  if (line.startsWith('[')) return 'sharegpt';
  if (line.startsWith('{')) return line.includes('"input_length"') ? 'mooncake' : null;
  const names = columnNames(line);
  if (names.includes('contexttokens') && names.includes('generatedtokens')) return 'azure';
  if (names.includes('request tokens') && names.includes('response tokens')) return 'burstgpt';
  if (names.includes('num_prefill_tokens') && names.includes('num_decode_tokens')) return 'vidur';
  return null;
}

/** True when the first line is a header and not a row. */
export const hasHeader = (format: TraceFormat): boolean => format !== 'mooncake' && format !== 'sharegpt';

/** A parser for the lines after the header, or a text that says what the header lacks. */
export function parserFor(format: Exclude<TraceFormat, 'sharegpt'>, header: string): LineParser | string {
  if (format === 'mooncake') return parseMooncake;
  const names = columnNames(header);
  const wanted = COLUMNS[format];
  const columns = wanted.map((name) => names.indexOf(name));
  const missing = wanted.filter((_, i) => columns[i] === -1);
  if (missing.length > 0) return `the header lacks the column ${missing.join(' and ')} of the ${format} format`;
  const [timeColumn, promptColumn, outputColumn] = columns as [number, number, number];
  const sessionColumn = format === 'burstgpt' ? names.indexOf('session id') : -1;
  const parseTime = format === 'azure' ? parseAzureTime : parseNumber;
  const isFailureDropped = format === 'burstgpt';
  return (line) => {
    const fields = line.split(',');
    if (fields.length < names.length) return `has ${fields.length} fields, the header has ${names.length}`;
    const seconds = parseTime(fields[timeColumn]!);
    if (seconds === null) return `'${shown(fields[timeColumn]!)}' is not a time`;
    const numPromptTokens = parseTokens(fields[promptColumn]!);
    if (numPromptTokens === null) return `'${shown(fields[promptColumn]!)}' is not a number of prompt tokens`;
    const numOutputTokens = parseTokens(fields[outputColumn]!);
    if (numOutputTokens === null) return `'${shown(fields[outputColumn]!)}' is not a number of output tokens`;
    if (isFailureDropped && numOutputTokens === 0) return null;
    const session = sessionColumn === -1 ? null : parseNumber(fields[sessionColumn] ?? '');
    return { seconds, numPromptTokens, numOutputTokens, hashIds: null, sessionId: session };
  };
}

const COLUMNS: Readonly<Record<'azure' | 'burstgpt' | 'vidur', readonly string[]>> = {
  azure: ['timestamp', 'contexttokens', 'generatedtokens'],
  burstgpt: ['timestamp', 'request tokens', 'response tokens'],
  vidur: ['arrived_at', 'num_prefill_tokens', 'num_decode_tokens'],
};

function columnNames(header: string): string[] {
  return header.split(',').map((name) => name.trim().replace(/^"|"$/g, '').toLowerCase());
}

function parseMooncake(line: string): TraceRow | string {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch {
    return 'is not JSON';
  }
  if (typeof value !== 'object' || value === null) return 'is not a JSON object';
  const row = value as Readonly<Record<string, unknown>>;
  const { timestamp, input_length: input, output_length: output } = row;
  if (typeof timestamp !== 'number' || !(timestamp >= 0)) return 'has no timestamp in milliseconds';
  if (!isTokens(input)) return 'has no input_length, a whole number';
  if (!isTokens(output)) return 'has no output_length, a whole number';
  const ids = row.hash_ids ?? null;
  if (ids !== null && !(Array.isArray(ids) && ids.every((id) => Number.isSafeInteger(id) && id >= 0)))
    return 'has hash_ids that are not a list of whole numbers';
  return {
    seconds: timestamp / 1000,
    numPromptTokens: input,
    numOutputTokens: output,
    hashIds: ids as readonly number[] | null,
    sessionId: null,
  };
}

const isTokens = (value: unknown): value is number =>
  typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 && value <= 1e8;

function parseTokens(text: string): number | null {
  const trimmed = text.trim();
  return /^\d{1,8}(\.0+)?$/.test(trimmed) ? Number(trimmed) : null;
}

function parseNumber(text: string): number | null {
  const trimmed = text.trim();
  return /^\d+(\.\d*)?(e[+-]?\d+)?$/i.test(trimmed) ? Number(trimmed) : null;
}

/** `2023-11-16 18:17:03.9799600` (naive, taken as UTC) or `2024-05-10 00:00:00.009930+00:00`; Date only keeps milliseconds. */
function parseAzureTime(text: string): number | null {
  const match = /^(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(\.\d+)?(?:Z|([+-])(\d\d):(\d\d))?$/.exec(text.trim());
  if (!match) return null;
  const [, year, month, day, hour, minute, second, fraction = '0', sign, offsetHour, offsetMinute] = match;
  const whole = Date.UTC(Number(year), Number(month) - 1, Number(day), Number(hour), Number(minute), Number(second));
  const offset = sign === undefined ? 0 : (sign === '-' ? -60 : 60) * (60 * Number(offsetHour) + Number(offsetMinute));
  return whole / 1000 - offset + Number(fraction);
}

const shown = (text: string): string => text.trim().slice(0, 40);
