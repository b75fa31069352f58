// `pagoda calibrate device`: runs the engine in this process on prompts and batches of chosen sizes, and fits the price of a step,
// a sequence, a token, a key and a query-key pair to the times of its steps.

import { now } from '../clock.ts';
import type { ResolvedOptions } from '../config/options.ts';
import { engineOptions } from '../config.ts';
import { DEFAULT_SAMPLING } from '../core/sampling-params.ts';
import type { EngineClient } from '../engine/engine-client.ts';
import { createInProcessClient } from '../engine/in-process-client.ts';
import { PagodaError } from '../errors.ts';
import { calibrationText } from '../plan/calibration-file.ts';
import { randomUniform } from '../rng.ts';
import { fitLinearPrices, type MeasuredStep } from '../sim/cost/linear-step-cost.ts';
import type { StepRecord } from '../trace/step-record.ts';
import { secondsValue } from './bench-values.ts';
import { writeOut } from './calibrate-engine.ts';
import type { CalibrateDeviceFlags } from './calibrate-flags.ts';
import { CliExit, type CliIo } from './cli-io.ts';

const DEFAULT_REQUEST_SECONDS = 0.005;
const NUM_ROUNDS = 3;
const NUM_DECODE_STEPS = 16;
/** Prompts alone, and batches that decode: sequences x prompt tokens. */
const PROMPTS = [16, 64, 128, 256, 512];
const BATCHES: ReadonlyArray<readonly [sequences: number, promptTokens: number]> = [
  [1, 16],
  [1, 512],
  [2, 64],
  [4, 64],
  [8, 64],
  [16, 64],
  [4, 448],
];

export async function calibrateDevice(config: ResolvedOptions, flags: CalibrateDeviceFlags, io: CliIo): Promise<void> {
  const requestSeconds =
    flags.requestOverhead === undefined
      ? DEFAULT_REQUEST_SECONDS
      : secondsValue('request-overhead', flags.requestOverhead);
  const records: StepRecord[] = [];
  const client = await createInProcessClient(
    { ...engineOptions(config), enablePrefixCaching: false },
    {
      onStep: (record) => records.push(record),
      onLog: (level, message) => {
        if (level !== 'info') io.stderr.write(`${level}: ${message}\n`);
      },
    },
  );
  const meter = new DeviceMeter(client, records);
  let isInterrupted = false;
  const forget = io.onInterrupt(() => {
    isInterrupted = true;
  });
  try {
    const steps: MeasuredStep[] = [];
    await meter.decode(1, 16);
    for (let round = 0; round < NUM_ROUNDS; round++) {
      for (const numTokens of PROMPTS) if (meter.fits(1, numTokens)) steps.push(await meter.prefill(numTokens));
      for (const [sequences, tokens] of BATCHES)
        if (meter.fits(sequences, tokens)) steps.push(await meter.decode(sequences, tokens));
      if (isInterrupted) throw new CliExit(130);
    }
    const { prices, meanError } = fitLinearPrices(steps);
    const { info } = client;
    const text = calibrationText(
      {
        kind: 'device',
        device: `${info.device} ${info.isa}, ${info.numThreads} threads`,
        prices,
        requestSeconds,
        numBlocks: info.numBlocks,
        blockSize: info.blockSize,
        maxNumSeqs: info.maxNumSeqs,
        maxNumBatchedTokens: info.maxNumBatchedTokens,
        maxModelLen: info.maxModelLen,
      },
      { model: config.model, num_measured_steps: steps.length, mean_error_share: meanError },
    );
    if (flags.out === undefined) io.stdout.write(text);
    else writeOut(flags.out, text);
    io.stderr.write(`${steps.length} measured steps, mean error ${(100 * meanError).toFixed(1)} %\n`);
  } finally {
    forget();
    await client.close({ drainSeconds: 0 });
  }
}

class DeviceMeter {
  readonly #client: EngineClient;
  readonly #records: StepRecord[];
  #numRequests = 0;

  constructor(client: EngineClient, records: StepRecord[]) {
    this.#client = client;
    this.#records = records;
  }

  /** All prompts in one step, and every sequence to its end. */
  fits(numSequences: number, promptTokens: number): boolean {
    const { maxModelLen, maxNumSeqs, maxNumBatchedTokens, kvCacheTokens } = this.#client.info;
    const length = promptTokens + NUM_DECODE_STEPS + 1;
    return (
      numSequences <= maxNumSeqs &&
      length <= maxModelLen &&
      numSequences * promptTokens <= maxNumBatchedTokens &&
      numSequences * length <= kvCacheTokens / 2
    );
  }

  /** One prompt, one step. */
  async prefill(numTokens: number): Promise<MeasuredStep> {
    const records = await this.#run(1, numTokens, 1);
    const step = records.find(({ numPromptTokens }) => numPromptTokens === numTokens);
    if (step === undefined)
      throw new PagodaError('internal', `A prompt of ${numTokens} tokens took no step of its own.`);
    return {
      seconds: step.stepSeconds,
      load: {
        numSequences: 1,
        numTokens,
        numPrefillTokens: numTokens,
        numDecodes: 0,
        decodeContextTokens: 0,
        prefillPairs: (numTokens * (numTokens + 1)) / 2,
      },
    };
  }

  /** The median step of a batch in which every sequence decodes, from one result to the next. */
  async decode(numSequences: number, promptTokens: number): Promise<MeasuredStep> {
    const records = await this.#run(numSequences, promptTokens, NUM_DECODE_STEPS + 1);
    const gaps: number[] = [];
    for (let i = 1; i < records.length; i++) {
      const record = records[i]!;
      if (record.numPromptTokens === 0 && record.numGeneratedTokens === numSequences)
        gaps.push(record.time - records[i - 1]!.time);
    }
    if (gaps.length === 0) throw new PagodaError('internal', `${numSequences} sequences never decoded together.`);
    gaps.sort((a, b) => a - b);
    const context = promptTokens + NUM_DECODE_STEPS / 2;
    return {
      seconds: gaps[Math.floor(gaps.length / 2)]!,
      load: {
        numSequences,
        numTokens: numSequences,
        numPrefillTokens: 0,
        numDecodes: numSequences,
        decodeContextTokens: numSequences * context,
        prefillPairs: 0,
      },
    };
  }

  async #run(numSequences: number, promptTokens: number, maxTokens: number): Promise<StepRecord[]> {
    const { vocabSize } = this.#client.info;
    const first = this.#records.length;
    const requests = Array.from({ length: numSequences }, () => {
      const number = this.#numRequests++;
      return {
        id: `calibrate-${number}`,
        promptTokenIds: Array.from({ length: promptTokens }, (_, i) =>
          Math.floor(randomUniform(BigInt(number), i) * vocabSize),
        ),
        sampling: { ...DEFAULT_SAMPLING, temperature: 0, maxTokens, ignoreEos: true },
        priority: 0,
        arrivalTime: now(),
        cacheSalt: null,
      };
    });
    let numOpen = numSequences;
    await new Promise<void>((resolve, reject) => {
      this.#client.submit(requests, (event) => {
        if (event.finish === null) return;
        if (event.finish.reason === 'error')
          reject(new PagodaError('device_fault', event.finish.message ?? 'A request failed.'));
        if (--numOpen === 0) resolve();
      });
    });
    // The record of the last step follows its events.
    await new Promise((resolve) => setImmediate(resolve));
    return this.#records.slice(first);
  }
}
