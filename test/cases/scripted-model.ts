// A Llama whose answer is known in advance. Hidden size = vocabulary, one layer, all attention and MLP weights zero: the residual
// stream is the one-hot embedding of the last token, and the LM head is a table "after token t comes token u". The greedy text
// is a chain that the last prompt token selects, whatever stands before it. Certain steps have a logit of 40 against 0. The
// letter D rolls a loaded die of eight faces for ever, each with a known probability.

import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ggmlTypeF32, tensorsOf, type WriterKey, writeGguf } from './scripted-gguf.ts';

export const VOCABULARY = 512;
export const DIE: readonly number[] = [0.3, 0.22, 0.16, 0.12, 0.08, 0.06, 0.04, 0.02];
const NORM = 1 / Math.sqrt(1 / VOCABULARY + 1e-5);
const CERTAIN = 40;
const KV_SIZE = 128;
const FEED_FORWARD = 64;

/** Repeats the last character of the last message at the end of the prompt, so that "... A" runs chain A. */
const TURNS =
  "<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{{ messages[-1]['content'][-1:] }}{% endif %}";
export const CHATML = `{% for m in messages %}${TURNS}`;
/** Raises for a system message and when user and assistant do not take turns. */
export const STRICT =
  "{% if messages[0]['role'] == 'system' %}{{ raise_exception('this model takes no system message') }}{% endif %}{% for m in messages %}" +
  `{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('user and assistant must take turns') }}{% endif %}${TURNS}`;

/** Byte-level BPE writes each byte as one visible character. */
function byteCharacters(): string[] {
  let numMoved = 0;
  return Array.from({ length: 256 }, (_, byte) => {
    const isVisible = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || (byte >= 174 && byte <= 255);
    return String.fromCharCode(isVisible ? byte : 256 + numMoved++);
  });
}

const CHARACTERS = byteCharacters();
export const byteToken = (letter: string): number => 3 + letter.charCodeAt(0);

class Script {
  readonly tokens = ['<pad>', '<s>', '</s>', ...CHARACTERS];
  readonly control = new Set([0, 1, 2]);
  readonly next = new Map<number, ReadonlyArray<readonly [number, number]>>();

  token(text: string): number {
    return this.tokens.push([...Buffer.from(text)].map((byte) => CHARACTERS[byte]).join('')) - 1;
  }

  controlToken(text: string): number {
    const id = this.tokens.push(text) - 1;
    this.control.add(id);
    return id;
  }

  chain(letter: string, texts: readonly string[], end: number): void {
    let current = byteToken(letter);
    for (const id of [...texts.map((text) => this.token(text)), end]) {
      if (!this.next.has(current)) this.next.set(current, [[id, 1]]);
      current = id;
    }
  }
}

const script = new Script();
script.controlToken('<|im_start|>');
/** Ids of three more tokens that may end a text. */
export const [IM_END, TEXT_END, TURN_END] = ['<|im_end|>', '<|endoftext|>', '<|turn|>'].map((text) =>
  script.controlToken(text),
) as [number, number, number];
const leak = script.token(' LEAK');
for (const id of [leak, 2, IM_END, TEXT_END, TURN_END]) script.next.set(id, [[leak, 1]]);
for (const [letter, end] of [
  ['A', 2],
  ['B', IM_END],
  ['C', TEXT_END],
  ['J', TURN_END],
] as const) {
  script.chain(letter, [`${letter}-one`, ` ${letter}-two`, ` ${letter}-three`], end);
}
script.chain('E', ['Hel', 'lo'], 2);
script.chain('U', [' Mars', '?\n', 'U-LEAK'], 2);
const [tick, tock] = [script.token('tick '), script.token('tock ')] as const;
script.next
  .set(byteToken('W'), [[tick, 1]])
  .set(tick, [[tock, 1]])
  .set(tock, [[tick, 1]]);
