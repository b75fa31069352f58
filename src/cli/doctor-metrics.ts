// Reads a server's /metrics again and again over a window.

import { fetchText } from '../bench/http-text.ts';
import { now } from '../clock.ts';
import type { MetricsPage } from '../doctor/observe-metrics.ts';
import { PagodaError } from '../errors.ts';
import { pairsValue, secondsValue, urlValue } from './bench-values.ts';
import type { DoctorFlags } from './doctor-flags.ts';

const READ_SECONDS = 10;

export class MetricsReader {
  /** Names the source in messages. */
  readonly source: string;
  readonly #url: string;
  readonly #headers: Readonly<Record<string, string>>;
  readonly #insecure: boolean;
  readonly #windowSeconds: number;
  readonly #intervalSeconds: number;

  constructor(flags: DoctorFlags, env: NodeJS.ProcessEnv) {
    const base = urlValue('url', flags.url ?? '').replace(/\/(v1|metrics)$/, '');
    this.#url = `${base}/metrics`;
    this.source = `--url ${this.#url}`;
    const key = env.OPENAI_API_KEY;
    const headers = pairsValue('header', flags.header ?? []);
    this.#headers = key === undefined || key === '' ? headers : { authorization: `Bearer ${key}`, ...headers };
    this.#insecure = flags.insecure === true;
    this.#windowSeconds = secondsValue('window', flags.window);
    this.#intervalSeconds = Math.min(secondsValue('interval', flags.interval), this.#windowSeconds);
  }

  /** Pages from now to the end of the window; fewer when the signal is raised. */
  async window(signal: AbortSignal): Promise<MetricsPage[]> {
    const numIntervals = Math.max(1, Math.round(this.#windowSeconds / this.#intervalSeconds));
    const start = now();
    const pages = [await this.#page()];
    for (let i = 1; i <= numIntervals; i++) {
      await pause(start + i * this.#intervalSeconds - now(), signal);
      if (signal.aborted) break;
      pages.push(await this.#page());
    }
    return pages;
  }

  async #page(): Promise<MetricsPage> {
    const options = { headers: this.#headers, insecure: this.#insecure, timeoutSeconds: READ_SECONDS };
    const reply = await fetchText(this.#url, options).catch((error: unknown) => {
      const reason = error instanceof Error ? error.message : String(error);
      throw new PagodaError('bad_config', `--url: no server answers at ${this.#url}. ${reason}`, { param: '--url' });
    });
    if (reply.status === 401 || reply.status === 403) {
      throw new PagodaError(
        'bad_config',
        `--url: ${this.#url} wants a key (HTTP ${reply.status}): set OPENAI_API_KEY or --header.`,
        { param: '--url' },
      );
    }
    if (reply.status !== 200) {
      throw new PagodaError(
        'bad_config',
        `--url: ${this.#url} answers HTTP ${reply.status}: this is no vLLM-class server, or its metrics are elsewhere or off.`,
        { param: '--url' },
      );
    }
    return { seconds: now(), text: reply.text };
  }
}

function pause(seconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const end = (): void => {
      clearTimeout(timer);
      signal.removeEventListener('abort', end);
      resolve();
    };
    const timer = setTimeout(end, Math.max(0, seconds) * 1000);
    signal.addEventListener('abort', end, { once: true });
  });
}
