import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { GgufValue } from '../../../src/checkpoint/checkpoint.ts';
import { BYTE_TO_CHAR } from '../../../src/text/byte-alphabet.ts';
import { ggufTokenizer } from '../../../src/text/gguf-tokenizer.ts';
import { PairMerger, PairTable } from '../../../src/text/pair-merger.ts';
import { findPreTokenizer, preTokenizerNames, WordSplitter } from '../../../src/text/pre-tokenizers.ts';
import { Utf8Stream } from '../../../src/text/utf8-stream.ts';
import { noShared, sharedPath } from '../../shared-data.ts';
import { readGgufMetadata } from './gguf-vocabulary.ts';
import { byteMetadata, byteVocabulary } from './small-vocabularies.ts';

const plain = { addSpecialTokens: false, parseSpecial: false };

/** Merge the leftmost pair of lowest rank, look again. */
function mergeStupidly(ids: readonly number[], ranks: ReadonlyMap<string, { rank: number; merged: number }>): number[] {
  const symbols = [...ids];
  for (;;) {
    let best: { at: number; rank: number; merged: number } | null = null;
    for (let i = 0; i + 1 < symbols.length; i++) {
      const pair = ranks.get(`${symbols[i]},${symbols[i + 1]}`);
      if (pair && (!best || pair.rank < best.rank)) best = { at: i, ...pair };
    }
    if (!best) return symbols;
    symbols.splice(best.at, 2, best.merged);
  }
}

describe('merging pairs', () => {
  it('equals looking at every pair every time', () => {
    const pair = fc.record({
      left: fc.nat(7),
      right: fc.nat(7),
      rank: fc.nat(9),
      merged: fc.integer({ min: 4, max: 7 }),
    });
    fc.assert(
      fc.property(fc.array(pair, { maxLength: 20 }), fc.array(fc.nat(3), { maxLength: 30 }), (pairs, ids) => {
        const table = new PairTable(pairs.length);
        const ranks = new Map<string, { rank: number; merged: number }>();
        for (const { left, right, rank, merged } of pairs) {
          table.add(left, right, rank, merged);
          if (!ranks.has(`${left},${right}`)) ranks.set(`${left},${right}`, { rank, merged });
        }
        const symbols = Int32Array.from(ids);
        const positions = new Int32Array(ids.length);
        const numLeft = new PairMerger(table).merge(symbols, ids.length, positions);
        expect([...symbols.subarray(0, numLeft)]).toEqual(mergeStupidly(ids, ranks));
        expect(positions[0] ?? 0).toBe(0);
      }),
      { numRuns: 500 },
    );
  });
});

describe('UTF-8 in pieces', () => {
  it('equals decoding everything at once', () => {
    const bytes = fc.array(
      fc.oneof(fc.nat(255), fc.constantFrom(0xed, 0xa0, 0xf0, 0x90, 0x80, 0xe2, 0xbf, 0x41, 0xf4)),
      { maxLength: 30 },
    );
    fc.assert(
      fc.property(fc.array(bytes, { maxLength: 6 }), (chunks) => {
        const stream = new Utf8Stream();
        const text = chunks.map((chunk) => stream.push(Uint8Array.from(chunk))).join('') + stream.flush();
        expect(text).toBe(new TextDecoder('utf-8', { ignoreBOM: true }).decode(Uint8Array.from(chunks.flat())));
        expect(stream.isAtBoundary).toBe(true);
      }),
      { numRuns: 500 },
    );
  });
});

/** One name for each scheme; many names share one. */
const SCHEMES = [
  ...new Map(preTokenizerNames().map((name) => [findPreTokenizer(name)!.patterns.join('\n'), name])).values(),
];

