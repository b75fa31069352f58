// The safetensors reader: folders as people have them load; malformed headers, indexes and quantized weights are refused by name.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import { ModelFile } from '../../../src/checkpoint/model-file.ts';
import { openSafetensors } from '../../../src/checkpoint/safetensors.ts';
import { parseSafetensors } from '../../../src/checkpoint/safetensors-file.ts';
import { parseJsonObject } from '../../../src/checkpoint/strict-json.ts';
import { PagodaError } from '../../../src/errors.ts';

const root = mkdtempSync(join(tmpdir(), 'pagoda-safetensors-'));
afterAll(() => rmSync(root, { recursive: true }));
let numFolders = 0;

type Entry = readonly [dtype: string, shape: readonly number[], bytes: Uint8Array];

function file(header: string, data: Uint8Array = new Uint8Array(0), headerBytes?: bigint): Buffer {
  const text = Buffer.from(header, 'utf8');
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(headerBytes ?? BigInt(text.length));
  return Buffer.concat([length, text, data]);
}

function tensors(entries: Readonly<Record<string, Entry>>): Buffer {
  const header: Record<string, unknown> = { __metadata__: { format: 'pt' } };
  const data: Uint8Array[] = [];
  let at = 0;
  for (const [name, [dtype, shape, bytes]] of Object.entries(entries)) {
    header[name] = { dtype, shape, data_offsets: [at, at + bytes.length] };
    data.push(bytes);
    at += bytes.length;
  }
  return file(JSON.stringify(header), Buffer.concat(data));
}

function floats(...values: number[]): Entry {
  return ['F32', [values.length], new Uint8Array(Float32Array.from(values).buffer)];
}

function folder(files: Readonly<Record<string, Buffer | string>>): string {
  const path = join(root, `f${numFolders++}`);
  for (const [name, content] of Object.entries({ 'config.json': '{"model_type": "llama"}', ...files })) {
    mkdirSync(dirname(join(path, name)), { recursive: true });
    writeFileSync(join(path, name), content);
  }
  return path;
}

function open(files: Readonly<Record<string, Buffer | string>>) {
  const checkpoint = openSafetensors(folder(files));
  const values = new Map<string, number[]>();
  for (const [name, tensor] of checkpoint.tensors) {
    if (tensor.type === 'F32') values.set(name, [...new Float32Array(checkpoint.readTensor(tensor).buffer)]);
  }
  checkpoint.close();
  return { checkpoint, values };
}

function refusal(files: Readonly<Record<string, Buffer | string>>): string {
  try {
    open(files);
  } catch (error) {
    expect(error).toBeInstanceOf(PagodaError);
    expect((error as PagodaError).code).toBe('bad_model_file');
    expect((error as PagodaError).message).toContain(root);
    return (error as PagodaError).message;
  }
  throw new Error('was accepted');
}

const index = (map: Readonly<Record<string, string>>) =>
  JSON.stringify({ metadata: { total_size: 0 }, weight_map: map });
const INDEX = 'model.safetensors.index.json';

