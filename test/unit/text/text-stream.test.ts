import { describe, expect, it } from 'vitest';
import { TextStream } from '../../../src/text/text-stream.ts';
import type { Tokenizer } from '../../../src/text/tokenizer.ts';
import { byteVocabulary } from './small-vocabularies.ts';

const tokenizer: Tokenizer = byteVocabulary();
const idsOf = (text: string): number[] => tokenizer.encode(text, { addSpecialTokens: false, parseSpecial: true });
const options = { stop: [], includeStop: false, skipSpecialTokens: true, minTokens: 0 };

describe('text of one sequence', () => {
  it('joins detokenizer and stop strings', () => {
    const stream = new TextStream(tokenizer, { ...options, stop: ['é!'] });
    const ids = idsOf('caféé!x');
    const deltas = ids.map((id) => stream.push([id]));
    expect(deltas.map((delta) => delta.text).join('')).toBe('café');
    expect(deltas.find((delta) => delta.stop !== null)).toEqual({ text: '', stop: 'é!', numTokens: 1 });
    expect(deltas.at(-1)).toEqual({ text: '', stop: null, numTokens: 0 });
    expect(stream.finish()).toEqual({ text: '', stop: null, numTokens: 0 });
  });

  it('says how many of a batch of tokens belong to the text', () => {
    const stream = new TextStream(tokenizer, { ...options, stop: ['cd'], includeStop: true });
    expect(stream.push(idsOf('abcdef'))).toEqual({ text: 'abcd', stop: 'cd', numTokens: 4 });
  });

  it('does not look for stop strings before minTokens', () => {
    const stream = new TextStream(tokenizer, { ...options, stop: ['a'], minTokens: 3 });
    expect(stream.push(idsOf('aaaba'))).toEqual({ text: 'aaab', stop: 'a', numTokens: 5 });
  });

  it('gives the rest at the end: held text, and U+FFFD for half a character', () => {
    const stream = new TextStream(tokenizer, { ...options, stop: ['zz'] });
    expect(stream.push([...idsOf('xz'), ...idsOf('é').slice(0, 1)])).toEqual({ text: 'x', stop: null, numTokens: 3 });
    expect(stream.finish()).toEqual({ text: 'z\ufffd', stop: null, numTokens: 0 });
  });

  it('leaves control tokens out, or spells them', () => {
    const ids = idsOf('a<|im_end|>b');
    expect(ids.length).toBe(3);
    expect(new TextStream(tokenizer, options).push(ids).text).toBe('ab');
    expect(new TextStream(tokenizer, { ...options, skipSpecialTokens: false }).push(ids).text).toBe('a<|im_end|>b');
  });
});
