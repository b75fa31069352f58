// The text side of a served model: its tokenizer, its chat template, and the text of each choice while it is generated.

import { PagodaError } from '../errors.ts';
import type { ChatTemplate } from '../text/chat-template.ts';
import { encodePrompt } from '../text/encode-prompt.ts';
import { detectContentFormat } from '../text/find-chat-template.ts';
import { renderChat } from '../text/render-chat.ts';
import { TextStream } from '../text/text-stream.ts';
import type { Tokenizer } from '../text/tokenizer.ts';
import type { TextService } from './server-context.ts';

const NO_TEMPLATE =
  'As of transformers v4.44, default chat template is no longer allowed, so you must provide a chat template if the tokenizer ' +
  'does not define one. Start the server with --chat-template, or use /v1/completions.';

export function createTextService(tokenizer: Tokenizer, template: ChatTemplate | null): TextService {
  return {
    tokenizer,
    contentFormat: template === null ? 'string' : detectContentFormat(template.source),
    encodePrompt: (text, options) => encodePrompt(tokenizer, text, options),
    encodeChat: async (request) => {
      if (template === null) throw new PagodaError('bad_request', NO_TEMPLATE, { param: 'messages' });
      return (await renderChat(template, tokenizer, request)).tokenIds;
    },
    openText: (options) => new TextStream(tokenizer, options),
  };
}
