// GET /openapi.json, made from the schemas that validate: what is documented is what is checked.

import type { FastifyInstance } from 'fastify';
import { z } from 'zod';
import type { JsonObject } from './json-body.ts';
import { chatSchema, completionSchema, detokenizeSchema, tokenizeSchema } from './schemas.ts';

const ERROR_SCHEMA = {
  type: 'object',
  required: ['error'],
  properties: {
    error: {
      type: 'object',
      required: ['message', 'type', 'param', 'code'],
      properties: {
        message: { type: 'string' },
        type: { type: 'string' },
        param: { type: ['string', 'null'] },
        code: { type: 'integer' },
      },
    },
  },
};

const POST_ROUTES = {
  '/v1/chat/completions': {
    summary: 'Answer a conversation',
    name: 'ChatCompletionRequest',
    schema: chatSchema,
    required: ['messages'],
  },
  '/v1/completions': {
    summary: 'Continue a text',
    name: 'CompletionRequest',
    schema: completionSchema,
    required: ['prompt'],
  },
  '/tokenize': {
    summary: 'Text or conversation to token ids',
    name: 'TokenizeRequest',
    schema: tokenizeSchema,
    required: [],
  },
  '/detokenize': {
    summary: 'Token ids to text',
    name: 'DetokenizeRequest',
    schema: detokenizeSchema,
    required: ['tokens'],
  },
} as const;

const GET_ROUTES: Readonly<Record<string, string>> = {
  '/v1/models': 'The served names',
  '/health': '200 when the engine is alive, else 503',
  '/live': '200 while the process answers',
  '/ready': '200 when requests are taken, else 503',
  '/ping': 'Like /ready',
  '/version': 'The version of the server',
  '/metrics': 'Prometheus metrics',
  '/load': 'Open generating requests',
};

export function openapiRoutes(app: FastifyInstance, version: string): void {
  const document = openapiDocument(version);
  app.get('/openapi.json', async () => document);
}

export function openapiDocument(version: string): JsonObject {
  const schemas: JsonObject = { Error: ERROR_SCHEMA };
  const paths: JsonObject = {};
  const failure = { description: 'Refused', content: json('Error') };
  for (const [path, summary] of Object.entries(GET_ROUTES)) {
    paths[path] = { get: { summary, responses: { 200: { description: 'OK' } } } };
  }
  for (const [path, { summary, name, schema, required }] of Object.entries(POST_ROUTES)) {
    const { $schema: _, ...shape } = z.toJSONSchema(schema, { unrepresentable: 'any', io: 'input' });
    schemas[name] = { ...shape, required: [...required] };
    paths[path] = {
      post: {
        summary,
        requestBody: { required: true, content: json(name) },
        responses: { 200: { description: 'OK' }, '4XX': failure, '5XX': failure },
      },
    };
  }
  return { openapi: '3.1.0', info: { title: 'Pagoda', version }, paths, components: { schemas } };
}

function json(name: string): JsonObject {
  return { 'application/json': { schema: { $ref: `#/components/schemas/${name}` } } };
}
