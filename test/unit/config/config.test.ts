import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import { HUMAN_NUMBER_RULE, parseHumanNumber } from '../../../src/config/human-number.ts';
import type { Option } from '../../../src/config/option.ts';
import { OPTIONS } from '../../../src/config/options.ts';
import { engineOptions, resolveConfig, serverOptions } from '../../../src/config.ts';
import { cacheFolder } from '../../../src/engine/cache-folder.ts';
import { completeEngineOptions, DEFAULT_ENGINE_OPTIONS } from '../../../src/engine/engine-options.ts';
import { speculationOptions } from '../../../src/engine/speculative-config.ts';
import { PagodaError } from '../../../src/errors.ts';
import { DEFAULT_LIMITS, DEFAULT_SERVER_OPTIONS } from '../../../src/server/server-options.ts';

type Flags = Parameters<typeof resolveConfig>[0]['flags'];

function resolve(flags: Flags = {}, env: NodeJS.ProcessEnv = {}, yaml: string | null = null) {
  return resolveConfig({ flags, env, file: yaml === null ? null : yamlFile(yaml) });
}

const folder = mkdtempSync(join(tmpdir(), 'pagoda-config-'));
afterAll(() => rmSync(folder, { recursive: true }));

function yamlFile(text: string): string {
  const path = join(folder, 'server.yaml');
  writeFileSync(path, text);
  return path;
}

function failure(run: () => unknown): PagodaError {
  try {
    run();
  } catch (error) {
    if (error instanceof PagodaError) return error;
    throw error;
  }
  throw new Error('accepted');
}

describe('the cache folder', () => {
  it('is the given one, PAGODA_CACHE_DIR, the XDG folder or the home folder, in this order', () => {
    const env = { PAGODA_CACHE_DIR: '/a', XDG_CACHE_HOME: '/b' };
    expect(cacheFolder('/c', env)).toBe('/c');
    expect(cacheFolder(null, env)).toBe('/a');
    expect(cacheFolder(null, { XDG_CACHE_HOME: '/b', PAGODA_CACHE_DIR: '' })).toBe('/b/pagoda');
    const home = join(homedir(), '.cache', 'pagoda');
    // A relative XDG path counts as not set.
    for (const other of [{}, { XDG_CACHE_HOME: 'b' }]) expect(cacheFolder(null, other)).toBe(home);
    expect(engineOptions(resolve({}, { PAGODA_CACHE_DIR: '/a' })).cacheDir).toBe('/a');
  });

  it('is kept within a size, or not at all', () => {
    const options = engineOptions(resolve({ 'packed-cache': 'false', 'packed-cache-size': '4G', 'cache-dir': '/x' }));
    expect(options).toMatchObject({ packedCache: false, packedCacheSize: 4 * 2 ** 30, cacheDir: '/x' });
    expect(failure(() => resolve({ 'packed-cache-size': '0' })).message).toContain('at least 1');
  });
});

describe('binding of threads', () => {
  it("takes vLLM's words and lists, and names them when it refuses", () => {
    expect(engineOptions(resolve()).cpuThreadsBind).toBe('auto');
    expect(engineOptions(resolve({}, { VLLM_CPU_OMP_THREADS_BIND: '0-3,8' })).cpuThreadsBind).toBe('0-3,8');
    expect(failure(() => resolve({ 'cpu-threads-bind': 'all' })).message).toContain('auto, nobind or a list of CPUs');
    expect(failure(() => completeEngineOptions({ cpuThreadsBind: '3-1' })).message).toContain('auto, nobind or a list');
  });
});

