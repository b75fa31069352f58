// The conformance suite: the same cases for every device and every path of it. Numbers are compared with the reference device
// within what the number formats allow; everything that promise P1 covers is compared bit by bit.

import { afterAll, describe, expect, it } from 'vitest';
import type { Checkpoint, TensorType } from '../../src/checkpoint/checkpoint.ts';
import { DEFAULT_SAMPLING, type SamplingParams } from '../../src/core/sampling-params.ts';
import type { RowForm } from '../../src/device/cpu/addon.ts';
import type { Device, DeviceLimits } from '../../src/device/device.ts';
import type { KvDtype } from '../../src/device/kv-layout.ts';
import { logSumExp } from '../../src/device/reference/logprobs.ts';
import { createReferenceDevice, type KvOptions } from '../../src/device/reference/reference-device.ts';
import { SamplerScratch, sampleToken } from '../../src/device/reference/sample.ts';
import { TokenHistory } from '../../src/device/reference/token-history.ts';
import type { LoadedModel } from '../../src/model/load-model.ts';
import { type Program, ProgramBuilder, type Value, type WeightRef } from '../../src/model/program.ts';
import { DeviceDriver, type DrivenSequence, GREEDY } from './device-driver.ts';
import { type SyntheticModel, type SyntheticOptions, syntheticModel, testRandom } from './synthetic-model.ts';
import { type SyntheticShape, syntheticProgram } from './synthetic-program.ts';

export type MakeDevice = (
  model: LoadedModel,
  checkpoint: Checkpoint,
  kv: KvOptions,
  limits: DeviceLimits,
) => Promise<Device>;

export interface DeviceUnderTest {
  readonly name: string;
  readonly make: MakeDevice;
  /** f32 = all arithmetic in float32; int8 = quantized weights times int8 activations. */
  readonly computeDtype: 'f32' | 'int8';
  /** In which form products with weights of a format take their activations. */
  readonly rowForm: (format: TensorType) => RowForm;
  /** Block sizes the device accepts. */
  readonly blockSizes: readonly number[];
  /** Heads whose size is no multiple of it are refused by name; 1 = any size. */
  readonly headMultiple: number;
}

const LIMITS: DeviceLimits = { maxTokens: 512, maxSeqs: 8, maxModelLen: 1200 };
const NUM_BLOCKS = 200;
const KV_F32: KvOptions = { dtype: 'f32', blockSize: 16 };

/** Relative error of one rounding to the format. */
const ROUNDING: Readonly<Record<KvDtype, number>> = { f32: 0, f16: 2 ** -11, bf16: 2 ** -8, int8: 1 / 127 };
const FLOAT_ROUNDING = 2 ** -24;

/** Every op and every option of it, in shapes that are no multiples of anything. */
const SHAPES: ReadonlyArray<readonly [name: string, shape: Partial<SyntheticShape>]> = [
  ['plain', {}],
  [
    'odd sizes',
    {
      hidden: 37,
      inner: 53,
      vocab: 67,
      numHeads: 3,
      numKvHeads: 3,
      headDim: 40,
      rope: { style: 'half', rotaryDim: 40, magnitude: 1 },
    },
  ],
  [
    'one head, one layer',
    {
      numHeads: 1,
      numKvHeads: 1,
      headDim: 24,
      windows: [0],
      rope: { style: 'interleaved', rotaryDim: 24, magnitude: 1 },
    },
  ],
  ['gelu', { activation: 'gelu' }],
  ['gelu tanh', { activation: 'geluTanh' }],
  ['relu', { activation: 'relu' }],
  ['plain mlp, silu', { mlp: 'plain', bias: true }],
  ['plain mlp, gelu', { mlp: 'plain', activation: 'gelu' }],
  ['plain mlp, gelu tanh', { mlp: 'plain', activation: 'geluTanh', bias: true }],
  ['plain mlp, relu', { mlp: 'plain', activation: 'relu', bias: true }],
  ['layer norm', { norm: 'layer', bias: true }],
  ['layer norm without bias', { norm: 'layerWithoutBias' }],
  ['norms on q and k', { qkNorm: true }],
  ['norms after the parts', { postNorm: true, embeddingScale: 6.9 }],
  ['rope interleaved', { rope: { style: 'interleaved', rotaryDim: 16, magnitude: 1 } }],
  ['rope on a part of the head', { rope: { style: 'half', rotaryDim: 6, magnitude: 1 } }],
  ['rope on a part, interleaved, with magnitude', { rope: { style: 'interleaved', rotaryDim: 10, magnitude: 1.25 } }],
  [
    'learned positions',
    {
      rope: null,
      positions: { offset: 0 },
      norm: 'layer',
      mlp: 'plain',
      activation: 'geluTanh',
      bias: true,
      tied: true,
    },
  ],
  ['learned positions with offset', { rope: null, positions: { offset: 2 } }],
  ['soft caps', { attentionSoftcap: 5, finalSoftcap: 3 }],
  ['windows', { windows: [8, 8] }],
  ['windows in some layers', { windows: [5, 0, 5, 0], attentionSoftcap: 7 }],
  ['two kinds of windows', { windows: [1, 33, 0] }],
  ['multi-query', { numHeads: 6, numKvHeads: 1 }],
  ['every head its own', { numHeads: 4, numKvHeads: 4 }],
  ['tied output', { tied: true }],
  ['parallel parts', { parallel: true, norm: 'layer', bias: true, mlp: 'plain', activation: 'gelu' }],
  ['experts', { mlp: 'moe' }],
  [
    'experts, not renormalised, one of three',
    { mlp: 'moe', moe: { numExperts: 3, topK: 1, renormalise: false, shared: 'none' } },
  ],
  [
    'experts with a gated shared one',
    { mlp: 'moe', moe: { numExperts: 5, topK: 3, renormalise: false, shared: 'gated' } },
  ],
  [
    'experts with a plain shared one',
    { mlp: 'moe', activation: 'geluTanh', moe: { numExperts: 4, topK: 4, renormalise: true, shared: 'plain' } },
  ],
];

