import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { StopStrings } from '../../../src/text/stop-strings.ts';

/** The specification: look at every end position in turn; the first one at which a stop string ends wins, the longest there. */
function oracle(text: string, stops: readonly string[], includeStop: boolean): { text: string; stop: string | null } {
  for (let end = 1; end <= text.length; end++) {
    const ending = stops.filter((stop) => text.slice(0, end).endsWith(stop));
    if (ending.length > 0) {
      const stop = ending.reduce((a, b) => (b.length > a.length ? b : a));
      return { text: text.slice(0, includeStop ? end : end - stop.length), stop };
    }
  }
  return { text, stop: null };
}

function run(chunks: readonly string[], stops: readonly string[], includeStop: boolean) {
  const matcher = new StopStrings(stops, { includeStop });
  let text = '';
  let seen = '';
  for (const chunk of chunks) {
    const { emit, stopString } = matcher.push(chunk);
    text += emit;
    seen += chunk;
    if (stopString !== null) return { text, stop: stopString };
    const numHeld = seen.length - text.length;
    // What is held back is exactly the longest end of the text that begins a stop string.
    const longest = Math.max(0, ...stops.map((stop) => longestOverlap(seen, stop)));
    expect(numHeld).toBe(longest);
  }
  return { text: text + matcher.flush(), stop: null };
}

function longestOverlap(text: string, stop: string): number {
  for (let n = Math.min(stop.length - 1, text.length); n > 0; n--) if (text.endsWith(stop.slice(0, n))) return n;
  return 0;
}

const word = fc.string({ unit: fc.constantFrom('a', 'b', 'c', '\n'), minLength: 1, maxLength: 5 });

describe('stop strings', () => {
  it('gives the same text however it is cut', () => {
    fc.assert(
      fc.property(
        fc.array(fc.string({ unit: fc.constantFrom('a', 'b', 'c', '\n'), maxLength: 8 }), { maxLength: 12 }),
        fc.array(word, { minLength: 1, maxLength: 5 }),
        fc.boolean(),
        (chunks, stops, includeStop) => {
          expect(run(chunks, stops, includeStop)).toEqual(oracle(chunks.join(''), stops, includeStop));
        },
      ),
      { numRuns: 500 },
    );
  });

  it('finds a stop string across chunk borders and cuts the text before it', () => {
    const matcher = new StopStrings(['\nUser:'], { includeStop: false });
    expect(matcher.push('Hi\nUs')).toEqual({ emit: 'Hi', stopString: null });
    expect(matcher.push('er: more')).toEqual({ emit: '', stopString: '\nUser:' });
    expect(matcher.push('ignored')).toEqual({ emit: '', stopString: null });
  });

  it('gives held text out when it turns out to be none', () => {
    const matcher = new StopStrings(['END'], { includeStop: true });
    expect(matcher.push('the EN').emit).toBe('the ');
    expect(matcher.push('ERGY').emit).toBe('ENERGY');
    expect(matcher.push(' E').emit).toBe(' ');
    expect(matcher.flush()).toBe('E');
  });

  it('never cuts a character in two for half a surrogate pair', () => {
    const matcher = new StopStrings(['\ud83d'], { includeStop: false });
    expect(matcher.push('a\u{1f600}b')).toEqual({ emit: 'a\u{1f600}b', stopString: null });
  });

  it('serves 64 stop strings of 1 KiB', () => {
    const stops = Array.from({ length: 64 }, (_, i) => `${'x'.repeat(1000)}${i}`.padEnd(1024, '!'));
    const matcher = new StopStrings(stops, { includeStop: false });
    let text = '';
    for (let i = 0; i < 200; i++) text += matcher.push('x'.repeat(20)).emit;
    expect(text.length).toBe(4000 - 1000);
    expect(matcher.push(stops[7]!.slice(1000))).toEqual({ emit: '', stopString: stops[7] });
  });
});