describe('human numbers', () => {
  // Small letters are powers of 1000 and take fractions; capitals are powers of 1024 and take none.
  it.each([
    ['8192', 8192],
    ['0', 0],
    ['4k', 4000],
    ['4K', 4096],
    ['2.5k', 2500],
    ['25.6k', 25_600],
    ['64m', 64_000_000],
    ['64M', 67_108_864],
    ['1g', 1e9],
    ['1G', 2 ** 30],
    ['0.5g', 500_000_000],
    ['2t', 2e12],
    ['2T', 2 * 2 ** 40],
  ])('%s is %d', (text, value) => expect(parseHumanNumber(text)).toBe(value));

  it.each([
    '2.5K',
    '4kk',
    '4 k',
    '-2',
    'abc',
    '',
    'k',
    '.5k',
    '5.k',
    '1.5',
    '1e3',
    '0x10',
    '1.2345k',
    '9999999999999999T',
    '４k',
  ])('%s is refused', (text) => expect(parseHumanNumber(text)).toBeNull());

  it('is exact where floating point is not', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 999_999 }), fc.integer({ min: 0, max: 999 }), (whole, thousandths) => {
        const fraction = String(thousandths).padStart(3, '0');
        expect(parseHumanNumber(`${whole}.${fraction}k`)).toBe(whole * 1000 + thousandths);
      }),
    );
  });
});

describe('--max-model-len in every place', () => {
  const places: ReadonlyArray<[string, (text: string) => unknown]> = [
    ['flag', (text) => resolve({ 'max-model-len': text }).maxModelLen],
    ['variable', (text) => resolve({}, { PAGODA_MAX_MODEL_LEN: text }).maxModelLen],
    ['file', (text) => resolve({}, {}, `max-model-len: ${text}\n`).maxModelLen],
  ];
  for (const [place, value] of places) {
    it.each([
      ['4k', 4000],
      ['4K', 4096],
      ['2.5k', 2500],
      ['8192', 8192],
      ['8.2k', 8200],
      ['auto', 'auto'],
      ['-1', 'auto'],
    ])(`${place}: %s gives %s`, (text, expected) => expect(value(text)).toBe(expected));
    it.each(['2.5K', '4kk', '4 k', '0', '-2', 'abc'])(`${place}: %s is refused with the rule`, (text) => {
      const error = failure(() => value(text));
      expect(error.code).toBe('bad_config');
      expect(error.message).toContain(HUMAN_NUMBER_RULE);
      expect(error.message).toContain(`got '${text}'`);
    });
  }

  it('knows the other counts too', () => {
    expect(resolve({ 'max-num-batched-tokens': '2k' }).maxNumBatchedTokens).toBe(2000);
    expect(resolve({ 'kv-cache-memory-bytes': '64M' }).kvCacheMemoryBytes).toBe(67_108_864);
    expect(resolve({ 'kv-cache-memory-bytes': '64m' }).kvCacheMemoryBytes).toBe(64_000_000);
  });
});

describe('precedence', () => {
  it('is flag, variable, file, default', () => {
    const yaml = 'port: 1\nblock-size: 32\nmax_num_seqs: 3\n';
    const env = { PAGODA_PORT: '2', PAGODA_BLOCK_SIZE: '64' };
    expect(resolve({ port: '3' }, env, yaml)).toMatchObject({
      port: 3,
      blockSize: 64,
      maxNumSeqs: 3,
      host: '127.0.0.1',
    });
  });

  it('takes lists, switches and objects from each place', () => {
    expect(resolve({ 'api-key': ['a', 'b'] }).apiKey).toEqual(['a', 'b']);
    expect(resolve({}, { VLLM_API_KEY: 'k' }).apiKey).toEqual(['k']);
    expect(resolve({}, { VLLM_API_KEY: 'k', PAGODA_API_KEY: 'p,q' }).apiKey).toEqual(['p', 'q']);
    expect(resolve({}, {}, 'served-model-name: [x, y]\nenable-prefix-caching: false\n')).toMatchObject({
      servedModelName: ['x', 'y'],
      enablePrefixCaching: false,
    });
    expect(resolve({}, {}, 'no-enable-chunked-prefill: true\n').enableChunkedPrefill).toBe(false);
    expect(resolve({ 'enable-prefix-caching': false }).enablePrefixCaching).toBe(false);
    expect(resolve({}, { PAGODA_ENABLE_PREFIX_CACHING: '0' }).enablePrefixCaching).toBe(false);
    expect(resolve({}, {}, 'override-generation-config: {temperature: 0.5}\n').overrideGenerationConfig).toEqual({
      temperature: 0.5,
    });
  });

  it('knows both names of the memory share', () => {
    expect(resolve({ 'gpu-memory-utilization': '0.5' }).memoryUtilization).toBe(0.5);
    expect(resolve({ 'memory-utilization': '0.5' }).memoryUtilization).toBe(0.5);
    expect(failure(() => resolve({ 'memory-utilization': '0.5', 'gpu-memory-utilization': '0.6' })).message).toContain(
      'the same option',
    );
  });
});