const FORMATS: readonly TensorType[] = [
  'F16',
  'BF16',
  'Q8_0',
  'Q4_0',
  'Q4_1',
  'Q5_0',
  'Q5_1',
  'Q2_K',
  'Q3_K',
  'Q4_K',
  'Q5_K',
  'Q6_K',
  'IQ4_NL',
  'IQ4_XS',
  'MXFP4',
];
/** Rows of whole K-quant blocks. */
const QUANTIZED_SHAPE: Partial<SyntheticShape> = {
  hidden: 256,
  inner: 512,
  headDim: 64,
  numHeads: 4,
  numKvHeads: 2,
  windows: [0],
  rope: { style: 'half', rotaryDim: 64, magnitude: 1 },
};
/** Relative error of activations in a form. */
const FORM_ROUNDING: Readonly<Record<RowForm, number>> = { float: 0, int8: ROUNDING.int8, bf16: ROUNDING.bf16 };

export function deviceCases(device: DeviceUnderTest): void {
  const opened: Array<() => void | Promise<void>> = [];
  const buildProgram = (program: Program, options: SyntheticOptions = {}): SyntheticModel & { program: Program } => {
    const model = syntheticModel(program, options);
    opened.push(() => model.dispose());
    return { ...model, program };
  };
  const build = (shape: Partial<SyntheticShape>, options: SyntheticOptions = {}) =>
    buildProgram(syntheticProgram(shape), options);
  const make = async (model: SyntheticModel, kv: KvOptions = KV_F32): Promise<Device> => {
    const made = await device.make(model.model, model.checkpoint, kv, LIMITS);
    opened.push(() => made.dispose());
    return made;
  };
  const context: CaseContext = { device, build, buildProgram, make };

  describe(`device ${device.name}`, () => {
    afterAll(async () => {
      for (const close of opened.reverse()) await close();
    });
    numberCases(context);
    invarianceCases(context);
    draftCases(context);
    samplingCases(context);
    logprobCases(context);
    faultCases(context);
  });
}

interface CaseContext {
  readonly device: DeviceUnderTest;
  build(shape: Partial<SyntheticShape>, options?: SyntheticOptions): SyntheticModel & { program: Program };
  buildProgram(program: Program, options?: SyntheticOptions): SyntheticModel & { program: Program };
  make(model: SyntheticModel, kv?: KvOptions): Promise<Device>;
}

function randomTokens(seed: number, length: number, vocab: number): number[] {
  const random = testRandom(seed);
  return Array.from({ length }, () => Math.floor(random() * vocab));
}

