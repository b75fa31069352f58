// MODEL as people write it: names, files, folders, and ids in a Hugging Face cache made here with its links and refs.
import { existsSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { describeCheckpoint } from '../../../src/checkpoint/describe-checkpoint.ts';
import { tagOf } from '../../../src/checkpoint/gguf-choice.ts';
import { hubCacheFolder, parseModelId } from '../../../src/checkpoint/hub-cache.ts';
import { listCachedModels } from '../../../src/checkpoint/list-models.ts';
import { openModel } from '../../../src/checkpoint/resolve-model.ts';
import { PagodaError } from '../../../src/errors.ts';
import { f32Tensor, writeGguf, writeSplitGguf } from './gguf-writer.ts';

const root = mkdtempSync(join(tmpdir(), 'pagoda-hub-'));
const env = { HF_HOME: join(root, 'hf') };
afterAll(() => rmSync(root, { recursive: true }));

function gguf(name: string, { architecture = 'llama', type = 'model' } = {}): Buffer {
  const text = (key: string, value: string) => ({ key, type: 'string', value }) as const;
  return writeGguf(
    [text('general.architecture', architecture), text('general.type', type), text('general.name', name)],
    [f32Tensor('x', [32])],
  );
}

/** Adds one snapshot as huggingface_hub lays it out: blobs, links to them, a ref. */
function snapshot(
  id: string,
  commit: string,
  files: Readonly<Record<string, Buffer>>,
  { ref = 'main' as string | null, ageSeconds = 0 } = {},
): string {
  const folder = join(root, 'hf', 'hub', `models--${id.replace('/', '--')}`);
  const target = join(folder, 'snapshots', commit);
  mkdirSync(join(folder, 'blobs'), { recursive: true });
  for (const [name, bytes] of Object.entries(files)) {
    const blob = join(folder, 'blobs', Buffer.from(`${commit}${name}`).toString('hex').slice(-60));
    writeFileSync(blob, bytes);
    mkdirSync(dirname(join(target, name)), { recursive: true });
    symlinkSync(relative(dirname(join(target, name)), blob), join(target, name));
  }
  if (ref !== null) {
    mkdirSync(dirname(join(folder, 'refs', ref)), { recursive: true });
    writeFileSync(join(folder, 'refs', ref), commit);
  }
  const then = Date.now() / 1000 - ageSeconds;
  utimesSync(target, then, then);
  return target;
}

const commit = (digit: string) => digit.repeat(40);
const config = Buffer.from('{"architectures": ["LlamaForCausalLM"]}');
const safetensors = (() => {
  const header = Buffer.from('{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}');
  return Buffer.concat([Buffer.from(BigUint64Array.of(BigInt(header.length)).buffer), header, Buffer.alloc(4)]);
})();
let many = '';

beforeAll(() => {
  many = snapshot('acme/many-gguf', commit('a'), {
    'README.md': Buffer.from('x'),
    'many-q4_k_m.gguf': gguf('the q4_k_m'),
    'many-q4_k_s.gguf': gguf('the q4_k_s'),
    'many_Q8_0.gguf': gguf('the q8_0'),
    'mmproj-many-Q8_0.gguf': gguf('projector', { architecture: 'clip', type: 'mmproj' }),
    'vision-Q8_0.gguf': gguf('projector by kind only', { type: 'mmproj' }),
    'many.imatrix.gguf': gguf('imatrix', { type: 'imatrix' }),
    'UD-Q4_K_XL/many-UD-Q4_K_XL.gguf': gguf('the UD-Q4_K_XL'),
    'Q6_K/many.gguf': gguf('the q6_k by folder'),
  });
  snapshot('acme/full', commit('5'), { 'm-BF16.gguf': gguf('the bf16'), 'm-F16.gguf': gguf('the f16') });
  snapshot('acme/one', commit('1'), { 'nothing-known.gguf': gguf('the only one') });
  snapshot('acme/hf', commit('2'), { 'config.json': config, 'model.safetensors': safetensors });
  snapshot('acme/both', commit('3'), {
    'config.json': config,
    'model.safetensors': safetensors,
    'both-Q4_0.gguf': gguf('the q4_0'),
  });
  snapshot('acme/versions', commit('d'), { 'v-Q8_0.gguf': gguf('old') }, { ref: 'v1.0' });
  snapshot('acme/versions', commit('e'), { 'v-Q8_0.gguf': gguf('new') });
  snapshot('acme/versions', commit('f'), { 'v-Q8_0.gguf': gguf('pull request') }, { ref: 'refs/pr/1' });
  snapshot('acme/no-ref', commit('6'), { 'n-Q8_0.gguf': gguf('older') }, { ref: null, ageSeconds: 1000 });
  snapshot('acme/no-ref', commit('7'), { 'n-Q8_0.gguf': gguf('newer') }, { ref: null });
  snapshot('acme/readme', commit('8'), { 'README.md': Buffer.from('x') });
  const split = writeSplitGguf(
    's-Q4_K_M',
    [{ key: 'general.architecture', type: 'string', value: 'llama' }],
    [[f32Tensor('a', [8])], [f32Tensor('b', [8])]],
  );
  snapshot('acme/split', commit('9'), Object.fromEntries(split));
  snapshot('acme/twins', commit('0'), { 'a-Q8_0.gguf': gguf('a'), 'b-Q8_0.gguf': gguf('b') });
});

function open(name: string): { name: string | null; warnings: readonly string[] } {
  const checkpoint = openModel(name, { env });
  const facts = describeCheckpoint(checkpoint);
  checkpoint.close();
  return { name: facts.name, warnings: checkpoint.warnings };
}

function refusal(name: string): PagodaError {
  try {
    open(name);
  } catch (error) {
    expect(error).toBeInstanceOf(PagodaError);
    return error as PagodaError;
  }
  throw new Error(`${name} was accepted`);
}

describe('a quantization in the cache', () => {
  it.each([
    ['acme/many-gguf:Q4_K_M', 'the q4_k_m'],
    ['acme/many-gguf:q4_k_m', 'the q4_k_m'],
    ['acme/many-gguf:Q8_0', 'the q8_0'],
    ['acme/many-gguf:UD-Q4_K_XL', 'the UD-Q4_K_XL'],
    ['acme/many-gguf:ud-q4_k_xl', 'the UD-Q4_K_XL'],
    ['acme/many-gguf:q6_k', 'the q6_k by folder'],
    ['acme/full:bf16', 'the bf16'],
    ['acme/full:F16', 'the f16'],
    ['acme/one:known', 'the only one'],
    ['acme/both:Q4_0', 'the q4_0'],
    ['acme/twins:b-Q8_0', 'b'],
    ['acme/versions:Q8_0@v1.0', 'old'],
    ['acme/versions:Q8_0', 'new'],
    [`acme/versions@${commit('d')}`, 'old'],
    ['acme/versions@refs/pr/1', 'pull request'],
  ])('%s is %s', (name, expected) => {
    expect(open(name)).toEqual({ name: expected, warnings: [] });
  });

  it('an unclear or absent one is refused with the real choices', () => {
    const ambiguous = refusal('acme/many-gguf:Q4_K');
    expect(ambiguous.code).toBe('bad_config');
    expect(ambiguous.message).toMatch(/Q4_K is ambiguous.*Q4_K_M \(many-q4_k_m\.gguf\), Q4_K_S/);
    const missing = refusal('acme/many-gguf:Q5_K_M');
    expect(missing.code).toBe('bad_config');
    for (const tag of ['Q4_K_M', 'Q4_K_S', 'Q8_0', 'UD-Q4_K_XL', 'Q6_K']) expect(missing.message).toContain(tag);
    expect(missing.message).not.toMatch(/mmproj|imatrix|vision/);
    expect(refusal('acme/many-gguf:Q4').message).toMatch(/has no quantization Q4|ambiguous/);
    expect(refusal('acme/many-gguf:K_M').message).toMatch(/has no quantization K_M/);
    expect(refusal('acme/full:Q4_K_M').message).toMatch(/choices are BF16 \(m-BF16\.gguf\), F16 \(m-F16\.gguf\)/);
    expect(refusal('acme/twins:Q8_0').message).toMatch(/ambiguous: a-Q8_0\.gguf, b-Q8_0\.gguf/);
    expect(refusal('acme/hf:Q8_0').code).toBe('bad_config');
  });

  it('without one a documented choice is made and said', () => {
    const { name, warnings } = open('acme/many-gguf');
    expect(name).toBe('the q4_k_m');
    expect(warnings).toEqual([expect.stringMatching(/using Q4_K_M \(many-q4_k_m\.gguf\)\. Also there: .*Q8_0/)]);
    expect(open('acme/one')).toEqual({ name: 'the only one', warnings: [] });
    expect(openModel('acme/both', { env }).format).toBe('safetensors');
  });

  it('opens split sets and safetensors through their links', () => {
    const split = openModel('acme/split:Q4_K_M', { env });
    expect([...split.tensors.keys()]).toEqual(['a', 'b']);
    split.close();
    expect(openModel('acme/hf', { env }).tensors.size).toBe(1);
  });

  it('without a ref the newest snapshot is used and said', () => {
    const { name, warnings } = open('acme/no-ref');
    expect(name).toBe('newer');
    expect(warnings[0]).toMatch(/newest snapshot, 7777/);
  });

  it('what is not there says what to run', () => {
    for (const [name, command] of [
      ['acme/absent', 'hf download acme/absent'],
      ['acme/absent:Q4_K_M@v2', 'hf download acme/absent --include "*Q4_K_M*" --revision v2'],
      ['acme/versions@v9', 'hf download acme/versions --revision v9'],
      [`acme/versions@${commit('0')}`, 'hf download acme/versions --revision 0000'],
      ['acme/readme', 'hf download acme/readme'],
    ] as const) {
      const error = refusal(name);
      expect(error.code).toBe('not_found');
      expect(error.message).toContain(command);
    }
  });
});

describe('names that lead elsewhere', () => {
  it.each([
    '../../etc',
    '../x/y',
    'a/../../b',
    'acme/many-gguf@../../main',
    'acme/many-gguf@/etc',
    'a/b@.hidden',
    '/absolutely/not',
    'C:\\x',
    'C:\\x\\y.gguf',
    'a--b/c',
    'sha256-zz',
    'a\0b',
    '',
    'x/y.gguf',
    'a/b:c:d',
    'org/name:@x',
  ])('%j is refused', (name) => {
    expect(['not_found', 'bad_config']).toContain(refusal(name).code);
  });

  it('a link out of the cache is refused, a broken one does not count', () => {
    const outside = join(root, 'outside.gguf');
    writeFileSync(outside, gguf('outside'));
    const target = snapshot('acme/escape', commit('b'), { 'README.md': Buffer.from('x') });
    symlinkSync(join(root, 'nowhere'), join(target, 'broken-Q8_0.gguf'));
    expect(refusal('acme/escape').message).toMatch(/no complete safetensors or GGUF/);
    symlinkSync(outside, join(target, 'e-Q8_0.gguf'));
    expect(refusal('acme/escape:Q8_0').message).toMatch(/leads out of/);
    rmSync(join(target, 'e-Q8_0.gguf'));
    expect(existsSync(outside)).toBe(true);
  });

  it('takes ids apart', () => {
    expect(parseModelId('org/name:Q4_K_M@main')).toEqual({ repository: 'org/name', quant: 'Q4_K_M', revision: 'main' });
    expect(parseModelId('org/name.v1_x')).toEqual({ repository: 'org/name.v1_x', quant: null, revision: null });
    expect(parseModelId('org/na..me')).toBeNull();
  });

  it('finds the cache as huggingface_hub does', () => {
    expect(hubCacheFolder({ HF_HUB_CACHE: '/c', HF_HOME: '/h' })).toBe('/c');
    expect(hubCacheFolder({ HF_HOME: '/h', XDG_CACHE_HOME: '/x' })).toBe('/h/hub');
    expect(hubCacheFolder({ XDG_CACHE_HOME: '/x', HOME: '/u' })).toBe('/x/huggingface/hub');
    expect(hubCacheFolder({ HOME: '/u' })).toBe('/u/.cache/huggingface/hub');
  });
});

describe('files and folders', () => {
  it('a folder with one GGUF is that one; with several it must be named; projectors are no models', () => {
    const folder = join(root, 'local');
    mkdirSync(folder);
    writeFileSync(join(folder, 'a-Q8_0.gguf'), gguf('a'));
    writeFileSync(join(folder, 'mmproj-a.gguf'), gguf('p', { architecture: 'clip' }));
    expect(open(folder).name).toBe('a');
    writeFileSync(join(folder, 'config.json'), config);
    expect(open(folder).name).toBe('a');
    writeFileSync(join(folder, 'b-Q8_0.gguf'), gguf('b'));
    expect(refusal(folder).message).toMatch(/several models.*a-Q8_0\.gguf.*b-Q8_0\.gguf/);
    expect(refusal(join(folder, 'mmproj-a.gguf')).message).toMatch(/of kind clip|of kind model|not a language model/);
    expect(refusal(join(folder, 'config.json')).message).toMatch(/give the folder/);
    writeFileSync(join(folder, 'pytorch_model.bin'), 'x');
    expect(refusal(join(folder, 'pytorch_model.bin')).message).toMatch(/pickle/);
    expect(open(join(many, 'many_Q8_0.gguf')).name).toBe('the q8_0');
  });

  it('lists what can be served', () => {
    const { models, problems } = listCachedModels(env);
    const names = models.map(({ name }) => name);
    expect(names[0]).toBe('pagoda-mini');
    expect(names).toContain('acme/many-gguf:q4_k_m');
    expect(names).toContain('acme/hf');
    expect(names).toContain('acme/twins:a-Q8_0');
    expect(names.some((name) => /mmproj|imatrix|vision/.test(name))).toBe(false);
    for (const { name, format, path, numBytes } of models.slice(1)) {
      const checkpoint = openModel(name, { env });
      expect([checkpoint.format, numBytes > 0, existsSync(path)]).toEqual([format, true, true]);
      checkpoint.close();
    }
    expect(problems).toEqual([]);
    expect(listCachedModels({ HF_HOME: join(root, 'none') }).models.length).toBe(1);
  });

  it.each([
    ['tiny-instruct-q4_k_m.gguf', 'q4_k_m'],
    ['Tiny.IQ4_XS.gguf', 'IQ4_XS'],
    ['tiny-Q4_K_M-00001-of-00003.gguf', 'Q4_K_M'],
    ['BF16/tiny-00001-of-00002.gguf', 'BF16'],
    ['gpt-oss-20b-MXFP4.gguf', 'MXFP4'],
    ['tiny-f16.gguf', 'f16'],
    ['model_q5_1.gguf', 'q5_1'],
    ['tiny-Q4_K_M-v2.gguf', 'Q4_K_M'],
    ['tiny.gguf', null],
    ['myq4_0model.gguf', null],
  ])('tag of %s is %s', (name, tag) => {
    expect(tagOf(name)).toBe(tag);
  });
});
