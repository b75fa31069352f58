// How a byte-level BPE vocabulary cuts text into words before merging, by the name that GGUF files give it (tokenizer.ggml.pre).
// Each scheme is a list of patterns applied one after the other: a match becomes a piece of its own, and so does what lies between.
// The patterns are those of the models' published tokenizer.json files; \s means Unicode White_Space, as there.

export interface PreTokenizer {
  readonly patterns: readonly string[];
  /** A word that is a token as a whole is taken at once, without merging. */
  readonly ignoreMerges: boolean;
  /** Whether BOS is put in front when the file does not say. */
  readonly addsBos: boolean;
}

const CONTRACTION = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])";
const SPACE_RUNS = '\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+';
const GPT2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
const LLAMA3 = `${CONTRACTION}|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|${SPACE_RUNS}`;
const QWEN2 = `${CONTRACTION}|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|${SPACE_RUNS}`;
const QWEN35 = `${CONTRACTION}|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|${SPACE_RUNS}`;
const BLOOM = ' ?[^(\\s|.,!?…。，、।۔،)]+';
const UPPER = '[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]';
const LOWER = '[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]';

/** A word whose capitals stand at its front, as the o200k and tekken vocabularies cut them. */
function casedWords(suffix: string, digits: string): string {
  const lead = '[^\\r\\n\\p{L}\\p{N}]?';
  return (
    `${lead}${UPPER}*${LOWER}+${suffix}|${lead}${UPPER}+${LOWER}*${suffix}` +
    `|${digits}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|${SPACE_RUNS}`
  );
}

// The cased letters that deepseek-llm's tokenizer.json lists one by one (an older Unicode version, without some scripts).
const DEEPSEEK_LETTERS = codePoints(
  '41-5a 61-7a b5 c0-d6 d8-f6 f8-1ba 1bc-1bf 1c4-293 295-2af 370-373 376 377 37b-37d 37f 386 388-38a 38c ' +
    '38e-3a1 3a3-3f5 3f7-481 48a-52f 531-556 10a0-10c5 13a0-13f5 13f8-13fd 1c90-1cba 1cbd-1cbf 1d00-1d2b ' +
    '1d6b-1d77 1d79-1d9a 1e00-1f15 1f18-1f1d 1f20-1f45 1f48-1f4d 1f50-1f57 1f59 1f5b 1f5d 1f5f-1f7d 1f80-1fb4 ' +
    '1fb6-1fbc 1fbe 1fc2-1fc4 1fc6-1fcc 1fd0-1fd3 1fd6-1fdb 1fe0-1fec 1ff2-1ff4 1ff6-1ffc 2102 2107 210a-2113 ' +
    '2115 2119-211d 2124 2126 2128 212a-212d 212f-2134 2139 213c-213f 2145-2149 214e 2183 2184 2c00-2c7b ' +
    '2c7e-2ce4 2ceb-2cee 2cf2 2cf3 a640-a66d a680-a69b a722-a76f a771-a787 a78b-a78e ab70-abbf fb00-fb06 ' +
    'fb13-fb17 ff21-ff3a ff41-ff5a 10400-1044f 104b0-104d3 104d8-104fb 10c80-10cb2 10cc0-10cf2 118a0-118df ' +
    '1e900-1e943',
);
const CJK = '[\\u4e00-\\u9fa5\\u0800-\\u4e00\\uac00-\\ud7ff]+';
// `\s+$` written so that a long run of whitespace is tried once and not from each of its characters.
const SPACE_AT_END = '(?<!\\s)\\s+$';

const scheme = (patterns: readonly string[], flags: Partial<PreTokenizer> = {}): PreTokenizer => ({
  ignoreMerges: false,
  addsBos: false,
  ...flags,
  patterns,
});

const gpt2 = scheme([GPT2]);
const digitsApart = scheme(['\\p{N}', GPT2]);
const qwen2 = scheme([QWEN2]);
const llama3 = scheme([LLAMA3], { ignoreMerges: true, addsBos: true });
const gpt4o = scheme([casedWords(`${CONTRACTION}?`, '\\p{N}{1,3}')]);
const deepseek3 = scheme([
  '\\p{N}{1,3}',
  '[\\u4e00-\\u9fa5\\u3040-\\u309f\\u30a0-\\u30ff]+',
  '[!"#$%&\'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+' +
    `| ?[\\p{P}\\p{S}]+[\\r\\n]*|${SPACE_RUNS}`,
]);
const bailing = scheme([
  `'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*` +
    '|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+',
]);