/** Logits against the reference device. */
function numberCases({ device, build, buildProgram, make }: CaseContext): void {
  const compare = async (
    model: SyntheticModel & { program: Program },
    kv: KvOptions,
    roundings: Roundings,
  ): Promise<void> => {
    const tokens = randomTokens(3, 70, model.program.vocabSize);
    const tested = await make(model, kv);
    const reference = createReferenceDevice(model.model, model.checkpoint, kv, LIMITS);
    const found = await tested.logits(tokens);
    const wanted = await reference.logits(tokens);
    expect(found.length).toBe(wanted.length);
    const size = wanted.reduce((max, x) => Math.max(max, Math.abs(x)), 0);
    const worst = wanted.reduce((max, x, i) => Math.max(max, Math.abs(x - found[i])), 0);
    expect(Number.isFinite(size) && size > 0.1).toBe(true);
    expect(worst / size).toBeLessThanOrEqual(tolerance(model.program, roundings));
  };

  describe('logits', () => {
    it.each(SHAPES)('%s', async (_, shape) => {
      await compare(build(shape), KV_F32, {});
    });

    it('heads of an odd size: computed, or refused by name', async () => {
      const model = build({ headDim: 10, rope: { style: 'half', rotaryDim: 10, magnitude: 1 } });
      if (10 % device.headMultiple === 0) await compare(model, KV_F32, {});
      else await expect(make(model)).rejects.toThrow(`head dimension must be a multiple of ${device.headMultiple}`);
    });

    it.each(FORMATS)('weights in %s', async (format) => {
      const activations = FORM_ROUNDING[device.rowForm(format)];
      await compare(build(QUANTIZED_SHAPE, { format }), KV_F32, { activations });
    });

    it('the best ones in float32, also from quantized output weights', async () => {
      const program = outputLayerOnly(256, 1000);
      const model = buildProgram(program, { format: 'Q4_1' });
      const tokens = randomTokens(3, 70, program.vocabSize);
      const found = await (await make(model)).logits(tokens);
      const wanted = await createReferenceDevice(model.model, model.checkpoint, KV_F32, LIMITS).logits(tokens);
      for (const t of tokens.keys()) {
        const row = found.subarray(t * program.vocabSize, (t + 1) * program.vocabSize);
        const best = row.reduce((at, x, i) => (x > row[at] ? i : at), 0);
        const exact = wanted[t * program.vocabSize + best];
        expect(Math.abs(row[best] - exact)).toBeLessThanOrEqual(FLOAT_ROUNDING * 256 * Math.abs(exact));
      }
    });

    it.each(['f16', 'bf16', 'int8'] as const)('KV in %s', async (dtype) => {
      const model = build({ windows: [0, 9] });
      await compare(model, { ...KV_F32, dtype }, { kv: ROUNDING[dtype] });
      // The format must really be used: it changes the numbers.
      const plain = await (await make(model)).logits(randomTokens(3, 70, 101));
      const rounded = await (await make(model, { ...KV_F32, dtype })).logits(randomTokens(3, 70, 101));
      expect(rounded.some((x, i) => x !== plain[i])).toBe(true);
    });
  });
}

/** Embedding, output layer, and an attention that nobody reads, because a device has at least one KV layer. */
function outputLayerOnly(hidden: number, vocab: number): Program {
  const b = new ProgramBuilder();
  const matrix = (name: string, rows: number): WeightRef => ({ name: `${name}.weight`, rows, cols: hidden });
  const x = b.embed(matrix('token_embd', vocab));
  const layer = { numKvHeads: 1, headDim: 32, window: 0 };
  const [q, k, v] = ['q', 'k', 'v'].map((name) => b.linear(x, matrix(name, 32))) as [Value, Value, Value];
  b.attention(q, k, v, layer, { numHeads: 1, scale: 0.2 });
  b.sample(b.linear(b.selectRows(x), matrix('output', vocab)));
  return b.build(hidden, vocab);
}

/** Relative roundings that a case involves besides float32. */
interface Roundings {
  readonly kv?: number;
  readonly activations?: number;
}

/**
 * Relative error allowed in the logits: float32 sums over the longest row through all linear layers; where activations are
 * quantized one of their roundings per linear layer, where the KV cache is coarser two of its roundings per attention layer.
 */
function tolerance(program: Program, { kv = 0, activations = 0 }: Roundings): number {
  let longest = 1;
  let numLinear = 0;
  for (const op of program.ops) {
    if (op.kind !== 'linear' && op.kind !== 'moe') continue;
    numLinear++;
    longest = Math.max(longest, op.in.cols);
  }
  return (FLOAT_ROUNDING * longest + activations) * numLinear + kv * 2 * program.kvLayers.length;
}