describe('pre-tokenizers', () => {
  it('are known by name', () => {
    expect(preTokenizerNames().length).toBeGreaterThan(60);
    for (const name of [
      'default',
      'gpt-2',
      'smollm',
      'llama-bpe',
      'qwen2',
      'deepseek-v3',
      'falcon',
      'command-r',
      'tekken',
      'gpt-4o',
      'bloom',
    ]) {
      expect(findPreTokenizer(name), name).not.toBeNull();
    }
    expect(findPreTokenizer('constructor')).toBeNull();
  });

  it('cut any text without losing a character', () => {
    const text = fc.string({
      unit: fc.constantFrom(
        'a',
        'B',
        'é',
        '中',
        ' ',
        '\n',
        '\r',
        '\t',
        "'s",
        '1',
        '½',
        '!',
        '…',
        '\u0301',
        '😀',
        '\ufeff',
        '\x85',
      ),
      maxLength: 40,
    });
    for (const name of SCHEMES) {
      const splitter = new WordSplitter(findPreTokenizer(name)!.patterns);
      fc.assert(
        fc.property(text, (sample) => {
          const words = splitter.split(sample);
          expect(words.join('')).toBe(sample);
          expect(words.includes('')).toBe(false);
        }),
        { numRuns: 20 },
      );
    }
  });

  it('cut as their families do', () => {
    const cut = (name: string, text: string) => new WordSplitter(findPreTokenizer(name)!.patterns).split(text);
    expect(cut('gpt-2', "I'll pay 1234  now")).toEqual(['I', "'ll", ' pay', ' 1234', ' ', ' now']);
    expect(cut('smollm', 'a 123')).toEqual(['a', ' ', '1', '2', '3']);
    expect(cut('llama-bpe', "I'LL pay 12345\n\n x")).toEqual(['I', "'LL", ' pay', ' ', '123', '45', '\n\n', ' x']);
    expect(cut('qwen2', 'a 123')).toEqual(['a', ' ', '1', '2', '3']);
    expect(cut('gpt-4o', "HelloWorld don't ABC")).toEqual(['Hello', 'World', " don't", ' ABC']);
    expect(cut('deepseek-v3', 'x 1234中文 y')).toEqual(['x', ' ', '123', '4', '中文', ' y']);
    expect(cut('bloom', 'Hi there, you.')).toEqual(['Hi', ' there', ',', ' you', '.']);
  });
});

const LONG_TEXTS: [string, (n: number) => string][] = [
  ['one letter', (n) => 'a'.repeat(n)],
  ['capitals', (n) => 'A'.repeat(n)],
  ['spaces and a letter', (n) => `${' '.repeat(n)}x`],
  ['newlines', (n) => '\n'.repeat(n)],
  ['digits', (n) => '1234567890'.repeat(n / 10)],
  ['base64', (n) => 'QUJDREVGR0hJSktMTU5PUFFSU1RVVldY'.repeat(n / 32)],
  ['combining marks', (n) => `e${'\u0301'.repeat(n)}`],
  ['characters of four bytes', (n) => '😀'.repeat(n / 2)],
  ['zeros', (n) => '\0'.repeat(n)],
];

describe('long texts', () => {
  it('are cut by every pre-tokenizer without a hang or a stack overflow', () => {
    for (const [name, make] of LONG_TEXTS) {
      for (const preTokenizer of SCHEMES) {
        const text = make(32_000);
        const words = new WordSplitter(findPreTokenizer(preTokenizer)!.patterns).split(text);
        expect([name, preTokenizer, words.reduce((sum, word) => sum + word.length, 0)]).toEqual([
          name,
          preTokenizer,
          text.length,
        ]);
      }
    }
  });

  describe.skipIf(noShared).each([{ file: 'gpt-2' }, { file: 'llama-spm' }, { file: 'deepseek-llm' }])(
    'with the vocabulary of $file',
    ({ file }) => {
      it('twice the text is at most 2.5 times the merge work, and comes back whole', () => {
        const tokenizer = ggufTokenizer(readGgufMetadata(sharedPath(`vocab/ggml-vocab-${file}.gguf`))) as ReturnType<
          typeof ggufTokenizer
        > & { numMergeOperations: number };
        const work = (text: string): number => {
          const before = tokenizer.numMergeOperations;
          const ids = tokenizer.encode(text, plain);
          expect(tokenizer.decode(ids, { skipSpecialTokens: false })).toBe(text);
          return tokenizer.numMergeOperations - before;
        };
        for (const [name, make] of LONG_TEXTS) {
          const once = work(make(32_000));
          const twice = work(make(64_000));
          expect([name, twice <= 2.5 * once + 1000]).toEqual([name, true]);
        }
      });
    },
  );

  it('a megabyte of one letter is one word', () => {
    const tokenizer = byteVocabulary({ 'tokenizer.ggml.merges': ['a a', 'aa aa'] });
    const ids = tokenizer.encode('a'.repeat(1 << 20), plain);
    expect(ids.length).toBe(1 << 20);
    expect(tokenizer.decode(ids, { skipSpecialTokens: false })).toBe('a'.repeat(1 << 20));
  });
});

