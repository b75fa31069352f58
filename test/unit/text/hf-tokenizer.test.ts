import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ggufTokenizer } from '../../../src/text/gguf-tokenizer.ts';
import { createHfTokenizer, hfTokenizer } from '../../../src/text/hf-tokenizer.ts';
import { readGgufMetadata } from './gguf-vocabulary.ts';
import { byteTokenizerJson, byteVocabulary } from './small-vocabularies.ts';

const assets = process.env.PAGODA_ASSETS ?? join(import.meta.dirname, '../../../assets');
const CONFIG = { bos_token: '<s>', eos_token: { content: '</s>' } };
const plain = { addSpecialTokens: false, parseSpecial: false };
const parsed = { addSpecialTokens: false, parseSpecial: true };

describe('tokenizer.json of the embedded model', () => {
  const tokenizer = hfTokenizer(assets);
  const gguf = ggufTokenizer(readGgufMetadata(join(assets, 'pagoda-mini.Q8_0.gguf')));

  it('encodes the golden prompts', () => {
    const goldens = JSON.parse(readFileSync(join(assets, 'goldens.json'), 'utf8'));
    const prompts: { prompt: string; ids: number[] }[] = (goldens.prompts ?? goldens.cases ?? goldens).map(
      (each: Record<string, unknown>) => ({
        prompt: each.text ?? each.prompt,
        ids: each.promptIds ?? each.prompt_ids ?? each.ids,
      }),
    );
    expect(prompts.length).toBe(16);
    for (const { prompt, ids } of prompts) {
      expect(tokenizer.encode(prompt, { addSpecialTokens: true, parseSpecial: true })).toEqual(ids);
      expect(gguf.encode(prompt, { addSpecialTokens: true, parseSpecial: true })).toEqual(ids);
    }
  });

  it('says the same as the GGUF file about any text', () => {
    const text = fc.oneof(
      fc.string({ unit: 'binary', maxLength: 40 }),
      fc.string({
        unit: fc.constantFrom(
          ' ',
          '\n',
          'a',
          "'s",
          '1',
          '中',
          'é',
          '<|im_end|>',
          '\t',
          'Hello',
          '\u0301',
          '!',
          '\ud800',
        ),
      }),
    );
    fc.assert(
      fc.property(text, fc.boolean(), (sample, parseSpecial) => {
        const options = { addSpecialTokens: true, parseSpecial };
        const ids = tokenizer.encode(sample, options);
        expect(ids).toEqual(gguf.encode(sample, options));
        // Every byte has a token in this vocabulary, so that nothing but lone surrogates is lost.
        expect(tokenizer.decode(ids, { skipSpecialTokens: false })).toBe(Buffer.from(sample, 'utf8').toString('utf8'));
      }),
      { numRuns: 300 },
    );
  });

  it('agrees with the GGUF file about every token', () => {
    expect(tokenizer.vocabSize).toBe(gguf.vocabSize);
    expect([tokenizer.bosTokenId, tokenizer.eosTokenId, tokenizer.addsBos]).toEqual([0, 2, false]);
    for (let id = 0; id < tokenizer.vocabSize; id++) {
      expect([id, tokenizer.tokenPiece(id), [...tokenizer.tokenBytes(id)], tokenizer.isControl(id)]).toEqual([
        id,
        gguf.tokenPiece(id),
        [...gguf.tokenBytes(id)],
        gguf.isControl(id),
      ]);
    }
  });
});

