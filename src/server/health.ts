// What platforms ask: /live (the process answers), /health, /ready and /ping (it can take requests), /version, /load, /metrics.

import type { FastifyInstance, FastifyReply } from 'fastify';
import type { ServerContext } from './server-context.ts';

export function healthRoutes(app: FastifyInstance, context: ServerContext): void {
  const empty = (reply: FastifyReply, isGood: boolean): FastifyReply => reply.code(isGood ? 200 : 503).send('');
  const isReady = (): boolean => context.engine.isAlive && !context.state.isDraining;
  app.get('/live', async (_request, reply) => empty(reply, true));
  app.get('/health', async (_request, reply) => empty(reply, context.engine.isAlive));
  app.get('/ready', async (_request, reply) => empty(reply, isReady()));
  app.route({ method: ['GET', 'POST'], url: '/ping', handler: async (_request, reply) => empty(reply, isReady()) });
  app.get('/version', async () => ({ version: context.version }));
  app.get('/load', async () => ({ server_load: context.state.open.size }));
  app.get('/metrics', async (_request, reply) => {
    reply.header('content-type', context.telemetry.contentType);
    return reply.send(await context.telemetry.scrape());
  });
}