describe('odd texts', () => {
  it('come back as they went in, lone surrogates as U+FFFD', () => {
    const tokenizer = byteVocabulary();
    const text = fc.string({
      unit: fc.oneof(
        fc.constantFrom('\ud800', '\udc00', '\ufffe', '\ufeff', '\0', '\u202e', '<s>', '  '),
        fc.string({ unit: 'binary', maxLength: 1 }),
      ),
      maxLength: 30,
    });
    fc.assert(
      fc.property(text, fc.boolean(), (sample, parseSpecial) => {
        const ids = tokenizer.encode(sample, { addSpecialTokens: false, parseSpecial });
        expect(tokenizer.decode(ids, { skipSpecialTokens: false })).toBe(Buffer.from(sample, 'utf8').toString('utf8'));
      }),
      { numRuns: 500 },
    );
  });
});

describe('malformed and unsupported vocabularies', () => {
  const load = (extra: Record<string, GgufValue>) => () => byteVocabulary(extra);

  it('are clear errors', () => {
    expect(load({ 'tokenizer.ggml.model': 'bert' })).toThrow(/vocabulary type "bert".*not supported/);
    expect(load({ 'tokenizer.ggml.pre': 'nobody-knows' })).toThrow(/pre-tokenizer "nobody-knows".*Supported: .*smollm/);
    expect(load({ 'tokenizer.ggml.tokens': [] })).toThrow(/tokenizer\.ggml\.tokens is missing or empty/);
    expect(load({ 'tokenizer.ggml.tokens': 5 })).toThrow(/tokenizer\.ggml\.tokens must be a list of strings/);
    expect(load({ 'tokenizer.ggml.token_type': [1] })).toThrow(/token_type must be a list of \d+ numbers/);
    expect(load({ 'tokenizer.ggml.eos_token_id': 100_000 })).toThrow(/eos_token_id must be a token id below/);
    expect(load({ 'tokenizer.ggml.bos_token_id': 1.5 })).toThrow(/bos_token_id must be a token id/);
    expect(load({ 'tokenizer.ggml.add_bos_token': 1 })).toThrow(/add_bos_token must be a boolean/);
    expect(load({ 'tokenizer.ggml.model': 'llama' })).toThrow(/scores is missing/);
    const spm = {
      'tokenizer.ggml.model': 'llama',
      'tokenizer.ggml.tokens': ['<0xZZ>'],
      'tokenizer.ggml.scores': [0],
      'tokenizer.ggml.token_type': [6],
    };
    expect(load(spm)).toThrow(/<0xZZ>.*is no byte token/);
    const metadata = byteMetadata();
    metadata.delete('tokenizer.ggml.merges');
    expect(() => ggufTokenizer(metadata)).toThrow(/merges is missing/);
  });

  it('are defined where they can be: repeated and empty tokens, merges of unknown tokens, ids beyond the vocabulary', () => {
    const tokens = ['', 'a', 'a', ...BYTE_TO_CHAR.slice(0, 97), ...BYTE_TO_CHAR.slice(98)];
    const odd = {
      'tokenizer.ggml.tokens': tokens,
      'tokenizer.ggml.token_type': tokens.map(() => 1),
      'tokenizer.ggml.merges': ['a b', 'ab c', 'nonsense', 'x y z'],
    };
    const tokenizer = byteVocabulary(odd);
    const ids = tokenizer.encode('abc', plain);
    expect(tokenizer.decode(ids, { skipSpecialTokens: false })).toBe('abc');
    expect(tokenizer.tokenId('a')).toBe(1);
    expect([
      tokenizer.tokenText(99_999),
      tokenizer.tokenPiece(-1),
      tokenizer.isControl(99_999),
      tokenizer.decode([99_999], { skipSpecialTokens: true }),
    ]).toEqual(['', '', false, '']);
  });

  it('merges never make a control token', () => {
    const tokens = ['<s>', ...BYTE_TO_CHAR, '<s', 's>'];
    const types = tokens.map((_, id) => (id === 0 ? 3 : 1));
    const tokenizer = byteVocabulary({
      'tokenizer.ggml.tokens': tokens,
      'tokenizer.ggml.token_type': types,
      'tokenizer.ggml.merges': ['< s', '<s >'],
      'tokenizer.ggml.pre': 'bloom',
    });
    const ids = tokenizer.encode('<s>', plain);
    expect(ids.includes(0)).toBe(false);
    expect(tokenizer.decode(ids, { skipSpecialTokens: true })).toBe('<s>');
  });

  it('a model without a vocabulary takes ids only', () => {
    const tokenizer = ggufTokenizer(new Map<string, GgufValue>([['tokenizer.ggml.model', 'no_vocab']]));
    expect(tokenizer.kind).toBe('none');
    expect(() => tokenizer.encode('x', plain)).toThrow(/no tokenizer.*Send token ids/);
    expect(tokenizer.decode([1, 2], { skipSpecialTokens: true })).toBe('');
  });
});