const ngram = (changes: Readonly<Record<string, number>>): Flags => ({
  'speculative-config': JSON.stringify({ method: 'ngram', num_speculative_tokens: 3, ...changes }),
});

describe('speculative-config', () => {
  it('has the defaults of vLLM: n-grams of 5, or both limits equal', () => {
    const options = (changes: Readonly<Record<string, number>>) =>
      speculationOptions(engineOptions(resolve(ngram(changes))).speculativeConfig!);
    expect(engineOptions(resolve()).speculativeConfig).toBeNull();
    expect(options({})).toMatchObject({ numDraftTokens: 3, minNgram: 5, maxNgram: 5 });
    expect(options({ prompt_lookup_max: 4 })).toMatchObject({ minNgram: 4, maxNgram: 4 });
    expect(options({ prompt_lookup_min: 2 })).toMatchObject({ minNgram: 2, maxNgram: 2 });
    expect(options({ prompt_lookup_max: 4, prompt_lookup_min: 2, disable_by_batch_size: 16 })).toEqual({
      numDraftTokens: 3,
      minNgram: 2,
      maxNgram: 4,
      maxSeqs: 16,
    });
  });
});

describe('refusals name the option, the allowed values, and where it stood', () => {
  it.each<[Flags, string]>([
    [
      { 'kv-cache-dtype': 'fp8' },
      "--kv-cache-dtype must be one of auto, f16, float16, bf16, bfloat16, f32, float32, int8, got 'fp8': CPUs have no fp8 arithmetic",
    ],
    [
      { 'tensor-parallel-size': '2' },
      "--tensor-parallel-size must be one of 1, got '2': Pagoda runs on one device for now.",
    ],
    [{ 'pipeline-parallel-size': '3' }, "--pipeline-parallel-size must be one of 1, got '3'"],
    [{ device: 'cuda' }, "--device must be one of auto, cpu, reference, got 'cuda': there is no GPU device yet."],
    [{ 'memory-utilization': '1.5' }, "--memory-utilization must be a number above 0 and up to 1, got '1.5'."],
    [{ watermark: '1' }, '--watermark must be a number from 0 up to, but not including, 1'],
    [{ port: '70000' }, 'from 0 to 65535'],
    [{ dtype: 'bfloat16' }, "--dtype must be one of auto, float32, float, got 'bfloat16'"],
    [
      { 'max-num-batched-tokens': '64' },
      '--max-num-batched-tokens (64) must be greater than or equal to --max-num-seqs (128).',
    ],
    [{ 'enable-chunked-prefill': false, 'chunked-prefill-size': '64' }, '--chunked-prefill-size needs chunked prefill'],
    [{ 'max-modle-len': '1' }, '--max-modle-len is not an option of Pagoda. Did you mean max-model-len?'],
    [{ 'override-generation-config': '[1]' }, '--override-generation-config must be a JSON object'],
    [{ 'speculative-config': '3' }, '--speculative-config must be a JSON object like {"method": "ngram"'],
    [
      { 'speculative-config': '{"method":"eagle"}' },
      "method must be one of ngram, got 'eagle': there are no draft models",
    ],
    [{ 'speculative-config': '{"method":"ngram"}' }, '--speculative-config num_speculative_tokens must be provided.'],
    [ngram({ num_speculative_tokens: 0 }), 'Expected num_speculative_tokens to be greater than zero (0)'],
    [ngram({ num_speculative_tokens: 1.5 }), 'num_speculative_tokens must be a whole number, got 1.5.'],
    [ngram({ prompt_lookup_min: 0 }), 'prompt_lookup_min=0 must be > 0'],
    [ngram({ prompt_lookup_min: 5, prompt_lookup_max: 3 }), 'prompt_lookup_min=5 must be <= prompt_lookup_max=3'],
    [ngram({ disable_by_batch_size: 1 }), 'threshold of disabling speculative decoding is > 1, but got 1'],
    [ngram({ draft_tensor_parallel_size: 1 }), "has no 'draft_tensor_parallel_size'; it takes method"],
  ])('%o', (flags, message) => {
    const error = failure(() => resolve(flags));
    expect(error.code).toBe('bad_config');
    expect(error.message).toContain(message);
  });

  it('in variables and files', () => {
    expect(failure(() => resolve({}, { PAGODA_PROT: '1' })).message).toBe(
      'PAGODA_PROT is not an option of Pagoda. Did you mean port?',
    );
    expect(failure(() => resolve({}, { PAGODA_PORT: 'x' })).message).toMatch(/^PAGODA_PORT must be/);
    expect(failure(() => resolve({}, {}, 'portt: 1')).message).toMatch(
      /^portt in .*server\.yaml is not an option of Pagoda\. Did you mean port\?$/,
    );
    expect(failure(() => resolve({}, {}, 'port: [1, 2]')).message).toMatch(/takes one value, got 2/);
    expect(failure(() => resolve({}, {}, '- a\n- b\n')).message).toContain('must be a mapping');
    expect(failure(() => resolve({}, {}, 'a: [')).code).toBe('bad_config');
    expect(failure(() => resolveConfig({ flags: {}, env: {}, file: '/nonexistent.yaml' })).message).toContain(
      '/nonexistent.yaml',
    );
  });
});

