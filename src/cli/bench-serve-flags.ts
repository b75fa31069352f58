// `pagoda bench serve`: flags only, with the names and defaults of `vllm bench serve`.

import { Command } from 'commander';
import type { CliIo } from './cli-io.ts';
import { addWorkloadFlags, type WorkloadFlags } from './workload-flags.ts';

/** Raw texts; checked when the command runs. */
export interface BenchServeFlags extends Omit<WorkloadFlags, 'seed'> {
  readonly backend: string;
  readonly url?: string;
  readonly baseUrl?: string;
  readonly host: string;
  readonly port: string;
  readonly endpoint?: string;
  readonly header?: readonly string[];
  readonly insecure?: boolean;
  readonly requestTimeout: string;
  readonly readyCheckTimeoutSec: string;
  readonly model?: string;
  readonly servedModelName?: string;
  readonly tokenizer?: string;
  readonly skipTokenizerInit?: boolean;
  readonly datasetName?: string;
  readonly datasetPath?: string;
  readonly numPrompts: string;
  readonly seed: string;
  readonly oversample: boolean;
  readonly disableShuffle?: boolean;
  readonly inputLen?: string;
  readonly outputLen?: string;
  readonly randomInputLen: string;
  readonly randomOutputLen: string;
  readonly randomRangeRatio: string;
  readonly randomPrefixLen: string;
  readonly sharegptOutputLen?: string;
  readonly customOutputLen: string;
  readonly prefixRepetitionPrefixLen: string;
  readonly prefixRepetitionSuffixLen: string;
  readonly prefixRepetitionNumPrefixes: string;
  readonly prefixRepetitionOutputLen: string;
  readonly requestRate?: string;
  readonly maxConcurrency?: string;
  readonly rampUpStrategy?: string;
  readonly rampUpStartRps?: string;
  readonly rampUpEndRps?: string;
  readonly numWarmups: string;
  readonly numProcesses: string;
  readonly stopOverSaturated?: boolean;
  readonly ignoreEos?: boolean;
  readonly logprobs?: string;
  readonly temperature?: string;
  readonly topP?: string;
  readonly topK?: string;
  readonly minP?: string;
  readonly presencePenalty?: string;
  readonly frequencyPenalty?: string;
  readonly repetitionPenalty?: string;
  readonly chatTemplateKwargs?: string;
  readonly extraBody?: string;
  readonly requestIdPrefix?: string;
  readonly goodput?: readonly string[];
  readonly percentileMetrics: string;
  readonly metricPercentiles: string;
  readonly label?: string;
  readonly metadata?: readonly string[];
  readonly saveResult?: boolean;
  readonly saveDetailed?: boolean;
  readonly appendResult?: boolean;
  readonly resultDir?: string;
  readonly resultFilename?: string;
  readonly disableTqdm?: boolean;
  readonly definitions?: boolean;
  readonly json?: boolean;
}

export function addBenchServeCommand(bench: Command, io: CliIo): void {
  const command = bench
    .command('serve')
    .description('Load on a running OpenAI-compatible server: latencies, throughput, goodput');
  addServerFlags(command);
  addDatasetFlags(command);
  addLoadFlags(command);
  addRequestFlags(command);
  addOutputFlags(command);
  addSimulatorFlags(command);
  command.action(async (flags: BenchServeFlags) => {
    const { benchServe } = await import('./bench-serve.ts');
    await benchServe(flags, io);
  });
  bench
    .command('definitions')
    .description('What TTFT, TPOT and ITL mean in six load tools, side by side')
    .option('--json', 'print JSON')
    .action(async (flags: { json?: boolean }) => {
      const { printDefinitions } = await import('./bench-definitions.ts');
      printDefinitions(null, flags.json === true, io);
    });
}

function addServerFlags(command: Command): void {
  command
    .option('--backend <name>', 'openai or vllm (text completion), openai-chat (chat completion)', 'openai')
    .option('--url <url>', 'address of the server, like http://127.0.0.1:8000; the same as --base-url')
    .option('--base-url <url>', 'the same, by the name it has in vLLM')
    .option('--host <host>', 'when no address is given', '127.0.0.1')
    .option('--port <n>', 'when no address is given', '8000')
    .option('--endpoint <path>', 'path of the requests (default: /v1/completions or /v1/chat/completions)')
    .option('--header <KEY=VALUE...>', 'headers of every request; OPENAI_API_KEY is sent as a bearer token')
    .option('--insecure', 'accept certificates that cannot be checked')
    .option('--request-timeout <time>', 'a request that brings no byte for so long is given up', '600s')
    .option('--ready-check-timeout-sec <n>', 'wait so long for the server to answer', '0')
    .option('--model <name>', 'model name (default: the first that the server lists)')
    .option('--served-model-name <name>', 'name of the model in requests (default: --model)')
    .option(
      '--tokenizer <model>',
      'a local model whose tokenizer makes and counts prompts (default: --model if it is local)',
    )
    .option('--skip-tokenizer-init', 'no tokenizer: ids from the server, or words');
}