export const FACES: readonly number[] = DIE.map((_, i) => script.token(`${i + 1} `));
for (const id of [byteToken('D'), ...FACES])
  script.next.set(
    id,
    FACES.map((face, i) => [face, DIE[i]!] as const),
  );

/** Text of the chains that end at a token of their own. */
export const chainText = (letter: 'A' | 'B' | 'C' | 'J'): string => `${letter}-one ${letter}-two ${letter}-three`;

function weights(): Map<string, { shape: readonly number[]; values: Float32Array }> {
  const head = new Float32Array(VOCABULARY * VOCABULARY);
  const embedding = new Float32Array(VOCABULARY * VOCABULARY);
  for (let token = 0; token < VOCABULARY; token++) {
    embedding[token * VOCABULARY + token] = 1;
    for (const [next, probability] of script.next.get(token) ?? [[2, 1] as const]) {
      head[next * VOCABULARY + token] = (CERTAIN + Math.log(probability)) / NORM;
    }
  }
  const zeros = (...shape: number[]) => ({ shape, values: new Float32Array(shape.reduce((a, b) => a * b)) });
  const ones = () => ({ shape: [VOCABULARY], values: new Float32Array(VOCABULARY).fill(1) });
  const layer = 'model.layers.0.';
  return new Map([
    ['model.embed_tokens.weight', { shape: [VOCABULARY, VOCABULARY], values: embedding }],
    ['lm_head.weight', { shape: [VOCABULARY, VOCABULARY], values: head }],
    ['model.norm.weight', ones()],
    [`${layer}self_attn.q_proj.weight`, zeros(VOCABULARY, VOCABULARY)],
    [`${layer}self_attn.k_proj.weight`, zeros(KV_SIZE, VOCABULARY)],
    [`${layer}self_attn.v_proj.weight`, zeros(KV_SIZE, VOCABULARY)],
    [`${layer}self_attn.o_proj.weight`, zeros(VOCABULARY, VOCABULARY)],
    [`${layer}mlp.gate_proj.weight`, zeros(FEED_FORWARD, VOCABULARY)],
    [`${layer}mlp.up_proj.weight`, zeros(FEED_FORWARD, VOCABULARY)],
    [`${layer}mlp.down_proj.weight`, zeros(VOCABULARY, FEED_FORWARD)],
    [`${layer}input_layernorm.weight`, ones()],
    [`${layer}post_attention_layernorm.weight`, ones()],
  ]);
}

export interface FolderOptions {
  readonly config?: Readonly<Record<string, unknown>>;
  /** Contents of generation_config.json; absent = no such file. */
  readonly generation?: Readonly<Record<string, unknown>>;
  readonly template?: string;
  /** The tokenizer's end token, spelled. */
  readonly eos?: string;
}

/** Writes a Hugging Face folder and returns its path. */
export function writeScriptedFolder(path: string, options: FolderOptions = {}): string {
  mkdirSync(path, { recursive: true });
  const json = (name: string, value: unknown) => writeFileSync(join(path, name), JSON.stringify(value));
  json('config.json', {
    architectures: ['LlamaForCausalLM'],
    model_type: 'llama',
    hidden_size: VOCABULARY,
    num_hidden_layers: 1,
    num_attention_heads: 8,
    num_key_value_heads: 2,
    head_dim: 64,
    intermediate_size: FEED_FORWARD,
    vocab_size: VOCABULARY,
    max_position_embeddings: 8192,
    rms_norm_eps: 1e-5,
    rope_theta: 10_000,
    tie_word_embeddings: false,
    hidden_act: 'silu',
    torch_dtype: 'float32',
    bos_token_id: 1,
    eos_token_id: 2,
    ...options.config,
  });
  json('tokenizer.json', tokenizerJson());
  json('tokenizer_config.json', {
    bos_token: '<s>',
    eos_token: options.eos ?? '</s>',
    pad_token: '<pad>',
    add_bos_token: false,
    chat_template: options.template ?? CHATML,
    tokenizer_class: 'PreTrainedTokenizerFast',
  });
  if (options.generation !== undefined) json('generation_config.json', options.generation);
  writeFileSync(join(path, 'model.safetensors'), safetensors());
  return path;
}

