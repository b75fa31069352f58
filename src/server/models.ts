// GET /v1/models and /v1/models/{name}: one card per served name.

import { createHash } from 'node:crypto';
import type { FastifyInstance } from 'fastify';
import type { JsonObject } from './json-body.ts';
import type { ServerContext } from './server-context.ts';
import { resolveModel } from './stream-rules.ts';

export function modelRoutes(app: FastifyInstance, context: ServerContext): void {
  app.get('/v1/models', async () => ({
    object: 'list',
    data: context.options.servedModelNames.map((name) => modelCard(context, name)),
  }));
  // Names hold slashes (org/name), so the rest of the path is the name.
  app.get<{ Params: { '*': string } }>('/v1/models/*', async (request) => {
    const name = request.params['*'];
    resolveModel(context, name);
    return modelCard(context, name);
  });
}

function modelCard(context: ServerContext, name: string): JsonObject {
  return {
    id: name,
    object: 'model',
    created: context.startedAt,
    owned_by: 'pagoda',
    root: context.model.root,
    parent: null,
    max_model_len: context.engine.info.maxModelLen,
    permission: [
      {
        id: `modelperm-${createHash('sha256').update(`${name}\n${context.startedAt}`).digest('hex').slice(0, 32)}`,
        object: 'model_permission',
        created: context.startedAt,
        allow_create_engine: false,
        allow_sampling: true,
        allow_logprobs: true,
        allow_search_indices: false,
        allow_view: true,
        allow_fine_tuning: false,
        organization: '*',
        group: null,
        is_blocking: false,
      },
    ],
  };
}