describe('folders', () => {
  it('one file, with every number format that loads', () => {
    const { checkpoint, values } = open({
      'model.safetensors': tensors({
        a: floats(1, 2),
        h: ['F16', [2, 1], Uint8Array.of(0, 0x3c, 0, 0x40)],
        b: ['BF16', [1], Uint8Array.of(0x80, 0x3f)],
        scalar: ['F32', [], new Uint8Array(4)],
      }),
      'generation_config.json': '{"eos_token_id": [1, 2]}',
      'config.json': '{"architectures": ["LlamaForCausalLM"], "limit": Infinity}',
      'consolidated.safetensors': tensors({ a: floats(7, 7) }),
    });
    expect(values.get('a')).toEqual([1, 2]);
    expect(checkpoint.tensors.get('h')).toMatchObject({ type: 'F16', shape: [2, 1], numBytes: 4 });
    expect(checkpoint.config.limit).toBe(Number.POSITIVE_INFINITY);
    expect(checkpoint.generationConfig).toEqual({ eos_token_id: [1, 2] });
    expect(checkpoint.files).toEqual([join(checkpoint.folder, 'model.safetensors')]);
    expect(checkpoint.weightBytes).toBe(18);
  });

  it('with an index, only what it names counts', () => {
    const { values, checkpoint } = open({
      [INDEX]: index({ a: 'w-0.safetensors', b: 'sub/w-1.safetensors' }),
      'w-0.safetensors': tensors({ a: floats(1), stray: floats(7) }),
      'sub/w-1.safetensors': tensors({ b: floats(2), a: floats(7) }),
      'model.safetensors': tensors({ a: floats(7), b: floats(7) }),
    });
    expect([...values]).toEqual([
      ['a', [1]],
      ['b', [2]],
    ]);
    expect(checkpoint.warnings).toEqual([]);
  });

  it('drops rotary buffers and causal masks, whatever their type', () => {
    const { checkpoint } = open({
      'model.safetensors': tensors({
        'model.layers.0.self_attn.rotary_emb.inv_freq': ['I64', [1], new Uint8Array(8)],
        'h.0.attn.bias': ['BOOL', [1, 1, 2, 2], new Uint8Array(4)],
        'h.0.attn.masked_bias': floats(-1e4),
        'h.0.attn.c_attn.bias': floats(1),
      }),
    });
    expect([...checkpoint.tensors.keys()]).toEqual(['h.0.attn.c_attn.bias']);
  });

  it('names a missing shard, a tensor that is not in its shard, and paths that lead out', () => {
    const shard = tensors({ a: floats(1) });
    expect(refusal({ [INDEX]: index({ a: 'x.safetensors', b: 'y.safetensors' }), 'x.safetensors': shard })).toMatch(
      /y\.safetensors: missing/,
    );
    expect(refusal({ [INDEX]: index({ b: 'x.safetensors' }), 'x.safetensors': shard })).toMatch(
      /x\.safetensors: tensor b is not in it/,
    );
    for (const path of [
      '../../x',
      '../x.safetensors',
      '/etc/x.safetensors',
      'a/../x.safetensors',
      'a\\x.safetensors',
      'C:x.safetensors',
      'x.bin',
      '',
    ]) {
      expect(refusal({ [INDEX]: index({ a: path }) })).toMatch(/only \.safetensors files inside the folder/);
    }
    expect(refusal({ [INDEX]: '{"weight_map": []}' })).toMatch(/weight_map must be an object/);
    expect(refusal({ [INDEX]: index({}) })).toMatch(/names 0 tensors/);
  });

  it('never opens pickles or code', () => {
    expect(refusal({ 'pytorch_model.bin': 'PK' })).toMatch(/only pytorch_model\.bin; pickle files/);
    expect(refusal({ 'consolidated.safetensors': 'x' })).toMatch(
      /has neither .* consolidated\.safetensors, which only counts/,
    );
    const { checkpoint } = open({
      'config.json': '{"auto_map": {"AutoModel": "modeling_x.X"}}',
      'model.safetensors': tensors({ a: floats(1) }),
    });
    expect(checkpoint.warnings).toEqual([expect.stringMatching(/auto_map is ignored/)]);
  });

  it('needs a sound config.json', () => {
    const weights = { 'model.safetensors': tensors({ a: floats(1) }) };
    expect(refusal({ ...weights, 'config.json': '{"a": 1, "a": 2}' })).toMatch(/"a" is given twice/);
    expect(refusal({ ...weights, 'config.json': '[]' })).toMatch(/object is needed/);
    expect(refusal({ ...weights, 'config.json': Buffer.from([0x7b, 0xff, 0x7d]) })).toMatch(/UTF-8/);
  });
});

