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
const DEEPSEEK_LETTERS =
  'A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼι' +
  'ῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ' +
  '𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃';
const CJK = '[一-龥ࠀ-一가-퟿]+';
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
  '[一-龥぀-ゟ゠-ヿ]+',
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
    '\\s?[!-\\/:-~！-／：-～‘-‟　-。]+',
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
