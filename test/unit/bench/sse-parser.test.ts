import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { SseParser } from '../../../src/bench/sse-parser.ts';
import { PagodaError } from '../../../src/errors.ts';

/** Cuts bytes at the given places. */
function pieces(bytes: Uint8Array, cuts: readonly number[]): Uint8Array[] {
  const places = [...new Set(cuts.map((cut) => cut % (bytes.length + 1)))].sort((a, b) => a - b);
  const all: Uint8Array[] = [];
  let start = 0;
  for (const place of [...places, bytes.length]) {
    all.push(bytes.subarray(start, place));
    start = place;
  }
  return all;
}

/** The stupid oracle: the whole text at once, as the standard describes it. */
function oracle(text: string): string[] {
  const events: string[] = [];
  let data: string[] = [];
  const lines = text.replace(/^\ufeff/, '').split(/\r\n|\r|\n/);
  lines.pop();
  for (const line of lines) {
    if (line === '') {
      if (data.length > 0) events.push(data.join('\n'));
      data = [];
    } else if (line === 'data') data.push('');
    else if (line.startsWith('data:')) data.push(line.slice(5).replace(/^ /, ''));
  }
  return events;
}

describe('SseParser', () => {
  it('gives the same events wherever the bytes are cut', () => {
    const line = fc.oneof(
      fc.constantFrom('', ': ping', 'event: error', 'id: 3', 'data', 'data:', 'datax: 1', 'retry: 10'),
      fc.string({ unit: 'grapheme' }).map((text) => `data: ${text.replace(/[\r\n]/g, '')}`),
    );
    const ending = fc.constantFrom('\n', '\r\n', '\r');
    const stream = fc.array(fc.tuple(line, ending)).map((lines) => lines.map(([l, e]) => l + e).join(''));
    fc.assert(
      fc.property(stream, fc.array(fc.nat()), (text, cuts) => {
        // CR and LF of two lines side by side are one line end for everybody.
        const bytes = new TextEncoder().encode(text);
        const events: string[] = [];
        const parser = new SseParser((data) => events.push(data));
        for (const piece of pieces(bytes, cuts)) parser.push(piece, 0);
        expect(events).toEqual(oracle(text));
      }),
      { numRuns: 300 },
    );
  });

  it('stamps an event with the read that completed it', () => {
    const events: Array<[string, number]> = [];
    const parser = new SseParser((data, stamp) => events.push([data, stamp]));
    const push = (text: string, stamp: number) => parser.push(new TextEncoder().encode(text), stamp);
    push('data: a\n\ndata: b', 1);
    expect(parser.isInsideEvent).toBe(true);
    push('\n', 2);
    push('\ndata: c\n\ndata: d\n\n', 3);
    expect(events).toEqual([
      ['a', 1],
      ['b', 3],
      ['c', 3],
      ['d', 3],
    ]);
    expect(parser.isInsideEvent).toBe(false);
  });

  it('refuses an event without end', () => {
    const parser = new SseParser(() => undefined, 1000);
    const push = () => {
      for (let i = 0; i < 20; i++) parser.push(new TextEncoder().encode('data: '.padEnd(100, 'x')), 0);
    };
    expect(push).toThrow(PagodaError);
  });
});