/** What a sequence produced, to the bit. */
function outcome(sequence: DrivenSequence): unknown {
  return {
    tokens: sequence.tokens,
    logprobs: sequence.logprobs,
    ranks: sequence.ranks,
    tops: sequence.tops,
    promptLogprobs: sequence.promptLogprobs.map(({ seq: _, ...rest }) => rest),
  };
}

/** P1: the same bits whatever the batch, the chunks, the blocks and the timing. */
function invarianceCases({ device, build, make }: CaseContext): void {
  const NUM_OUTPUTS = 6;
  const requests = [1, 7, 18, 45, 130].map((length, i): { tokens: number[]; sampling: SamplingParams } => ({
    tokens: randomTokens(100 + i, length, 101),
    sampling: {
      ...DEFAULT_SAMPLING,
      temperature: i % 2 === 0 ? 0 : 0.9,
      seed: BigInt(i * 977),
      topP: 0.95,
      logprobs: 3,
      promptLogprobs: i === 3 ? 2 : null,
    },
  }));
  const run = async (
    model: SyntheticModel,
    kv: KvOptions,
    how: { chunk: number; together: boolean; placeholders?: boolean },
  ) => {
    const driver = new DeviceDriver(await make(model, kv), { numBlocks: NUM_BLOCKS, maxSeqs: LIMITS.maxSeqs });
    driver.usePlaceholders = how.placeholders ?? false;
    const groups = how.together ? [requests] : requests.map((each) => [each]);
    const outcomes: unknown[] = [];
    for (const group of groups) {
      const sequences = group.map(({ tokens, sampling }) => driver.add(tokens, sampling));
      await driver.generate(sequences, NUM_OUTPUTS, how.chunk);
      outcomes.push(...sequences.map(outcome));
      for (const sequence of sequences) driver.remove(sequence);
    }
    return outcomes;
  };

  describe('the same bits', () => {
    const variants: ReadonlyArray<readonly [string, Partial<SyntheticShape>, SyntheticOptions, KvDtype]> = [
      ['plain, f32 KV', {}, {}, 'f32'],
      ['windows, f16 KV', { windows: [6, 0, 6, 0] }, {}, 'f16'],
      ['int8 KV, multi-query', { numHeads: 6, numKvHeads: 1 }, {}, 'int8'],
      [
        'experts, bf16 KV',
        { mlp: 'moe', moe: { numExperts: 5, topK: 2, renormalise: true, shared: 'gated' } },
        {},
        'bf16',
      ],
      ['quantized weights', { ...QUANTIZED_SHAPE, vocab: 101 }, { format: 'Q4_0' }, 'f16'],
      ['K-quantized weights', { ...QUANTIZED_SHAPE, vocab: 101 }, { format: 'Q4_K' }, 'f16'],
    ];
    it.each(variants)('%s', async (_, shape, options, dtype) => {
      const model = build(shape, options);
      const [blockSize, ...otherBlockSizes] = device.blockSizes;
      const alone = await run(model, { dtype, blockSize }, { chunk: 1 << 20, together: false });
      for (const chunk of [1, 5, 16, 64]) {
        expect(await run(model, { dtype, blockSize }, { chunk, together: true }), `chunks of ${chunk}`).toEqual(alone);
      }
      expect(
        await run(model, { dtype, blockSize }, { chunk: 33, together: true, placeholders: true }),
        'placeholders',
      ).toEqual(alone);
      for (const other of otherBlockSizes) {
        expect(
          await run(model, { dtype, blockSize: other }, { chunk: 33, together: true }),
          `blocks of ${other}`,
        ).toEqual(alone);
      }
    });

    it('after a preemption, and in a slot that another sequence used', async () => {
      const model = build({ windows: [0, 6] });
      const driver = new DeviceDriver(await make(model), { numBlocks: NUM_BLOCKS, maxSeqs: LIMITS.maxSeqs });
      const sampling: SamplingParams = {
        ...DEFAULT_SAMPLING,
        seed: 42n,
        frequencyPenalty: 0.5,
        repetitionPenalty: 1.2,
        logprobs: 2,
      };
      const tokens = randomTokens(8, 20, 101);
      const whole = driver.add(tokens, sampling);
      await driver.generate([whole], 12);
      driver.remove(whole);
      const first = driver.add(tokens, sampling);
      await driver.generate([first], 5);
      driver.remove(first);
      const other = driver.add(randomTokens(9, 30, 101), GREEDY);
      const resumed = driver.add(first.tokens, sampling, tokens.length);
      await driver.generate([resumed, other], 12, 7);
      expect(resumed.tokens).toEqual(whole.tokens);
      expect(resumed.logprobs).toEqual(whole.logprobs.slice(5));
    });

    it.each(['f16', 'int8'] as const)('for sequences that begin with the same blocks, %s KV', async (dtype) => {
      const model = build({});
      const common = randomTokens(20, 1030, 101);
      const prompts = [
        [...common, 1, 2, 3],
        [...common, 4],
        [...common.slice(0, 600), ...randomTokens(21, 9, 101)],
        randomTokens(22, 530, 101),
      ];
      const start = async () =>
        new DeviceDriver(await make(model, { dtype, blockSize: 16 }), {
          numBlocks: NUM_BLOCKS,
          maxSeqs: LIMITS.maxSeqs,
        });
      const driver = await start();
      const first = driver.add(prompts[0], { ...GREEDY, logprobs: 3 });
      await driver.generate([first], 1, LIMITS.maxTokens);
      const together = [
        first,
        driver.addSharing(first, 1030, prompts[1]),
        driver.addSharing(first, 600, prompts[2]),
        driver.add(prompts[3], first.sampling),
      ];
      await driver.generate(together, NUM_OUTPUTS, 200);
      for (const [i, prompt] of prompts.entries()) {
        const other = await start();
        const alone = other.add(prompt, first.sampling);
        await other.generate([alone], NUM_OUTPUTS, LIMITS.maxTokens);
        expect(outcome(together[i]), `prompt ${i}`).toEqual(outcome(alone));
      }
    });

    it('in `logits` as in steps', async () => {
      const model = build({ windows: [0, 6] });
      const tested = await make(model);
      const driver = new DeviceDriver(tested, { numBlocks: NUM_BLOCKS, maxSeqs: LIMITS.maxSeqs });
      const sequence = driver.add(randomTokens(4, 40, 101), { ...GREEDY, logprobs: -1 });
      await driver.generate([sequence], 1, 9);
      const row = (await tested.logits(sequence.tokens.slice(0, -1))).slice(-101);
      const order = [...row.keys()].sort((a, b) => row[b] - row[a] || a - b);
      expect(sequence.tops[0].map(([token]) => token)).toEqual(order);
    });
  });
}

