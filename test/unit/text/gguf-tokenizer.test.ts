import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { ggufTokenizer } from '../../../src/text/gguf-tokenizer.ts';
import { IncrementalDetokenizer } from '../../../src/text/incremental-detokenizer.ts';
import { noShared, sharedPath } from '../../shared-data.ts';
import { readGgufMetadata } from './gguf-vocabulary.ts';

interface TokenizerGolden {
  vocabSize: number;
  specialTokens: { id: number; text: string }[];
  cases: { name: string; text: string; idsParsed: number[]; idsPlain: number[] | null; decoded: string | null }[];
  incremental: {
    name: string;
    ids: number[];
    skipSpecialTokens: boolean;
    emit: string[];
    flush: string;
    text: string;
  }[];
}

const SMOLLM2 = 'models/smollm2-135m-instruct/SmolLM2-135M-Instruct.Q4_1.gguf';

describe.skipIf(noShared)('SmolLM2 vocabulary (GGUF gpt2, pre = smollm) against its golden results', () => {
  const tokenizer = noShared ? null! : ggufTokenizer(readGgufMetadata(sharedPath(SMOLLM2)));
  const golden: TokenizerGolden = noShared
    ? { vocabSize: 0, specialTokens: [], cases: [], incremental: [] }
    : JSON.parse(readFileSync(sharedPath('golden/tokenizer/tokenizer.json'), 'utf8'));

  it('knows the vocabulary and its special tokens', () => {
    expect(golden.cases.length).toBe(183);
    expect(golden.incremental.length).toBe(26);
    expect(tokenizer).toMatchObject({ kind: 'gpt2', vocabSize: 49152, bosTokenId: 1, eosTokenId: 2, addsBos: false });
    for (const { id, text } of golden.specialTokens) {
      expect(tokenizer.tokenId(text)).toBe(id);
      expect(tokenizer.isControl(id)).toBe(true);
    }
  });

  it('encodes all texts with special tokens parsed', () => {
    for (const { name, text, idsParsed } of golden.cases) {
      expect({ name, ids: tokenizer.encode(text, { addSpecialTokens: true, parseSpecial: true }) }).toEqual({
        name,
        ids: idsParsed,
      });
    }
  });

  it('encodes all texts as user data', () => {
    for (const { name, text, idsParsed, idsPlain } of golden.cases) {
      expect({ name, ids: tokenizer.encode(text, { addSpecialTokens: true, parseSpecial: false }) }).toEqual({
        name,
        ids: idsPlain ?? idsParsed,
      });
    }
  });

  it('decodes all ids', () => {
    for (const { name, text, idsParsed, decoded } of golden.cases) {
      expect({ name, text: tokenizer.decode(idsParsed, { skipSpecialTokens: false }) }).toEqual({
        name,
        text: decoded ?? text,
      });
    }
  });

  it('detokenizes incrementally', () => {
    for (const { name, ids, skipSpecialTokens, emit, flush, text } of golden.incremental) {
      const detokenizer = new IncrementalDetokenizer(tokenizer, { skipSpecialTokens });
      const emitted = ids.map((id) => detokenizer.push(id));
      expect({ name, emitted, flush: detokenizer.flush() }).toEqual({ name, emitted: emit, flush });
      expect(tokenizer.decode(ids, { skipSpecialTokens })).toBe(text);
      expect(detokenizer.numCharacters).toBe(Array.from(text).length);
    }
  });
});

describe.skipIf(noShared).each([
  { name: 'gpt-2', kind: 'gpt2' },
  { name: 'deepseek-llm', kind: 'gpt2' },
  { name: 'llama-spm', kind: 'llama' },
])('vocabulary $name against llama.cpp', ({ name, kind }) => {
  const path = `vocab/ggml-vocab-${name}.gguf`;
  const tokenizer = noShared ? null! : ggufTokenizer(readGgufMetadata(sharedPath(path)));

  it('encodes the texts of its .inp file to the ids of its .out file', () => {
    const texts = readFileSync(sharedPath(`${path}.inp`), 'utf8')
      .split('\n__ggml_vocab_test__\n')
      .slice(0, -1);
    const lines = readFileSync(sharedPath(`${path}.out`), 'utf8').split('\n');
    expect(texts.length).toBe(46);
    expect(tokenizer.kind).toBe(kind);
    texts.forEach((text, i) => {
      const expected = lines[i]!.trim() === '' ? [] : lines[i]!.trim().split(/\s+/).map(Number);
      expect({ text, ids: tokenizer.encode(text, { addSpecialTokens: false, parseSpecial: false }) }).toEqual({
        text,
        ids: expected,
      });
      expect(tokenizer.decode(expected, { skipSpecialTokens: false })).toBe(text);
    });
  });
});
