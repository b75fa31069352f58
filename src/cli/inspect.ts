// `pagoda inspect`: the facts of a model, from its headers only.

import type { Checkpoint } from '../checkpoint/checkpoint.ts';
import { describeCheckpoint } from '../checkpoint/describe-checkpoint.ts';
import { openModel } from '../checkpoint/resolve-model.ts';
import type { ResolvedOptions } from '../config/options.ts';
import { engineOptions } from '../config.ts';
import { cpuAutoKvDtype } from '../device/cpu/cpu-device.ts';
import { kvLayout } from '../device/kv-layout.ts';
import { PagodaError } from '../errors.ts';
import { loadModel } from '../model/load-model.ts';
import { findChatTemplate } from '../text/find-chat-template.ts';
import { generationDefaults } from '../text/generation-config.ts';
import { loadTokenizer } from '../text/load-tokenizer.ts';
import type { CliIo } from './cli-io.ts';
import { bytesText, countText, visible } from './table.ts';

type Facts = ReturnType<typeof modelFacts>;

export function inspect(config: ResolvedOptions, asJson: boolean, io: CliIo): void {
  const options = engineOptions(config);
  const checkpoint = openModel(options.model);
  try {
    const facts = modelFacts(checkpoint, config);
    io.stdout.write(asJson ? `${JSON.stringify(facts, null, 2)}\n` : factsText(facts));
    for (const warning of facts.warnings) io.stderr.write(`warning: ${warning}\n`);
  } finally {
    checkpoint.close();
  }
}

function modelFacts(checkpoint: Checkpoint, config: ResolvedOptions) {
  const file = describeCheckpoint(checkpoint);
  const model = loadModel(checkpoint);
  const { config: dims } = model;
  const kvDtype =
    config.kvCacheDtype === 'auto' ? cpuAutoKvDtype({ computeDtype: config.computeDtype }) : config.kvCacheDtype;
  const kv = kvLayout(model.program, kvDtype, config.blockSize);
  return {
    model: checkpoint.source,
    name: file.name,
    'general.name': checkpoint.format === 'gguf' ? file.name : null,
    format: file.format,
    files: file.files.map(({ path, numBytes }) => ({ path, bytes: numBytes })),
    architecture: file.architecture,
    family: model.family.name,
    parameters: file.numParameters,
    num_tensors: file.numTensors,
    weight_bytes: file.weightBytes,
    weights: file.byType.map(({ type, numTensors, numBytes }) => ({ type, num_tensors: numTensors, bytes: numBytes })),
    context_length: dims.contextLength,
    vocab_size: dims.vocabSize,
    hidden_size: dims.hiddenSize,
    num_layers: dims.numLayers,
    num_heads: dims.numHeads,
    num_kv_heads: dims.numKvHeads,
    head_dim: dims.headDim,
    intermediate_size: dims.intermediateSize,
    sliding_windows: windowCounts(dims.windows),
    experts: dims.moe === null ? null : { count: dims.moe.numExperts, used_per_token: dims.moe.topK },
    kv_cache_dtype: kv.dtype,
    kv_bytes_per_token: kv.bytesPerToken,
    kv_block_size: kv.blockSize,
    kv_bytes_per_block: kv.blockBytes,
    tokenizer: tokenizerFacts(checkpoint),
    chat_template: findChatTemplate(checkpoint),
    warnings: [...checkpoint.warnings, ...model.warnings],
  };
}

/** Layers per window; window null = full attention. */
function windowCounts(windows: readonly number[]): Array<{ window: number | null; num_layers: number }> {
  const counts = new Map<number, number>();
  for (const window of windows) counts.set(window, (counts.get(window) ?? 0) + 1);
  return [...counts].map(([window, layers]) => ({ window: window === 0 ? null : window, num_layers: layers }));
}

/** A model whose tokenizer cannot be used is still worth looking at. */
function tokenizerFacts(checkpoint: Checkpoint) {
  try {
    const tokenizer = loadTokenizer(checkpoint);
    const token = (id: number | null) => (id === null ? null : { id, text: tokenizer.tokenText(id) });
    const { eosTokenIds } = generationDefaults(checkpoint, tokenizer, { generationConfig: 'auto' });
    return {
      kind: tokenizer.kind,
      vocab_size: tokenizer.vocabSize,
      bos: token(tokenizer.bosTokenId),
      adds_bos: tokenizer.addsBos,
      eos: token(tokenizer.eosTokenId),
      stop_tokens: tokenizer.vocabSize === 0 ? [] : eosTokenIds.map(token),
    };
  } catch (error) {
    if (!(error instanceof PagodaError)) throw error;
    return { problem: error.message };
  }
}

function factsText(facts: Facts): string {
  const lines: Array<[string, string]> = [
    ['Model', facts.model],
    ['Name', facts.name ?? '(none)'],
    ['Architecture', `${facts.architecture ?? '(none)'} (family ${facts.family})`],
    ['Parameters', countText(facts.parameters)],
    ['Weights', `${bytesText(facts.weight_bytes)} in ${facts.num_tensors} tensors`],
    ...facts.weights.map(({ type, bytes, num_tensors }): [string, string] => [
      `  ${type}`,
      `${bytesText(bytes)} in ${num_tensors} tensors`,
    ]),
    [
      'Shape',
      `${facts.num_layers} layers, hidden ${facts.hidden_size}, feed-forward ${facts.intermediate_size}, ${facts.num_heads} heads (${facts.num_kv_heads} KV) of ${facts.head_dim}`,
    ],
    [
      'Experts',
      facts.experts === null ? 'none' : `${facts.experts.count}, ${facts.experts.used_per_token} used per token`,
    ],
    [
      'Attention',
      facts.sliding_windows
        .map(({ window, num_layers }) => `${num_layers} layers ${window === null ? 'full' : `with window ${window}`}`)
        .join(', '),
    ],
    ['Context', `${countText(facts.context_length)} tokens`],
    ['Vocabulary', countText(facts.vocab_size)],
    ['KV cache', `${countText(facts.kv_bytes_per_token)} bytes per token (${facts.kv_cache_dtype})`],
    ...tokenizerLines(facts.tokenizer),
    ['Chat template', facts.chat_template === null ? 'none' : `${countText(facts.chat_template.length)} characters`],
    ['Files', facts.files.map(({ path, bytes }) => `${path} (${bytesText(bytes)})`).join('\n               ')],
  ];
  return lines.map(([label, text]) => `${`${label}:`.padEnd(15)}${text}\n`).join('');
}

function tokenizerLines(facts: Facts['tokenizer']): Array<[string, string]> {
  if ('problem' in facts) return [['Tokenizer', `cannot be used: ${facts.problem}`]];
  const token = (each: { id: number; text: string } | null) =>
    each === null ? 'none' : `${each.id} ${visible(each.text)}`;
  return [
    ['Tokenizer', `${facts.kind}, ${countText(facts.vocab_size)} entries`],
    ['  BOS', `${token(facts.bos)}${facts.bos === null ? '' : facts.adds_bos ? ', added' : ', not added'}`],
    ['  EOS', token(facts.eos)],
    ['  Stops at', facts.stop_tokens.map(token).join(', ') || 'none'],
  ];
}
