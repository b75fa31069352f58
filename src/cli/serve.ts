// `pagoda serve`: the front process. Starts the engine process and the HTTP server, prints where it answers, and drains when it
// is told to end; a second signal ends it at once.

import { existsSync, readFileSync } from 'node:fs';
import type { Checkpoint } from '../checkpoint/checkpoint.ts';
import { openModel } from '../checkpoint/resolve-model.ts';
import type { ResolvedOptions } from '../config/options.ts';
import { engineOptions, serverOptions } from '../config.ts';
import type { EngineListeners } from '../engine/engine-client.ts';
import { overrideDefaults } from '../engine/override-defaults.ts';
import { createProcessClient } from '../engine/process-client.ts';
import { PagodaError } from '../errors.ts';
import { startServer } from '../server/create-server.ts';
import type { ListenAddress } from '../server/listen.ts';
import { createLogger } from '../server/logger.ts';
import { DEFAULT_LIMITS } from '../server/server-options.ts';
import { Telemetry } from '../server/telemetry.ts';
import { ChatTemplate } from '../text/chat-template.ts';
import { findChatTemplate } from '../text/find-chat-template.ts';
import { generationDefaults } from '../text/generation-config.ts';
import { loadTokenizer } from '../text/load-tokenizer.ts';
import type { Tokenizer } from '../text/tokenizer.ts';
import { CliExit, type CliIo } from './cli-io.ts';
import { loadBar } from './load-progress.ts';
import { packageVersion } from './run-cli.ts';

const DRAIN_SECONDS = 30;

export async function serve(config: ResolvedOptions, io: CliIo): Promise<void> {
  const logger = createLogger({ level: 'info', sink: io.stderr });
  const options = serverOptions(config, DEFAULT_LIMITS);
  const engineConfig = engineOptions(config);
  const text = await loadTextSide(config, engineConfig.model, (message) => logger.warn('chat', message));
  const telemetry = new Telemetry({ modelName: options.servedModelNames[0] ?? config.model, logger });
  const bar = loadBar(io.stderr);
  const listeners: EngineListeners = {
    ...telemetry.listeners,
    onLoadProgress: (done, total) => bar.update(done, total),
    onReady: (info) => {
      bar.stop();
      telemetry.listeners.onReady?.(info);
    },
  };
  const interrupted = interruption(io);
  const starting = new AbortController();
  void interrupted.first.then(() => starting.abort());
  const engine = await createProcessClient(engineConfig, listeners, { signal: starting.signal }).catch(
    async (error) => {
      interrupted.forget();
      await text.template?.close();
      throw interrupted.count > 0 ? new CliExit(130) : error;
    },
  );
  bar.stop();
  try {
    const server = await startServer({
      options,
      engine,
      tokenizer: text.tokenizer,
      chatTemplate: text.template,
      generationDefaults: text.defaults,
      modelInfo: { root: config.model },
      version: packageVersion(),
      logger,
      telemetry,
    });
    io.stdout.write(greeting(server.addresses, options));
    await interrupted.first;
    logger.info(
      'server',
      `Shutting down: waiting up to ${DRAIN_SECONDS} seconds for open requests; a second signal ends at once.`,
    );
    await Promise.race([server.close(DRAIN_SECONDS), interrupted.second]);
  } finally {
    interrupted.forget();
    await engine.close({ drainSeconds: 0 });
    await text.template?.close();
  }
  if (interrupted.count > 1) throw new CliExit(1);
}

async function loadTextSide(config: ResolvedOptions, model: string, warn: (message: string) => void) {
  const checkpoint = openModel(model);
  try {
    const tokenizer = loadTokenizer(checkpoint);
    const fromModel = generationDefaults(checkpoint, tokenizer, { generationConfig: config.generationConfig });
    const defaults = overrideDefaults(fromModel, config.overrideGenerationConfig);
    return { tokenizer, defaults, template: await loadTemplate(config, checkpoint, tokenizer, warn) };
  } finally {
    checkpoint.close();
  }
}

/** A template that the user gave must work; the model's own may be broken, and then only chats are refused. */
async function loadTemplate(
  config: ResolvedOptions,
  checkpoint: Checkpoint,
  tokenizer: Tokenizer,
  warn: (message: string) => void,
): Promise<ChatTemplate | null> {
  const given = config.chatTemplate === null ? null : readTemplate(config.chatTemplate);
  const source = given ?? findChatTemplate(checkpoint);
  if (source === null) return null;
  const spelling = (id: number | null) => (id === null ? null : tokenizer.tokenText(id));
  try {
    return await ChatTemplate.create(source, {
      bosToken: spelling(tokenizer.bosTokenId),
      eosToken: spelling(tokenizer.eosTokenId),
    });
  } catch (error) {
    if (given !== null || !(error instanceof PagodaError)) throw error;
    warn(`${error.message} Chats will be refused; give another one with --chat-template.`);
    return null;
  }
}

/** A file, or the template itself as vLLM also takes it. */
function readTemplate(given: string): string {
  if (existsSync(given)) return readFileSync(given, 'utf8');
  if (/\{[{%]/.test(given)) return given;
  throw new PagodaError('bad_config', `--chat-template: there is no file ${given}, and it is no template either.`, {
    param: '--chat-template',
  });
}

function greeting(
  addresses: readonly ListenAddress[],
  options: { servedModelNames: readonly string[]; apiKeys: readonly string[] },
): string {
  const url = addresses[0]?.url ?? '';
  const others = addresses.slice(1).map((address) => address.url);
  const key = options.apiKeys.length > 0 ? " -H 'Authorization: Bearer YOUR_KEY'" : '';
  const model = options.servedModelNames[0] ?? '';
  const body = JSON.stringify({ model, messages: [{ role: 'user', content: 'What is the capital of France?' }] });
  const quoted = body.replaceAll("'", `'\\''`);
  const also = others.length > 0 ? ` (also ${others.join(', ')})` : '';
  return `Serving ${model} on ${url}${also}. Try: curl ${url.includes('[') ? '-g ' : ''}${url}/v1/chat/completions${key} -H 'Content-Type: application/json' -d '${quoted}'\n`;
}

interface Interruption {
  readonly first: Promise<void>;
  readonly second: Promise<void>;
  readonly count: number;
  forget(): void;
}

function interruption(io: CliIo): Interruption {
  const waiting: Array<() => void> = [];
  const first = new Promise<void>((resolve) => waiting.push(resolve));
  const second = new Promise<void>((resolve) => waiting.push(resolve));
  let count = 0;
  const forget = io.onInterrupt(() => waiting[count++]?.());
  return {
    first,
    second,
    get count() {
      return count;
    },
    forget,
  };
}