describe('added tokens', () => {
  const both = [createHfTokenizer(byteTokenizerJson(), CONFIG), byteVocabulary()];

  it('keeps a control token that the user spells as text, and parses user-defined ones', () => {
    for (const tokenizer of both) {
      const ids = tokenizer.encode('a<|im_end|><tool>b', plain);
      expect(ids.some((id) => tokenizer.isControl(id))).toBe(false);
      expect(ids).toContain(tokenizer.tokenId('<tool>'));
      expect(tokenizer.decode(ids, { skipSpecialTokens: true })).toBe('a<|im_end|><tool>b');
      expect(tokenizer.encode('a<|im_end|>', parsed)).toEqual([
        tokenizer.tokenId('a'),
        tokenizer.tokenId('<|im_end|>'),
      ]);
    }
  });

  it('never makes a control token out of a word of the vocabulary', () => {
    const model = byteTokenizerJson().model as Record<string, unknown>;
    const json = byteTokenizerJson({
      pre_tokenizer: { type: 'ByteLevel', add_prefix_space: false, use_regex: false },
      model: { ...model, ignore_merges: true },
    });
    const tokenizer = createHfTokenizer(json, CONFIG);
    const ids = tokenizer.encode('<|im_end|>', plain);
    expect(ids.some((id) => tokenizer.isControl(id))).toBe(false);
    expect(tokenizer.decode(ids, { skipSpecialTokens: true })).toBe('<|im_end|>');
  });

  it('puts BOS in front as tokenizer_config.json or the post-processor says', () => {
    const template = {
      type: 'TemplateProcessing',
      single: [{ SpecialToken: { id: '<s>', type_id: 0 } }, { Sequence: { id: 'A', type_id: 0 } }],
      pair: [],
      special_tokens: { '<s>': { id: '<s>', ids: [1], tokens: ['<s>'] } },
    };
    const encode = (post_processor: unknown, config: object): number[] => {
      const tokenizer = createHfTokenizer(byteTokenizerJson({ post_processor }), { ...CONFIG, ...config });
      const ids = tokenizer.encode('a', { addSpecialTokens: true, parseSpecial: true });
      expect(tokenizer.addsBos).toBe(ids[0] === 1);
      return ids;
    };
    const a = byteVocabulary().tokenId('a');
    expect(encode(null, {})).toEqual([a]);
    expect(encode(null, { add_bos_token: true })).toEqual([1, a]);
    expect(encode(template, {})).toEqual([1, a]);
    expect(encode(template, { add_bos_token: false })).toEqual([a]);
    expect(encode(template, { add_bos_token: true })).toEqual([1, a]);
    expect(encode(null, { add_eos_token: true })).toEqual([a, 2]);
  });
});

describe('SentencePiece tokenizer.json', () => {
  const pieces = [
    '<unk>',
    '<s>',
    '</s>',
    ...Array.from({ length: 256 }, (_, b) => `<0x${b.toString(16).toUpperCase().padStart(2, '0')}>`),
  ];
  const vocab = [...pieces, '▁', 'a', 'b', '▁a', 'ab'];
  const json = {
    added_tokens: ['<unk>', '<s>', '</s>'].map((content, id) => ({ id, content, special: true, normalized: false })),
    normalizer: {
      type: 'Sequence',
      normalizers: [
        { type: 'Prepend', prepend: '▁' },
        { type: 'Replace', pattern: { String: ' ' }, content: '▁' },
      ],
    },
    pre_tokenizer: null,
    post_processor: null,
    decoder: {
      type: 'Sequence',
      decoders: [
        { type: 'Replace', pattern: { String: '▁' }, content: ' ' },
        { type: 'ByteFallback' },
        { type: 'Fuse' },
        { type: 'Strip', content: ' ', start: 1, stop: 0 },
      ],
    },
    model: {
      type: 'BPE',
      unk_token: '<unk>',
      fuse_unk: true,
      byte_fallback: true,
      vocab: Object.fromEntries(vocab.map((piece, id) => [piece, id])),
      merges: [
        ['▁', 'a'],
        ['a', 'b'],
      ],
    },
  };
  const tokenizer = createHfTokenizer(json, CONFIG);

  it('writes spaces as pieces and unknown characters as bytes, and back', () => {
    const ids = tokenizer.encode('a abé', plain);
    expect(ids.map((id) => tokenizer.tokenPiece(id))).toEqual(['▁a', '▁a', 'b', '<0xC3>', '<0xA9>']);
    expect(tokenizer.decode(ids, { skipSpecialTokens: true })).toBe('a abé');
    expect(tokenizer.tokenText(ids[0]!)).toBe(' a');
  });

  it('keeps control tokens as text', () => {
    expect(tokenizer.encode('</s>', plain).some((id) => tokenizer.isControl(id))).toBe(false);
    expect(tokenizer.encode('</s>', parsed)).toEqual([2]);
  });
});

describe('what cannot be used', () => {
  const load = (overrides: Record<string, unknown>) => () => createHfTokenizer(byteTokenizerJson(overrides), CONFIG);

  it('is a clear error', () => {
    expect(load({ model: null })).toThrow(/tokenizer\.json cannot be used/);
    expect(load({ model: { type: 'BPE', merges: [] } })).toThrow(/model\.vocab is missing/);
    expect(load({ pre_tokenizer: { type: 'Nonsense' } })).toThrow(/tokenizer\.json cannot be used.*Nonsense/);
    expect(load({ decoder: { type: 'WordPiece' } })).toThrow(/decoder.*WordPiece.*not supported/);
    expect(load({ pre_tokenizer: { type: 'Split', pattern: { String: 'x' }, behavior: 'MergedWithNext' } })).toThrow(
      /MergedWithNext/,
    );
  });
});
