// The front of `pagoda serve`: tokenizer, chat template, HTTP server and what an operator reads. Loaded while the engine process
// loads the weights.

import { existsSync, readFileSync } from 'node:fs';
import type { Checkpoint } from '../checkpoint/checkpoint.ts';
import { openModel } from '../checkpoint/resolve-model.ts';
import type { ResolvedOptions } from '../config/options.ts';
import { engineOptions, serverOptions } from '../config.ts';
import type { EngineClient, EngineListeners } from '../engine/engine-client.ts';
import { overrideDefaults } from '../engine/override-defaults.ts';
import { PagodaError } from '../errors.ts';
import { type RunningServer, startServer } from '../server/create-server.ts';
import type { ListenAddress } from '../server/listen.ts';
import { createLogger, type Logger } from '../server/logger.ts';
import { DEFAULT_LIMITS } from '../server/server-options.ts';
import { Telemetry } from '../server/telemetry.ts';
import { ChatTemplate } from '../text/chat-template.ts';
import { findChatTemplate } from '../text/find-chat-template.ts';
import { generationDefaults } from '../text/generation-config.ts';
import { loadTokenizer } from '../text/load-tokenizer.ts';
import type { Tokenizer } from '../text/tokenizer.ts';
import type { CliIo } from './cli-io.ts';
import { loadBar } from './load-progress.ts';
import { packageVersion } from './run-cli.ts';

export interface ServeFront {
  readonly logger: Logger;
  readonly listeners: EngineListeners;
  /** Opens the socket and prints where it answers. */
  open(engine: EngineClient): Promise<RunningServer>;
  /** Gives the terminal and the template's thread back. */
  close(): Promise<void>;
}

/** Throws PagodaError when the model's text side or the options cannot be used. */
export async function createFront(config: ResolvedOptions, io: CliIo): Promise<ServeFront> {
  const logger = createLogger({ level: 'info', sink: io.stderr });
  const options = serverOptions(config, DEFAULT_LIMITS);
  const text = await loadTextSide(config, engineOptions(config).model, (message) => logger.warn('chat', message));
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
  return {
    logger,
    listeners,
    open: async (engine) => {
      bar.stop();
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
      return server;
    },
    close: async () => {
      bar.stop();
      await text.template?.close();
    },
  };
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