describe('slices', () => {
  it('without anything given are the defaults of engine and server', () => {
    const config = resolve();
    expect(engineOptions(config)).toEqual(DEFAULT_ENGINE_OPTIONS);
    expect(serverOptions(config, DEFAULT_LIMITS)).toEqual(DEFAULT_SERVER_OPTIONS);
    expect([Object.isFrozen(config), Object.isFrozen(engineOptions(config))]).toEqual([true, true]);
  });

  it('map what needs mapping', () => {
    expect(engineOptions(resolve({ dtype: 'float32' })).computeDtype).toBe('f32');
    expect(engineOptions(resolve({ model: 'org/name:Q4_0', revision: 'v1' })).model).toBe('org/name:Q4_0@v1');
    expect(failure(() => engineOptions(resolve({ model: './file.gguf', revision: 'v1' }))).message).toContain(
      '--revision needs a model of the form org/name',
    );
    expect(serverOptions(resolve({ model: 'm.gguf' }), DEFAULT_LIMITS).servedModelNames).toEqual(['m.gguf']);
  });
});

describe('the table of options', () => {
  it('has no name or variable twice, and every default passes its own check', () => {
    const options = Object.values(OPTIONS) as Array<Option<unknown>>;
    const names = options.flatMap((option) => [...option.names, ...option.env]);
    expect(new Set(names).size).toBe(names.length);
    for (const option of options) {
      if (option.default === null || typeof option.default === 'object' || option.names[0] === 'max-model-len')
        continue;
      expect(option.parse([String(option.default)]), option.names[0]).toEqual(option.default);
    }
  });
});

describe('completeEngineOptions', () => {
  it('fills in defaults and refuses what it does not know', () => {
    expect(completeEngineOptions({ blockSize: 32, maxNumSeqs: undefined as unknown as number })).toEqual({
      ...DEFAULT_ENGINE_OPTIONS,
      blockSize: 32,
    });
    expect(failure(() => completeEngineOptions({ blocksize: 1 } as object)).message).toContain(
      "'blocksize' is not an option",
    );
    expect(failure(() => completeEngineOptions({ blockSize: 7 })).message).toBe(
      'blockSize must be one of 8, 16, 32, 64, 128, got 7.',
    );
    expect(failure(() => completeEngineOptions({ memoryUtilization: 0 })).message).toContain('above 0 and up to 1');
  });
});
