// Starts and stops the HTTP server around a running engine. The engine stays its owner's: close it after the server.

import type { EngineClient } from '../engine/engine-client.ts';
import type { ChatTemplate } from '../text/chat-template.ts';
import type { GenerationDefaults } from '../text/generation-config.ts';
import type { Tokenizer } from '../text/tokenizer.ts';
import { createApp } from './create-app.ts';
import { type ListenAddress, listen } from './listen.ts';
import type { Logger } from './logger.ts';
import type { ModelInfo, ServerContext, TextService } from './server-context.ts';
import type { ServerOptions } from './server-options.ts';
import type { Telemetry } from './telemetry.ts';
import { createTextService } from './text-service.ts';

export interface StartServerOptions {
  readonly options: ServerOptions;
  readonly engine: EngineClient;
  readonly tokenizer: Tokenizer;
  /** null = the model has none: chats are refused, completions work. It stays the caller's to close. */
  readonly chatTemplate: ChatTemplate | null;
  readonly generationDefaults: GenerationDefaults;
  readonly modelInfo: { /** Path or name the model was loaded from. */ readonly root: string };
  readonly version: string;
  readonly logger: Logger;
  /** Its listeners must be those the engine was started with, or /metrics knows nothing of steps. */
  readonly telemetry: Telemetry;
}

export interface RunningServer {
  /** One per bound address. */
  readonly addresses: readonly ListenAddress[];
  /** Refuses new requests, waits up to `drainSeconds` for open ones, ends what is left with an error, closes all sockets. */
  close(drainSeconds: number): Promise<void>;
}

export function startServer(start: StartServerOptions): Promise<RunningServer> {
  const { options, engine, version, logger, telemetry, generationDefaults } = start;
  const text = createTextService(start.tokenizer, start.chatTemplate);
  const model: ModelInfo = {
    root: start.modelInfo.root,
    eosTokenIds: generationDefaults.eosTokenIds,
    samplingDefaults: generationDefaults.sampling,
    overriddenDefaults: generationDefaults.fromFile,
  };
  return serve(createContext({ options, engine, text, model, version, logger, telemetry }));
}

/** The same with any text service. */
export async function serve(context: ServerContext): Promise<RunningServer> {
  const { options, logger, telemetry, model, engine } = context;
  telemetry.start(engine.info, { logStats: !options.disableLogStats });
  announceDefaults(logger, model);
  const app = await createApp(context);
  const listener = await listen({
    host: options.host,
    port: options.port,
    limits: options.limits,
    onRequest: (request, response) => app.routing(request, response),
  });
  let closing: Promise<void> | null = null;
  return {
    addresses: listener.addresses,
    close: (drainSeconds) => {
      closing ??= (async () => {
        context.state.isDraining = true;
        const stopped = listener.stop();
        await drain(context, drainSeconds);
        await Promise.race([stopped, sleep(FLUSH_SECONDS)]);
        listener.closeAllConnections();
        await stopped;
        await app.close();
        telemetry.close();
      })();
      return closing;
    },
  };
}

/** What a last error event or reply may take to leave. */
const FLUSH_SECONDS = 0.5;

export type ContextParts = Omit<ServerContext, 'startedAt' | 'maxTokenBytes' | 'state'>;

export function createContext(start: ContextParts): ServerContext {
  return {
    ...start,
    startedAt: Math.floor(Date.now() / 1000),
    maxTokenBytes: longestToken(start.text, start.engine.info.vocabSize),
    state: { isDraining: false, open: new Set(), liveIds: new Set() },
  };
}

async function drain(context: ServerContext, drainSeconds: number): Promise<void> {
  const { open } = context.state;
  const end = performance.now() + drainSeconds * 1000;
  while (open.size > 0 && performance.now() < end) await sleep(0.05);
  if (open.size > 0) context.logger.warn('server', `Ending ${open.size} open requests: the time to drain is over.`);
  for (const shutDown of [...open]) shutDown();
}

function announceDefaults(logger: Logger, model: ModelInfo): void {
  const entries = Object.entries(model.overriddenDefaults);
  if (entries.length === 0) return;
  const shown = entries.map(([key, value]) => `${key}=${JSON.stringify(value)}`).join(', ');
  logger.warn(
    'sampling',
    `Default sampling parameters have been overridden by the model's generation_config.json: ${shown}. ` +
      'If this is not intended, start with `--generation-config vllm`.',
  );
}

function longestToken(text: TextService, vocabSize: number): number {
  let longest = 1;
  const count = Math.min(vocabSize, text.tokenizer.vocabSize);
  for (let id = 0; id < count; id++) longest = Math.max(longest, text.tokenizer.tokenBytes(id).length);
  return longest;
}

function sleep(seconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, seconds * 1000));
}
