// The Fastify application: routes, body parsing, authentication and error bodies. It opens no socket (see listen.ts), so tests
// can inject requests.

import Fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from 'fastify';
import { PagodaError } from '../errors.ts';
import { Authenticator, countHeader, UNAUTHORIZED_BODY } from './auth.ts';
import { chatRoutes } from './chat.ts';
import { completionRoutes } from './completions.ts';
import { HttpError, toHttpReply } from './errors.ts';
import { healthRoutes } from './health.ts';
import { checkContentHeaders, parseJsonBody } from './json-body.ts';
import { modelRoutes } from './models.ts';
import { openapiRoutes } from './openapi.ts';
import type { ServerContext } from './server-context.ts';
import { tokenizeRoutes } from './tokenize.ts';

const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'] as const;

/** Bodies are checked by zod and replies are written as they are; Fastify's own compilers would load 130 files for nothing. */
const NO_COMPILERS = {
  buildValidator: () => refuseSchema,
  buildSerializer: () => refuseSchema,
};

function refuseSchema(): never {
  throw new PagodaError('internal', 'Routes have no Fastify schemas: zod checks the bodies.');
}

export async function createApp(context: ServerContext): Promise<FastifyInstance> {
  const { limits } = context.options;
  const app = Fastify({
    logger: false,
    bodyLimit: limits.maxBodyBytes,
    routerOptions: { maxParamLength: 1024 },
    schemaController: { compilersFactory: NO_COMPILERS },
    frameworkErrors: (error, _request, reply) => sendError(context, error, reply),
  });
  addBodyParser(app, limits.maxJsonDepth);
  addGuards(app, context);
  app.setErrorHandler((error, _request, reply) => sendError(context, error, reply));
  app.setNotFoundHandler((request, reply) => {
    const allowed = METHODS.filter((method) => app.findRoute({ url: pathOf(request), method }) !== null);
    if (allowed.length === 0) throw new PagodaError('not_found', 'Not Found');
    reply.header('allow', allowed.join(', '));
    throw new HttpError(405, 'Method Not Allowed');
  });
  chatRoutes(app, context);
  completionRoutes(app, context);
  modelRoutes(app, context);
  tokenizeRoutes(app, context);
  healthRoutes(app, context);
  openapiRoutes(app, context.version);
  await app.ready();
  return app;
}

function addBodyParser(app: FastifyInstance, maxDepth: number): void {
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', { parseAs: 'buffer' }, (request, body, done) => {
    // POST /ping has no body worth reading.
    if (pathOf(request) === '/ping') return done(null, {});
    try {
      checkContentHeaders(request.headers);
      done(null, parseJsonBody(body as Buffer, maxDepth));
    } catch (error) {
      done(error as Error);
    }
  });
}

function addGuards(app: FastifyInstance, context: ServerContext): void {
  const authenticator = new Authenticator(context.options.apiKeys);
  const { maxHeaderCount } = context.options.limits;
  app.addHook('onRequest', async (request, reply) => {
    if (request.raw.rawHeaders.length / 2 > maxHeaderCount) {
      throw new HttpError(431, `The request has more than ${maxHeaderCount} headers.`);
    }
    if (countHeader(request.raw, 'host') > 1)
      throw new PagodaError('bad_request', 'The request has more than one Host header.');
    if (authenticator.allows(request.raw)) return;
    await reply.code(401).header('www-authenticate', 'Bearer').send(UNAUTHORIZED_BODY);
  });
  // A POST without any body never meets the parser.
  app.addHook('preValidation', async (request) => {
    if (request.method !== 'POST' || request.body !== undefined || request.is404 || pathOf(request) === '/ping') return;
    throw new PagodaError('bad_request', 'The request has no body: send a JSON object.');
  });
}

function sendError(context: ServerContext, error: unknown, reply: FastifyReply): FastifyReply {
  if (reply.raw.destroyed || reply.raw.headersSent) return reply.hijack();
  const { status, headers, body, isFault } = toHttpReply(error);
  if (isFault) {
    const stack = error instanceof Error ? (error.stack ?? error.message) : String(error);
    context.logger.error('server', `${reply.request.method} ${pathOf(reply.request)} failed: ${stack}`);
  }
  return reply.code(status).headers(headers).send(body);
}

function pathOf(request: FastifyRequest): string {
  return request.url.split('?', 1)[0] ?? '/';
}