function addDatasetFlags(command: Command): void {
  command
    .option(
      '--dataset-name <name>',
      'random, sharegpt, custom, prefix_repetition or trace (default: random, or the workload of the flags below)',
    )
    .option('--dataset-path <file>', 'file of sharegpt, custom and trace (Azure, BurstGPT, Mooncake or Vidur format)')
    .option('--num-prompts <n>', 'requests', '1000')
    .option('--seed <n>', 'of prompts and times; a second run with the same seed meets cached prompts', '0')
    .option('--no-oversample', 'fewer requests when the data set has fewer rows')
    .option('--disable-shuffle', 'rows in the order of the file')
    .option('--input-len <n>', 'the same as --random-input-len')
    .option('--output-len <n>', "output tokens, whatever the data set's own option says")
    .option('--random-input-len <n>', 'prompt tokens', '1024')
    .option('--random-output-len <n>', 'output tokens', '128')
    .option('--random-range-ratio <x>', 'lengths uniform within this share around them', '0')
    .option('--random-prefix-len <n>', 'tokens in front that all prompts share', '0')
    .option('--sharegpt-output-len <n>', 'output tokens (default: as the answers of the data set)')
    .option('--custom-output-len <n>', "output tokens; -1 = each row's output_tokens", '256')
    .option('--prefix-repetition-prefix-len <n>', 'tokens of a shared prefix', '256')
    .option('--prefix-repetition-suffix-len <n>', 'tokens of an own ending', '256')
    .option('--prefix-repetition-num-prefixes <n>', 'different prefixes', '10')
    .option('--prefix-repetition-output-len <n>', 'output tokens', '128');
}

function addLoadFlags(command: Command): void {
  command
    .option('--request-rate <x>', 'requests per second, inf = all at once (default: inf, or the times of the trace)')
    .option(
      '--burstiness <x>',
      'shape of the gamma-distributed gaps: 1 = Poisson, below = bursts, inf = equal (default: 1)',
    )
    .option('--max-concurrency <n>', 'most requests under way at once')
    .option('--ramp-up-strategy <name>', 'linear or exponential: the rate goes from start to end')
    .option('--ramp-up-start-rps <x>', 'requests per second at the start')
    .option('--ramp-up-end-rps <x>', 'requests per second at the end')
    .option('--num-warmups <n>', 'requests before the start that count nowhere', '0')
    .option('--num-processes <n>', 'processes that send; more when the result says it is client-bound', '1')
    .option('--stop-over-saturated', 'stop when more is offered than the server can take');
}

function addRequestFlags(command: Command): void {
  command
    .option('--ignore-eos', 'always the full output length (random and prefix_repetition: always on)')
    .option('--logprobs <n>', 'ask for the best n alternatives of each token')
    .option('--temperature <x>', "the server's default unless given")
    .option('--top-p <x>')
    .option('--top-k <n>')
    .option('--min-p <x>')
    .option('--presence-penalty <x>')
    .option('--frequency-penalty <x>')
    .option('--repetition-penalty <x>')
    .option('--chat-template-kwargs <json>', 'variables for the chat template')
    .option('--extra-body <json>', 'more fields of every request')
    .option('--request-id-prefix <text>', 'of the header X-Request-Id (default: bench-, eight random digits, -)');
}

function addOutputFlags(command: Command): void {
  command
    .option('--goodput <KEY:MS...>', 'targets a good request meets: ttft:1500 tpot:50 e2el:20000 (milliseconds)')
    .option('--percentile-metrics <names>', 'of ttft, tpot, itl, e2el, client_queue_time', 'ttft,tpot,itl')
    .option('--metric-percentiles <list>', 'percentiles of these', '99')
    .option('--label <text>', 'in the result and its file name')
    .option('--metadata <KEY=VALUE...>', 'fields of the result')
    .option('--save-result', 'write the result as JSON')
    .option('--save-detailed', 'with the figures and texts of every request')
    .option('--append-result', 'add the result to the file as one more line')
    .option('--result-dir <dir>', 'where (default: here)')
    .option('--result-filename <name>', 'file name (default: from label, rate, model and time)')
    .option('--disable-tqdm', 'no progress bar')
    .option('--definitions', "the figures by six tools' definitions, side by side")
    .option('--json', 'print the result as JSON');
}

/** The flags of `simulate` that say what is asked, so that one load runs on both; those of the same name are here already. */
function addSimulatorFlags(command: Command): void {
  const simulator = new Command();
  addWorkloadFlags(simulator);
  const taken = new Set(command.options.map((option) => option.long));
  // Turns need a client that builds prompts from answers.
  taken.add('--turns');
  for (const option of simulator.options) if (!taken.has(option.long)) command.addOption(option);
}