/** Drafts change how many tokens a step gives, never which, nor their logprobs. */
function draftCases({ build, make }: CaseContext): void {
  const NUM_OUTPUTS = 40;
  const samplings: ReadonlyArray<Partial<SamplingParams>> = [
    { temperature: 0 },
    { seed: 5n },
    { seed: 6n, topP: 0.9, topK: 20, repetitionPenalty: 1.3, frequencyPenalty: 0.4, presencePenalty: 0.2 },
    { temperature: 0, repetitionPenalty: 1.1, badWords: [[3], [4, 5]], logprobs: 3 },
    { seed: 8n, minTokens: 30, eosTokenIds: [1, 2, 3, 4, 5, 6, 7, 8, 9], logprobs: 0 },
  ];

  describe('drafts', () => {
    const variants: ReadonlyArray<readonly [string, Partial<SyntheticShape>, SyntheticOptions, KvDtype]> = [
      ['plain, f32 KV', {}, {}, 'f32'],
      ['windows, int8 KV', { windows: [6, 0, 6, 0] }, {}, 'int8'],
      ['experts, bf16 KV', { mlp: 'moe' }, {}, 'bf16'],
      ['quantized weights, f16 KV', { ...QUANTIZED_SHAPE, vocab: 101 }, { format: 'Q4_1' }, 'f16'],
    ];
    // Runs longer than any part in which a device may cut the rows of a step, too.
    it.each(variants)('%s: right, wrong and partly right ones', async (_, shape, options, dtype) => {
      const model = build(shape, options);
      const random = testRandom(77);
      const prompts = samplings.map((_, i) => randomTokens(200 + i, 3 + 9 * i, 101));
      const add = (driver: DeviceDriver) =>
        samplings.map((sampling, i) =>
          driver.add(prompts[i], { ...DEFAULT_SAMPLING, logprobs: i % 2 === 0 ? 2 : null, ...sampling }),
        );
      const start = async () =>
        new DeviceDriver(await make(model, { dtype, blockSize: 16 }), {
          numBlocks: NUM_BLOCKS,
          maxSeqs: LIMITS.maxSeqs,
        });
      const plain = await start();
      const wanted = add(plain);
      await plain.generate(wanted, NUM_OUTPUTS);
      const tally = { numAccepted: 0, numRejected: 0, longest: 0 };
      const drafting = await start();
      const found = add(drafting);
      await drafting.generate(found, NUM_OUTPUTS, 1 << 20, (sequence) => {
        const { tokens } = wanted[found.indexOf(sequence)];
        const room = tokens.length - sequence.tokens.length - 1;
        const numDrafts = Math.min(room, Math.floor(random() * (random() < 0.5 ? 30 : 5)));
        const numRight = Math.floor(random() * (numDrafts + 1));
        tally.numAccepted += numRight;
        tally.numRejected += numDrafts - numRight;
        tally.longest = Math.max(tally.longest, numRight);
        const right = tokens.slice(sequence.tokens.length, sequence.tokens.length + numDrafts);
        return right.map((token, i) => (i === numRight ? (token + 1) % 101 : token));
      });
      expect(found.map(outcome)).toEqual(wanted.map(outcome));
      expect(tally.numAccepted).toBeGreaterThan(30);
      expect(tally.numRejected).toBeGreaterThan(30);
      expect(tally.longest).toBeGreaterThan(8);
    });

    it('a step that samples from several rows stops after the first that differs', async () => {
      const model = build({ windows: [0] });
      const driver = new DeviceDriver(await make(model), { numBlocks: NUM_BLOCKS, maxSeqs: LIMITS.maxSeqs });
      const plain = driver.add(randomTokens(1, 9, 101));
      await driver.generate([plain], 6);
      const [first, second, third] = plain.tokens.slice(9) as [number, number, number];
      const sequence = driver.add(randomTokens(1, 9, 101));
      const beside = driver.add(randomTokens(2, 9, 101));
      await driver.step([
        { sequence, numTokens: 9 },
        { sequence: beside, numTokens: 4 },
      ]);
      const result = await driver.step([
        { sequence, numTokens: 1, drafts: [second, (third + 1) % 101, 5] },
        { sequence: beside, numTokens: 5 },
      ]);
      expect(Array.from(result.sampledTokens.subarray(0, 5))).toEqual([second, third, -1, -1, beside.tokens[9]]);
      expect(sequence.tokens.slice(9)).toEqual([first, second, third]);
      expect(sequence.numComputed).toBe(11);
    });
  });
}