const SCHEMES: Readonly<Record<string, PreTokenizer>> = {
  default: scheme(['[\\p{P}\\$\\+<=>\\^~\\|]+', GPT2, '\\p{N}+', '[0-9][0-9][0-9]']),
  ...named(
    gpt2,
    'gpt-2 phi-2 jina-es jina-de jina-v2-es jina-v2-de jina-v1-en jina-v2-code roberta-bpe gigachat a.x-4.0',
  ),
  ...named(gpt2, 'mellum modern-bert mpt olmo jais trillion granite-docling exaone4'),
  ...named(digitsApart, 'smollm starcoder refact command-r codeshell exaone minerva-7b mellum2'),
  ...named(llama3, 'llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano'),
  ...named(scheme([LLAMA3]), 'dbrx smaug-bpe glm4 chatglm-bpe'),
  ...named(qwen2, 'qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2'),
  qwen35: scheme([QWEN35]),
  'deepseek-llm': scheme([
    '[\\r\\n]',
    `\\s?[${DEEPSEEK_LETTERS}]+`,
    '\\s?[!-\\/:-~\\uff01-\\uff0f\\uff1a-\\uff5e\\u2018-\\u201f\\u3000-\\u3002]+',
    SPACE_AT_END,
    CJK,
    '\\p{N}+',
  ]),
  'deepseek-coder': scheme(['[\\r\\n]', '\\s?\\p{L}+', '\\s?\\p{P}+', CJK, '\\p{N}']),
  ...named(deepseek3, 'deepseek-v3 hunyuan-dense hy_v4 joyai-llm'),
  falcon: scheme(['[\\p{P}\\$\\+<=>\\^~\\|`]+', GPT2, '[0-9][0-9][0-9]']),
  ...named(scheme([BLOOM]), 'bloom gpt3-finnish poro-chat'),
  viking: scheme([BLOOM, '\\p{N}']),
  tekken: scheme([casedWords('', '\\p{N}')], { ignoreMerges: true, addsBos: true }),
  ...named(gpt4o, 'gpt-4o llama4 kanana2 talkie minimax-m2'),
  ...named(bailing, 'bailingmoe bailingmoe2 llada-moe'),
  'seed-coder': scheme([
    `${CONTRACTION}|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|${SPACE_RUNS}`,
  ]),
  minicpm5: scheme(['\\p{N}{1,3}', LLAMA3.replace('{1,3}', '+')], { ignoreMerges: true }),
};

/** `41-5a b5` -> `\\u{41}-\\u{5a}\\u{b5}`: no look-alike letter can slip in. */
function codePoints(ranges: string): string {
  return ranges
    .split(' ')
    .map((range) =>
      range
        .split('-')
        .map((hex) => `\\u{${hex}}`)
        .join('-'),
    )
    .join('');
}

function named(preTokenizer: PreTokenizer, names: string): Record<string, PreTokenizer> {
  return Object.fromEntries(names.split(' ').map((name) => [name, preTokenizer]));
}

export function findPreTokenizer(name: string): PreTokenizer | null {
  return Object.hasOwn(SCHEMES, name) ? SCHEMES[name]! : null;
}

export function preTokenizerNames(): string[] {
  return Object.keys(SCHEMES).sort();
}

/** Cuts text into words; the words joined are the text. */
export class WordSplitter {
  readonly #patterns: readonly RegExp[];

  constructor(patterns: readonly string[]) {
    this.#patterns = patterns.map(
      (source) => new RegExp(source.replaceAll('\\s', '\\p{White_Space}').replaceAll('\\S', '\\P{White_Space}'), 'gu'),
    );
  }

  split(text: string): string[] {
    let pieces = [text];
    for (const pattern of this.#patterns) {
      const cut: string[] = [];
      for (const piece of pieces) cutAtMatches(piece, pattern, cut);
      pieces = cut;
    }
    return pieces;
  }
}

function cutAtMatches(text: string, pattern: RegExp, out: string[]): void {
  let end = 0;
  pattern.lastIndex = 0;
  for (let match = pattern.exec(text); match; match = pattern.exec(text)) {
    if (match.index > end) out.push(text.slice(end, match.index));
    out.push(match[0]);
    end = match.index + match[0].length;
  }
  if (end < text.length) out.push(text.slice(end));
}