function tokenizerJson(): unknown {
  return {
    version: '1.0',
    truncation: null,
    padding: null,
    added_tokens: [...script.control].map((id) => ({
      id,
      content: script.tokens[id],
      single_word: false,
      lstrip: false,
      rstrip: false,
      normalized: false,
      special: true,
    })),
    normalizer: null,
    pre_tokenizer: { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: false },
    post_processor: null,
    decoder: { type: 'ByteLevel', add_prefix_space: true, trim_offsets: true, use_regex: true },
    model: {
      type: 'BPE',
      dropout: null,
      unk_token: null,
      continuing_subword_prefix: null,
      end_of_word_suffix: null,
      fuse_unk: false,
      byte_fallback: false,
      ignore_merges: false,
      vocab: Object.fromEntries(script.tokens.map((token, id) => [token, id])),
      merges: [],
    },
  };
}

function safetensors(): Buffer {
  const header: Record<string, unknown> = {};
  const parts: Buffer[] = [];
  let offset = 0;
  for (const [name, { shape, values }] of weights()) {
    header[name] = { dtype: 'F32', shape, data_offsets: [offset, offset + values.byteLength] };
    offset += values.byteLength;
    parts.push(Buffer.from(values.buffer));
  }
  const text = Buffer.from(JSON.stringify(header));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  return Buffer.concat([length, text, ...parts]);
}

export interface GgufOptions {
  readonly template?: string;
  /** Absent = no such key. */
  readonly bos?: number;
  readonly addBos?: boolean;
}

/** Writes the same model as a GGUF file and returns its path. */
export function writeScriptedGguf(path: string, options: GgufOptions = {}): string {
  const unused = Array.from({ length: VOCABULARY - script.tokens.length }, (_, i) => `[unused${i}]`);
  const types = [...script.tokens, ...unused].map((_, id) =>
    script.control.has(id) ? 3 : id >= script.tokens.length ? 5 : 1,
  );
  const number = (key: string, value: number): WriterKey => ({ key, type: 'u32', value });
  const keys: WriterKey[] = [
    { key: 'general.architecture', type: 'string', value: 'llama' },
    number('llama.block_count', 1),
    number('llama.context_length', 8192),
    number('llama.embedding_length', VOCABULARY),
    number('llama.feed_forward_length', FEED_FORWARD),
    number('llama.attention.head_count', 8),
    number('llama.attention.head_count_kv', 2),
    { key: 'llama.attention.layer_norm_rms_epsilon', type: 'f32', value: 1e-5 },
    number('llama.rope.dimension_count', 64),
    { key: 'llama.rope.freq_base', type: 'f32', value: 10_000 },
    number('llama.vocab_size', VOCABULARY),
    { key: 'tokenizer.ggml.model', type: 'string', value: 'gpt2' },
    { key: 'tokenizer.ggml.pre', type: 'string', value: 'gpt-2' },
    { key: 'tokenizer.ggml.tokens', type: 'array', elementType: 'string', value: [...script.tokens, ...unused] },
    { key: 'tokenizer.ggml.token_type', type: 'array', elementType: 'i32', value: types },
    { key: 'tokenizer.ggml.merges', type: 'array', elementType: 'string', value: ['z z'] },
    number('tokenizer.ggml.eos_token_id', 2),
    { key: 'tokenizer.chat_template', type: 'string', value: options.template ?? CHATML },
  ];
  if (options.bos !== undefined) keys.push(number('tokenizer.ggml.bos_token_id', options.bos));
  if (options.addBos !== undefined)
    keys.push({ key: 'tokenizer.ggml.add_bos_token', type: 'bool', value: options.addBos });
  writeFileSync(path, writeGguf(keys, tensorsOf(weights(), ggmlTypeF32)));
  return path;
}