/** Sampled tokens against the specification, from the device's own logits. */
function samplingCases({ build, make }: CaseContext): void {
  const settings: ReadonlyArray<readonly [string, Partial<SamplingParams>]> = [
    ['greedy', { temperature: 0 }],
    ['temperature 1', {}],
    ['temperature 0.5', { temperature: 0.5 }],
    ['temperature 2', { temperature: 2 }],
    ['temperature 0.01', { temperature: 0.01 }],
    ['top_k 1', { topK: 1 }],
    ['top_k 5', { topK: 5 }],
    ['top_k beyond the vocabulary', { topK: 5000 }],
    ['top_p 0.5', { topP: 0.5 }],
    ['top_p 0.95, temperature 3', { topP: 0.95, temperature: 3 }],
    ['top_p tiny', { topP: 1e-6 }],
    ['min_p 0.1', { minP: 0.1 }],
    ['min_p 1', { minP: 1 }],
    ['all filters', { temperature: 1.5, topK: 30, topP: 0.9, minP: 0.02 }],
    ['repetition', { repetitionPenalty: 1.5 }],
    ['repetition below 1, greedy', { repetitionPenalty: 0.5, temperature: 0 }],
    ['presence and frequency', { presencePenalty: 1.5, frequencyPenalty: 0.7 }],
    ['negative presence', { presencePenalty: -2, frequencyPenalty: -1 }],
    [
      'bias',
      {
        logitBias: [
          [3, 5],
          [7, -100],
          [9, 2.5],
          [9, 2.5],
        ],
      },
    ],
    ['bias, greedy', { temperature: 0, logitBias: [[3, 100]] }],
    ['allowed tokens', { allowedTokenIds: [1, 2, 3, 50, 100] }],
    ['allowed tokens, top_p', { allowedTokenIds: [1, 2, 3, 50, 100], topP: 0.8, temperature: 2 }],
    ['bad words', { badWords: [[1], [2, 3], [4, 5, 6]], temperature: 3 }],
    [
      'min tokens',
      {
        minTokens: 4,
        eosTokenIds: [10, 11],
        stopTokenIds: [12],
        logitBias: [
          [10, 20],
          [11, 20],
          [12, 20],
        ],
      },
    ],
    ['nothing left', { allowedTokenIds: [8], eosTokenIds: [8], minTokens: 9 }],
    [
      'everything',
      {
        temperature: 0.8,
        topK: 40,
        topP: 0.95,
        minP: 0.01,
        repetitionPenalty: 1.1,
        presencePenalty: 0.3,
        frequencyPenalty: 0.2,
        logitBias: [[5, 1]],
        badWords: [[6]],
      },
    ],
  ];

  describe('sampling', () => {
    // A vocabulary of several chunks of the sum's definition, and no multiple of them.
    const vocab = 1333;
    const seeds = [0n, 1n, 0xffffffffffffffffn];

    it.each(settings)('%s', async (_, overrides) => {
      const model = build({ vocab, windows: [0] });
      const tested = await make(model);
      const driver = new DeviceDriver(tested, { numBlocks: NUM_BLOCKS, maxSeqs: LIMITS.maxSeqs });
      const sequences = seeds.map((seed) =>
        driver.add(randomTokens(5, 9, vocab), { ...DEFAULT_SAMPLING, ...overrides, seed }),
      );
      await driver.generate(sequences, 7);
      for (const { tokens, numPrompt, sampling } of sequences) {
        const logits = await tested.logits(tokens.slice(0, -1));
        for (let length = numPrompt; length < tokens.length; length++) {
          const row = logits.slice((length - 1) * vocab, length * vocab);
          const history = new TokenHistory(tokens.slice(0, length), numPrompt, sampling);
          expect(tokens[length], `seed ${sampling.seed}, output ${length - numPrompt}`).toBe(
            sampleToken(row, sampling, history, new SamplerScratch(vocab)),
          );
        }
      }
    });

    it('takes the lowest id of equal logits', async () => {
      const copies = [20, 30, 90];
      const model = build(
        { windows: [0] },
        {
          change: ({ name, cols }, values) => {
            // Three outputs with the same row.
            if (name !== 'output.weight') return;
            for (const copy of copies) values.set(values.slice(copies[0] * cols, (copies[0] + 1) * cols), copy * cols);
          },
        },
      );
      const driver = new DeviceDriver(await make(model), { numBlocks: NUM_BLOCKS, maxSeqs: LIMITS.maxSeqs });
      const sequence = driver.add([1, 2, 3], { ...GREEDY, allowedTokenIds: [90, 30, 20], logprobs: -1 });
      await driver.generate([sequence], 3);
      expect(sequence.tokens.slice(3)).toEqual([20, 20, 20]);
      for (const top of sequence.tops) {
        const places = copies.map((copy) => top.findIndex(([token]) => token === copy));
        expect(places).toEqual([places[0], places[0] + 1, places[0] + 2]);
      }
      // Ties share a rank.
      expect(
        new Set(sequence.ranks.map((rank, i) => rank - sequence.tops[i].findIndex(([token]) => token === 20))),
      ).toEqual(new Set([1]));
    });
  });
}

