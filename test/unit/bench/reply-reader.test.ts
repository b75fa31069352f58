import { describe, expect, it } from 'vitest';
import { type Backend, ReplyReader } from '../../../src/bench/reply-reader.ts';

function read(backend: Backend, events: ReadonlyArray<readonly [number, unknown]>, problem = '') {
  const reader = new ReplyReader(backend);
  for (const [stamp, event] of events) reader.event(typeof event === 'string' ? event : JSON.stringify(event), stamp);
  return reader.end(problem);
}

const text = (value: string, finish: string | null = null) => ({ choices: [{ text: value, finish_reason: finish }] });
const delta = (value: object, finish: string | null = null) => ({ choices: [{ delta: value, finish_reason: finish }] });
const usage = (prompt: number, completion: number) => ({
  choices: [],
  usage: { prompt_tokens: prompt, completion_tokens: completion },
});

describe('ReplyReader', () => {
  it('reads a text completion', () => {
    const reply = read('openai', [
      [1, text('Hel')],
      [2, text('lo')],
      [3, text('!', 'length')],
      [3.5, usage(7, 3)],
      [4, '[DONE]'],
    ]);
    expect(reply).toMatchObject({
      outcome: 'completed',
      error: '',
      tokenSeconds: [1, 2, 3],
      firstChoiceSeconds: 1,
      numPromptTokens: 7,
      numOutputTokens: 3,
      countedBy: 'usage',
      finishReason: 'length',
      text: 'Hello!',
    });
  });

  it('a role chunk is no token', () => {
    const reply = read('openai-chat', [
      [1, delta({ role: 'assistant', content: '' })],
      [5, delta({ content: 'a' })],
      [6, delta({ reasoning: 'b' })],
      [7, delta({}, 'stop')],
      [7, '[DONE]'],
    ]);
    expect(reply).toMatchObject({
      firstChoiceSeconds: 1,
      tokenSeconds: [5, 6],
      numOutputTokens: 2,
      countedBy: 'events',
    });
  });

  it('a closing event counts as the end token when the usage has one more token', () => {
    const events = (num: number) =>
      [
        [1, text('a')],
        [2, text('b')],
        [3, text('', 'stop')],
        [3, usage(1, num)],
        [3, '[DONE]'],
      ] as const;
    expect(read('vllm', events(3)).tokenSeconds).toEqual([1, 2, 3]);
    expect(read('vllm', events(2)).tokenSeconds).toEqual([1, 2]);
  });

  it('a token whose bytes are no character yet is a token', () => {
    expect(
      read('openai', [
        [1, text('')],
        [2, text('é', 'length')],
        [2, '[DONE]'],
      ]).tokenSeconds,
    ).toEqual([1, 2]);
  });

  it.each([
    ['no end mark', [[1, text('a')]], '', 'cut', 'The stream ended without its end mark.'],
    ['a lost connection', [[1, text('a')]], 'Reset.', 'cut', 'Reset.'],
    ['nothing at all', [], '', 'failed', 'The reply has no tokens.'],
    ['an empty reply', [[1, '[DONE]']], '', 'failed', 'The stream ended without a token.'],
    [
      'an error first',
      [
        [1, { error: { message: 'no room' } }],
        [2, '[DONE]'],
      ],
      '',
      'failed',
      'The server reported: no room',
    ],
    [
      'an error later',
      [
        [1, text('a')],
        [2, { error: 'x' }],
        [2, '[DONE]'],
      ],
      '',
      'cut',
      'The server reported: "x"',
    ],
    [
      'no JSON',
      [
        [1, text('a')],
        [2, '<html>'],
      ],
      '',
      'cut',
      'The server sent an event that is not a JSON object: <html>',
    ],
  ] as Array<[string, Array<[number, unknown]>, string, string, string]>)(
    '%s',
    (_, events, problem, outcome, error) => {
      expect(read('openai', events, problem)).toMatchObject({ outcome, error });
    },
  );

  it('a finish reason is an end, also without the mark', () => {
    expect(read('openai', [[1, text('a', 'stop')]]).outcome).toBe('completed');
  });
});
