// POST /tokenize (a text, or a conversation through the chat template) and POST /detokenize.

import type { FastifyInstance } from 'fastify';
import { PagodaError } from '../errors.ts';
import type { JsonObject } from './json-body.ts';
import { chatRenderRequest, checkTokenIds } from './prompts.ts';
import { detokenizeSchema, type TokenizeBody, tokenizeSchema, validate } from './schemas.ts';
import type { ServerContext } from './server-context.ts';
import { resolveModel } from './stream-rules.ts';
import { refuseUnsupported } from './unsupported-fields.ts';

export function tokenizeRoutes(app: FastifyInstance, context: ServerContext): void {
  app.post('/tokenize', async (request) => {
    const raw = request.body as JsonObject;
    refuseUnsupported('tokenize', raw);
    const body = validate(tokenizeSchema, raw);
    resolveModel(context, body.model);
    const tokens = await tokenize(context, body);
    const { tokenizer } = context.text;
    return {
      count: tokens.length,
      max_model_len: context.engine.info.maxModelLen,
      tokens,
      token_strs: body.return_token_strs === true ? tokens.map((id) => tokenizer.tokenPiece(id)) : null,
    };
  });
  app.post('/detokenize', async (request) => {
    const body = validate(detokenizeSchema, request.body as JsonObject);
    resolveModel(context, body.model);
    if (!Array.isArray(body.tokens)) {
      throw new PagodaError('bad_request', 'tokens must be a list of token ids.', { param: 'tokens' });
    }
    const tokens: readonly unknown[] = body.tokens;
    checkTokenIds(tokens, 'tokens', context.engine.info.vocabSize);
    return { prompt: context.text.tokenizer.decode(tokens, { skipSpecialTokens: false }) };
  });
}

async function tokenize(context: ServerContext, body: TokenizeBody): Promise<readonly number[]> {
  const hasMessages = body.messages !== null && body.messages !== undefined;
  if (hasMessages) return context.text.encodeChat(chatRenderRequest(context, body, false));
  if (body.prompt === null || body.prompt === undefined) {
    throw new PagodaError('bad_request', 'prompt: Field required (or messages).', { param: 'prompt' });
  }
  return context.text.encodePrompt(body.prompt, { addSpecialTokens: body.add_special_tokens ?? true });
}