function logprobCases({ build, make }: CaseContext): void {
  const vocab = 101;
  /** float32 logits, one rounding of the result, and an exponential sum in double precision. */
  const TOLERANCE = 1e-5;

  describe('log-probabilities', () => {
    it.each([0, 5, -1])('%s alternatives', async (logprobs) => {
      const tested = await make(build({}));
      const driver = new DeviceDriver(tested, { numBlocks: NUM_BLOCKS, maxSeqs: LIMITS.maxSeqs });
      const silent = driver.add(randomTokens(1, 5, vocab), GREEDY);
      // Masks and temperature must not touch what is reported.
      const sequence = driver.add(randomTokens(2, 12, vocab), {
        ...DEFAULT_SAMPLING,
        temperature: 2,
        logitBias: [[4, 8]],
        seed: 3n,
        logprobs,
      });
      await driver.generate([silent, sequence], 5);
      const logits = await tested.logits(sequence.tokens.slice(0, -1));
      expect(silent.tops.every((top) => top.length === 0)).toBe(true);
      sequence.logprobs.forEach((logprob, i) => {
        const position = sequence.numPrompt + i;
        const row = logits.slice((position - 1) * vocab, position * vocab);
        const lse = logSumExp(row, new Float64Array(vocab));
        const token = sequence.tokens[position];
        expect(Math.abs(logprob - (row[token] - lse))).toBeLessThan(TOLERANCE);
        expect(sequence.ranks[i]).toBe(1 + row.filter((x) => x > row[token]).length);
        const order = [...row.keys()]
          .sort((a, b) => row[b] - row[a] || a - b)
          .slice(0, logprobs < 0 ? vocab : logprobs);
        expect(sequence.tops[i].map(([each]) => each)).toEqual(order);
        for (const [each, value] of sequence.tops[i])
          expect(Math.abs(value - (row[each] - lse))).toBeLessThan(TOLERANCE);
      });
    });

    it.each([1, 4, 100])('of the prompt, in chunks of %s', async (chunk) => {
      const tested = await make(build({}));
      const driver = new DeviceDriver(tested, { numBlocks: NUM_BLOCKS, maxSeqs: LIMITS.maxSeqs });
      const plain = driver.add(randomTokens(11, 9, vocab), GREEDY);
      const sequence = driver.add(randomTokens(12, 14, vocab), { ...GREEDY, promptLogprobs: 3 });
      await driver.generate([plain, sequence], 2, chunk);
      const logits = await tested.logits(sequence.tokens.slice(0, sequence.numPrompt));
      expect(plain.promptLogprobs).toEqual([]);
      expect(sequence.promptLogprobs.map((report) => report.position)).toEqual(
        Array.from({ length: 13 }, (_, i) => i + 1),
      );
      for (const report of sequence.promptLogprobs) {
        const row = logits.slice((report.position - 1) * vocab, report.position * vocab);
        const lse = logSumExp(row, new Float64Array(vocab));
        expect(report.tokenId).toBe(sequence.tokens[report.position]);
        expect(Math.abs(report.logprob - (row[report.tokenId] - lse))).toBeLessThan(TOLERANCE);
        expect(report.rank).toBe(1 + row.filter((x) => x > row[report.tokenId]).length);
        expect([...report.topTokens]).toEqual([...row.keys()].sort((a, b) => row[b] - row[a] || a - b).slice(0, 3));
        expect(report.topLogprobs.length).toBe(3);
      }
    });
  });
}

