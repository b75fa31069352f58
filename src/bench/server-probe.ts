// What the load client asks a server before it starts: whether it is there, which models it serves, ids of ordinary text.

import { PagodaError } from '../errors.ts';
import { fetchText } from './http-text.ts';
import { wordList } from './prompt-source.ts';

export interface ServerAddress {
  readonly baseUrl: string;
  /** The option that named it. */
  readonly urlOption: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly insecure: boolean;
}

const PROBE_SECONDS = 10;
const PAUSE_SECONDS = 0.5;

/** Names in /v1/models; null when the server has no such list. Throws bad_config when nothing answers within `readySeconds`. */
export async function listModels(address: ServerAddress, readySeconds: number): Promise<string[] | null> {
  const { baseUrl, urlOption, headers, insecure } = address;
  const url = `${baseUrl}/v1/models`;
  for (let waited = 0; ; waited += PAUSE_SECONDS) {
    try {
      const { status, text } = await fetchText(url, { headers, insecure, timeoutSeconds: PROBE_SECONDS });
      if (status === 401 || status === 403) {
        throw new PagodaError(
          'bad_config',
          `${url} wants a key (HTTP ${status}): set OPENAI_API_KEY or --header "Authorization=Bearer KEY".`,
          { param: '--header' },
        );
      }
      return status === 200 ? modelNames(text) : null;
    } catch (error) {
      if (error instanceof PagodaError) throw error;
      if (waited < readySeconds) {
        await new Promise((resolve) => setTimeout(resolve, PAUSE_SECONDS * 1000));
        continue;
      }
      const reason = error instanceof Error ? error.message : String(error);
      throw new PagodaError('bad_config', `${urlOption}: no server answers at ${baseUrl}. ${reason}`, {
        param: urlOption,
        cause: error,
      });
    }
  }
}

function modelNames(text: string): string[] | null {
  let parsed: { data?: unknown } | null = null;
  try {
    parsed = JSON.parse(text) as { data?: unknown } | null;
  } catch {
    return null;
  }
  if (!Array.isArray(parsed?.data)) return null;
  return parsed.data.flatMap((each: { id?: unknown } | null) => (typeof each?.id === 'string' ? [each.id] : []));
}

/** The name to ask for. Throws bad_config that says which names there are. */
export function chooseModel(
  given: string | undefined,
  names: readonly string[] | null,
  address: ServerAddress,
): string {
  if (given !== undefined) {
    if (names === null || names.length === 0 || names.includes(given)) return given;
    throw new PagodaError(
      'bad_config',
      `--model '${given}' is not served at ${address.baseUrl}; it serves ${names.map((name) => `'${name}'`).join(', ')}.`,
      { param: '--model' },
    );
  }
  const first = names?.[0];
  if (first !== undefined) return first;
  throw new PagodaError(
    'bad_config',
    `${address.urlOption}: ${address.baseUrl} has no list of models at /v1/models, so it is no OpenAI-compatible server, or needs --model.`,
    { param: address.urlOption },
  );
}

/** Ids of plain words by the server's own tokenizer (vLLM's and Pagoda's /tokenize); null where it has none. */
export async function serverIds(address: ServerAddress, model: string): Promise<number[] | null> {
  const { baseUrl, headers, insecure } = address;
  try {
    const { status, text } = await fetchText(`${baseUrl}/tokenize`, {
      method: 'POST',
      headers,
      insecure,
      timeoutSeconds: PROBE_SECONDS,
      body: { model, prompt: ` ${wordList().join(' ')}`, add_special_tokens: false },
    });
    if (status !== 200) return null;
    const { tokens } = JSON.parse(text) as { tokens?: unknown };
    if (!Array.isArray(tokens) || !tokens.every((id) => Number.isInteger(id) && id >= 0)) return null;
    const ids = [...new Set(tokens as number[])];
    return ids.length >= MIN_IDS ? ids : null;
  } catch {
    // A server without this is an ordinary server: the caller takes words and says so.
    return null;
  }
}

/** Fewer would make prompts that repeat themselves. */
const MIN_IDS = 50;
