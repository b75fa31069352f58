import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { checkContentHeaders, parseJsonBody } from '../../../src/server/json-body.ts';

const bytes = (text: string) => new TextEncoder().encode(text);

/** Depth by walking the parsed value: what the byte scan must agree with. */
function depthOf(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 0;
  return 1 + Math.max(0, ...Object.values(value).map(depthOf));
}

describe('parseJsonBody', () => {
  it('equals JSON.parse on objects, and refuses exactly what is too deep', () => {
    fc.assert(
      fc.property(
        fc.dictionary(fc.string(), fc.jsonValue({ maxDepth: 5 })),
        fc.integer({ min: 1, max: 6 }),
        (object, maxDepth) => {
          fc.pre(!Object.hasOwn(object, '__proto__'));
          const text = JSON.stringify(object);
          const parsed = JSON.parse(text);
          const run = () => parseJsonBody(bytes(text), maxDepth);
          if (depthOf(parsed) > maxDepth) expect(run).toThrow(`deeper than ${maxDepth} levels`);
          else if (!text.includes('__proto__')) expect(run()).toEqual(parsed);
        },
      ),
    );
  });

  it('drops __proto__ at any depth, also when escaped', () => {
    const parsed = parseJsonBody(bytes('{"a":{"__proto__":1,"b":2},"\\u005f\\u005fproto__":3}'), 64);
    expect(JSON.stringify(parsed)).toBe('{"a":{"b":2}}');
  });
});

describe('checkContentHeaders', () => {
  it('takes JSON with parameters and vendor JSON', () => {
    for (const type of ['application/json', 'Application/JSON; charset=utf-8', 'application/vnd.api+json']) {
      expect(() => checkContentHeaders({ 'content-type': type })).not.toThrow();
    }
    expect(() => checkContentHeaders({})).toThrow('Only application/json');
    expect(() => checkContentHeaders({ 'content-type': 'application/json', 'content-encoding': 'br' })).toThrow('br');
  });
});