describe('quantized weights', () => {
  it.each(['awq', 'gptq', 'fp8', 'bitsandbytes', 'compressed-tensors'])(
    'refuses quantization_config of %s',
    (method) => {
      const config = JSON.stringify({ quantization_config: { quant_method: method, bits: 4 } });
      expect(refusal({ 'config.json': config, 'model.safetensors': tensors({ a: floats(1) }) })).toContain(method);
    },
  );

  it.each([
    'q_proj.weight_scale',
    'q_proj.weight_scale_inv',
    'q_proj.scales',
    'q_proj.weight.absmax',
    'k_proj.input_scale',
  ])('warns about %s', (name) => {
    const { checkpoint } = open({ 'model.safetensors': tensors({ 'q_proj.weight': floats(1), [name]: floats(2) }) });
    expect(checkpoint.warnings).toEqual([expect.stringContaining(name)]);
  });

  it.each([
    ['w', 'I8'],
    ['w', 'F8_E4M3'],
    ['l.qweight', 'U8'],
    ['l.g_idx', 'BOOL'],
  ])('refuses %s of %s by name', (name, dtype) => {
    expect(
      refusal({ 'model.safetensors': tensors({ a: floats(1), [name]: [dtype, [4], new Uint8Array(4)] }) }),
    ).toMatch(new RegExp(`tensor ${name} has dtype ${dtype}`));
  });

  it('quantization_config null asks for nothing', () => {
    open({ 'config.json': '{"quantization_config": null}', 'model.safetensors': tensors({ a: floats(1) }) });
  });
});

describe('header', () => {
  const one = (entry: string, data = 8) => file(`{"a":${entry}}`, new Uint8Array(data));
  const full = (shape: string, offsets: string, dtype = '"F32"') =>
    one(`{"dtype":${dtype},"shape":${shape},"data_offsets":${offsets}}`);
  it.each([
    ['empty file', Buffer.alloc(0), /only 0 bytes/],
    ['header longer than the file', file('{}', undefined, 3n), /header length at byte 0 is 3/],
    ['header of 2^63', file('{}', undefined, 2n ** 63n), /9223372036854775808/],
    ['header of 0', file('{}', undefined, 0n), /header length at byte 0 is 0/],
    ['header of 101 MB', file('{}', new Uint8Array(10), 101_000_000n), /more than 100000000/],
    ['not JSON', file('{"a" 1}'), /":" is needed/],
    ['not an object', file('[1, 2]'), /does not begin with/],
    [
      'malformed UTF-8',
      Buffer.concat([file('{"a'), Buffer.from([0xff])].map((b, i) => (i === 0 ? Buffer.from(b).fill(4, 0, 1) : b))),
      /UTF-8/,
    ],
    [
      'duplicate key',
      file(
        '{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}',
        new Uint8Array(4),
      ),
      /given twice/,
    ],
    [
      'duplicate key in an entry',
      one('{"dtype":"F32","dtype":"U8","shape":[2],"data_offsets":[0,8]}'),
      /"dtype" is given twice/,
    ],
    [
      'duplicate key by escape',
      one('{"dtype":"F32","d\\u0074ype":"U8","shape":[2],"data_offsets":[0,8]}'),
      /"dtype" is given twice/,
    ],
    [
      '__proto__',
      file('{"__proto__":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', new Uint8Array(4)),
      /__proto__ is not allowed/,
    ],
    ['entry is a list', one('[]'), /not an object/],
    ['unknown key', one('{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1}'), /unknown key x/],
    ['unknown dtype', full('[2]', '[0,8]', '"F31"'), /unknown dtype "F31"/],
    ['dtype from the prototype', full('[2]', '[0,8]', '"toString"'), /unknown dtype/],
    ['dtype is a number', full('[2]', '[0,8]', '7'), /unknown dtype 7/],
    ['offsets swapped', full('[1]', '[4,0]'), /do not lie/],
    ['negative offset', full('[1]', '[-1,3]'), /do not lie/],
    ['fraction', full('[1]', '[0.5,1]'), /0\.5 is not an integer/],
    ['exponent', full('[1]', '[0,4e0]'), /4e0 is not an integer/],
    ['beyond 2^53', full('[1]', '[0,9007199254740993]'), /not an integer below 2\^53/],
    ['beyond the file', full('[3]', '[0,12]'), /do not lie in the 8 bytes/],
    ['three offsets', full('[2]', '[0,4,8]'), /two integers/],
    ['shape is not a list', full('8', '[0,8]'), /shape must be/],
    ['shape of 0', full('[0]', '[0,0]'), /shape must be/],
    ['shape of 9 dimensions', full('[1,1,1,1,1,1,1,1,2]', '[0,8]'), /shape must be/],
    ['shape does not fit', full('[3]', '[0,8]'), /takes 12 bytes/],
    ['shape that wraps to 4', full('[4194305,4194305,211106198978564]', '[0,8]'), /too many values/],
    [
      'a gap at the start',
      file('{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}', new Uint8Array(8)),
      /leaves a gap/,
    ],
    [
      'an overlap',
      file(
        '{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}',
        new Uint8Array(8),
      ),
      /overlaps/,
    ],
    [
      'data left over',
      file('{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', new Uint8Array(8)),
      /the tensors end at byte/,
    ],
  ])('refuses %s', (_, bytes, message) => {
    expect(refusal({ 'model.safetensors': bytes })).toMatch(message);
    expect(({} as Record<string, unknown>).dtype).toBeUndefined();
  });

  it('refuses every prefix of a good file', () => {
    const good = tensors({ a: floats(1, 2), b: floats(3) });
    for (let length = 0; length <= good.length; length++) {
      const path = join(root, `prefix-${length}.safetensors`);
      writeFileSync(path, good.subarray(0, length));
      const opened = new ModelFile(path);
      if (length < good.length) expect(() => parseSafetensors(opened)).toThrow(PagodaError);
      else expect(parseSafetensors(opened).length).toBe(2);
      opened.close();
    }
  });
});

