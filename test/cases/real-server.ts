// The whole stack in this process, on a real socket: checkpoint, tokenizer, template, engine, device, server. What a client can
// ask of it, for the cases.

import { openModel } from '../../src/checkpoint/resolve-model.ts';
import type { EngineOptions } from '../../src/engine/engine-options.ts';
import { completeEngineOptions } from '../../src/engine/engine-options.ts';
import { createInProcessClient } from '../../src/engine/in-process-client.ts';
import { startServer } from '../../src/server/create-server.ts';
import { createLogger } from '../../src/server/logger.ts';
import { DEFAULT_LIMITS, DEFAULT_SERVER_OPTIONS, type ServerOptions } from '../../src/server/server-options.ts';
import { Telemetry } from '../../src/server/telemetry.ts';
import { ChatTemplate } from '../../src/text/chat-template.ts';
import { findChatTemplate } from '../../src/text/find-chat-template.ts';
import { generationDefaults } from '../../src/text/generation-config.ts';
import { loadTokenizer } from '../../src/text/load-tokenizer.ts';
import { sumMetric } from '../server/fake-server.ts';

/** A reply or a chunk; only what the cases look at. */
export interface Reply {
  readonly choices: Array<{
    readonly text?: string;
    readonly delta?: { readonly content?: string };
    readonly message?: { readonly content: string };
    readonly finish_reason: string | null;
    readonly token_ids?: number[];
    readonly logprobs: { readonly tokens: string[]; readonly text_offset: number[] } | null;
  }>;
  readonly usage?: {
    readonly prompt_tokens: number;
    readonly completion_tokens: number;
    readonly total_tokens: number;
  };
  readonly error?: { readonly message: string; readonly param: string | null };
  readonly tokens?: number[];
  readonly data?: Array<{ readonly max_model_len: number }>;
}

export interface RealServer {
  readonly url: string;
  readonly lines: readonly string[];
  post(path: string, body: Readonly<Record<string, unknown>>): Promise<{ status: number; body: Reply }>;
  /** A completion that must succeed. */
  complete(body: Readonly<Record<string, unknown>>): Promise<Reply>;
  /** Data events of a stream, without [DONE]. */
  stream(path: string, body: Readonly<Record<string, unknown>>): Promise<Reply[]>;
  metric(name: string, labels?: Readonly<Record<string, string>>): Promise<number>;
  close(): Promise<void>;
}

export async function startRealServer(
  model: string,
  engineOptions: Partial<EngineOptions> = {},
  options: Partial<ServerOptions> & { readonly generationConfig?: 'auto' | 'vllm' } = {},
): Promise<RealServer> {
  const { generationConfig = 'auto', ...serverOptions } = options;
  const lines: string[] = [];
  const logger = createLogger({ level: 'info', sink: { write: (line) => lines.push(line) } });
  const telemetry = new Telemetry({ modelName: 'm', logger });
  const checkpoint = openModel(model);
  const tokenizer = loadTokenizer(checkpoint);
  const source = findChatTemplate(checkpoint);
  const spelling = (id: number | null) => (id === null ? null : tokenizer.tokenText(id));
  const chatTemplate =
    source === null
      ? null
      : await ChatTemplate.create(source, {
          bosToken: spelling(tokenizer.bosTokenId),
          eosToken: spelling(tokenizer.eosTokenId),
          deadlineMs: 120_000,
          loadDeadlineMs: 120_000,
        });
  const engine = await createInProcessClient(
    completeEngineOptions({
      model,
      computeDtype: 'f32',
      kvCacheDtype: 'f32',
      maxNumSeqs: 16,
      kvCacheMemoryBytes: 64 * 2 ** 20,
      ...engineOptions,
    }),
    telemetry.listeners,
    { checkpoint },
  );
  const defaults = generationDefaults(checkpoint, tokenizer, { generationConfig });
  checkpoint.close();
  const server = await startServer({
    options: {
      ...DEFAULT_SERVER_OPTIONS,
      port: 0,
      servedModelNames: ['m'],
      ...serverOptions,
      limits: { ...DEFAULT_LIMITS, keepAliveSeconds: 600, bodyTimeoutSeconds: 600, headersTimeoutSeconds: 600 },
    },
    engine,
    tokenizer,
    chatTemplate,
    generationDefaults: defaults,
    modelInfo: { root: model },
    version: '0.0.0',
    logger,
    telemetry,
  });
  const url = server.addresses[0]!.url;
  const fetchPost = (path: string, body: Readonly<Record<string, unknown>>) =>
    fetch(`${url}${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'm', ...body }),
    });
  const post: RealServer['post'] = async (path, body) => {
    const response = await fetchPost(path, body);
    return { status: response.status, body: (await response.json()) as Reply };
  };
  return {
    url,
    lines,
    post,
    complete: async (body) => {
      const reply = await post('/v1/completions', body);
      if (reply.status !== 200) throw new Error(`${reply.status}: ${JSON.stringify(reply.body)}`);
      return reply.body;
    },
    stream: async (path, body) => {
      const text = await (await fetchPost(path, { ...body, stream: true })).text();
      return text
        .split('\n\n')
        .filter((frame) => frame.startsWith('data: {'))
        .map((frame) => JSON.parse(frame.slice(6)) as Reply);
    },
    metric: async (name, labels = {}) => sumMetric(await telemetry.scrape(), name, labels),
    close: async () => {
      await server.close(0);
      await engine.close({ drainSeconds: 0 });
      await chatTemplate?.close();
    },
  };
}
