// The real server, on a real socket, around the fake engine and the fake text.

import type { GenerateRequest } from '../../src/core/request.ts';
import type { EngineInfo } from '../../src/engine/engine-client.ts';
import { createApp } from '../../src/server/create-app.ts';
import { createContext, type RunningServer, serve } from '../../src/server/create-server.ts';
import { createLogger } from '../../src/server/logger.ts';
import type { ModelInfo } from '../../src/server/server-context.ts';
import {
  DEFAULT_LIMITS,
  DEFAULT_SERVER_OPTIONS,
  type ServerLimits,
  type ServerOptions,
} from '../../src/server/server-options.ts';
import { Telemetry } from '../../src/server/telemetry.ts';
import { FakeEngine, type Script } from './fake-engine.ts';
import { bytes, EOS, fakeText } from './fake-text.ts';

export interface FakeSetup {
  readonly options?: Partial<ServerOptions>;
  readonly limits?: Partial<ServerLimits>;
  readonly info?: Partial<EngineInfo>;
  readonly model?: Partial<ModelInfo>;
  readonly scriptOf?: (request: GenerateRequest) => Script;
}

/** Says `Hello!` and ends, or goes on for ever when told to ignore the end. */
export function greeting(request: GenerateRequest): Script {
  if (request.sampling.ignoreEos) {
    return { tokens: Array.from({ length: request.sampling.maxTokens }, (_, i) => 97 + (i % 26)), finish: 'length' };
  }
  return { tokens: [...bytes('Hello!'), EOS], finish: 'stop' };
}

function build(setup: FakeSetup) {
  const lines: string[] = [];
  const logger = createLogger({ level: 'debug', sink: { write: (line) => lines.push(line) } });
  const options: ServerOptions = {
    ...DEFAULT_SERVER_OPTIONS,
    port: 0,
    servedModelNames: ['m'],
    ...setup.options,
    // A loaded machine must not let idle connections end in the middle of a test.
    limits: {
      ...DEFAULT_LIMITS,
      keepAliveSeconds: 600,
      bodyTimeoutSeconds: 600,
      headersTimeoutSeconds: 600,
      ...setup.limits,
    },
  };
  const telemetry = new Telemetry({ modelName: 'm', logger });
  const engine = new FakeEngine(setup.scriptOf ?? greeting, telemetry.listeners, setup.info);
  const model: ModelInfo = {
    root: '/models/fake',
    eosTokenIds: [EOS],
    samplingDefaults: {},
    overriddenDefaults: {},
    ...setup.model,
  };
  const start = { options, engine, text: fakeText(), model, version: '0.0.0', logger, telemetry };
  return { start, engine, telemetry, lines };
}

export interface FakeServer {
  readonly url: string;
  readonly port: number;
  readonly engine: FakeEngine;
  readonly telemetry: Telemetry;
  /** What was logged. */
  readonly lines: readonly string[];
  readonly server: RunningServer;
  metric(name: string, labels?: Readonly<Record<string, string>>): Promise<number>;
  close(): Promise<void>;
}

export async function startFakeServer(setup: FakeSetup = {}): Promise<FakeServer> {
  const { start, engine, telemetry, lines } = build(setup);
  const server = await serve(createContext(start));
  const { url, port } = server.addresses[0]!;
  return {
    url,
    port,
    engine,
    telemetry,
    lines,
    server,
    metric: async (name, labels = {}) => sumMetric(await telemetry.scrape(), name, labels),
    close: async () => {
      await server.close(0);
      await engine.close();
    },
  };
}

/** Without a socket, for tables of bad input. */
export async function createFakeApp(setup: FakeSetup = {}) {
  const { start, engine, telemetry } = build(setup);
  telemetry.start(engine.info, { logStats: false });
  engine.stepMilliseconds = 0;
  const app = await createApp(createContext(start));
  return { app, engine, telemetry };
}

export function sumMetric(text: string, name: string, labels: Readonly<Record<string, string>>): number {
  let sum = 0;
  for (const line of text.split('\n')) {
    const match = /^([\w:]+)(\{[^}]*\})? ([-+.eE\d]+)$/.exec(line);
    if (match?.[1] !== name) continue;
    if (Object.entries(labels).every(([key, value]) => match[2]?.includes(`${key}="${value}"`)))
      sum += Number(match[3]);
  }
  return sum;
}