describe('strict JSON', () => {
  const options = { path: 'x.json' };
  it('agrees with JSON.parse on every document without duplicate keys', () => {
    fc.assert(
      fc.property(fc.dictionary(fc.string(), fc.jsonValue({ maxDepth: 4 })), fc.nat({ max: 3 }), (value, indent) => {
        const text = JSON.stringify(value, null, indent);
        const expected = JSON.parse(text) as unknown;
        if (/"__proto__":/.test(text)) return;
        expect(JSON.stringify(parseJsonObject(text, options))).toBe(JSON.stringify(expected));
      }),
    );
  });

  it('refuses what JSON.parse refuses', () => {
    const text = '{"a": [1, -2.5e3, "x\\n\\u00e9", true, null], "b": {}}';
    fc.assert(
      fc.property(
        fc.nat({ max: text.length - 1 }),
        fc.constantFrom('', ',', '"', '{', ']', '0', '\\', '\n', 'e', ':'),
        (at, insert) => {
          const mutated = text.slice(0, at) + insert + text.slice(at + 1);
          let accepts = true;
          try {
            JSON.parse(mutated);
          } catch {
            accepts = false;
          }
          if (accepts) parseJsonObject(mutated, options);
          else expect(() => parseJsonObject(mutated, options)).toThrow(PagodaError);
        },
      ),
      { numRuns: 1000 },
    );
  });

  it('bounds depth and takes NaN only where allowed', () => {
    expect(() => parseJsonObject(`{"a":${'['.repeat(100_000)}`, options)).toThrow(/deeper than 64/);
    expect(() => parseJsonObject('{"a": NaN}', options)).toThrow(PagodaError);
    expect(parseJsonObject('{"a": [NaN, -Infinity]}', { ...options, allowNonFinite: true }).a).toEqual([
      Number.NaN,
      Number.NEGATIVE_INFINITY,
    ]);
  });
});
