import { describe, expect, it } from 'vitest';
import { parseMessages } from '../../../src/server/messages.ts';

describe('messages', () => {
  it('become what templates expect', () => {
    const messages = [
      { role: 'developer', content: 'be short' },
      {
        role: 'user',
        content: [
          { type: 'text', text: 'a' },
          { type: 'text', text: 'b' },
        ],
        name: 'ann',
      },
      {
        role: 'assistant',
        content: null,
        reasoning_content: 'hm',
        tool_calls: [{ id: '1', type: 'function', function: { name: 'f', arguments: '{"x":[1]}' } }],
      },
      { role: 'tool', content: 'ok', tool_call_id: '1' },
    ];
    expect(parseMessages(messages, 'string')).toEqual([
      { role: 'system', content: 'be short' },
      { role: 'user', content: 'a\nb', name: 'ann' },
      {
        role: 'assistant',
        content: '',
        reasoning: 'hm',
        reasoning_content: 'hm',
        tool_calls: [{ id: '1', type: 'function', function: { name: 'f', arguments: { x: [1] } } }],
      },
      { role: 'tool', content: 'ok', tool_call_id: '1' },
    ]);
    expect(parseMessages(messages.slice(0, 2), 'openai').map((message) => message.content)).toEqual([
      [{ type: 'text', text: 'be short' }],
      [
        { type: 'text', text: 'a' },
        { type: 'text', text: 'b' },
      ],
    ]);
  });

  it.each([
    ['no list', { role: 'user' }, 'messages'],
    ['an unknown role', [{ role: 'x', content: 'y' }], 'messages.0.role'],
    ['a number as content', [{ role: 'user', content: 3 }], 'messages.0.content'],
    ['a part without text', [{ role: 'user', content: [{ type: 'text' }] }], 'messages.0.content.0.text'],
    ['a picture', [{ role: 'user', content: [{ type: 'image_url' }] }], 'messages.0.content.0'],
    [
      'arguments that are no object',
      [{ role: 'assistant', tool_calls: [{ function: { name: 'f', arguments: '[1' } }] }],
      'messages.0.tool_calls.0.function.arguments',
    ],
  ])('%s is refused by its path', (_name, value, param) => {
    expect(() => parseMessages(value, 'string')).toThrow(expect.objectContaining({ param }));
  });
});