/** NaN and infinity end the sequence that has them and nobody else. */
function faultCases({ build, make }: CaseContext): void {
  describe('faults', () => {
    it.each([Number.NaN, Number.POSITIVE_INFINITY])('%s in one sequence', async (poison) => {
      const model = build(
        {},
        {
          change: ({ name }, values) => {
            if (name === 'token_embd.weight') values[50 * 48 + 3] = poison;
          },
        },
      );
      const clean = { tokens: randomTokens(21, 20, 50), sampling: { ...GREEDY, logprobs: 1 } };
      const driver = new DeviceDriver(await make(model), { numBlocks: NUM_BLOCKS, maxSeqs: LIMITS.maxSeqs });
      const alone = driver.add(clean.tokens, { ...clean.sampling, badWords: [[50]] });
      await driver.generate([alone], 4);
      const before = driver.add(clean.tokens, { ...clean.sampling, badWords: [[50]] });
      const poisoned = driver.add([1, 2, 50, 4], GREEDY);
      const after = driver.add(clean.tokens, { ...clean.sampling, badWords: [[50]] });
      await driver.generate([before, poisoned, after], 4);
      expect(poisoned.fault).toBe(true);
      expect(poisoned.tokens).toEqual([1, 2, 50, 4]);
      for (const each of [alone, before, after]) expect(each.fault).toBe(false);
      expect(outcome(before)).toEqual(outcome(alone));
      expect(outcome(after)).toEqual(outcome(alone));
      // The blocks that held NaN are used again; nothing of it may leak.
      driver.remove(poisoned);
      const reused = driver.add(clean.tokens, { ...clean.sampling, badWords: [[50]] });
      await driver.generate([reused], 4);
      expect(outcome(reused)).toEqual(outcome(alone));
    });
  });
}
