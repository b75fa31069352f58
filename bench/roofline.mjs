// What the machine's peaks allow for a workload: every product at the peak of its kind, every weight read once per step, whichever of
// the two takes longer; nothing else costs anything. After the last keys and values only rows of logits go on. AMX is not the yardstick:
// shares of it would say nothing about other machines.
import { openGguf } from '../dist/checkpoint/gguf.js';

/** MACs per token and bytes of a GGUF model, from its tensors. */
export function modelCosts(path) {
  const file = openGguf(path);
  try {
    const number = (key) => Number(file.metadata.get(`${file.metadata.get('general.architecture')}.${key}`));
    const matrices = [...file.tensors.values()].filter((tensor) => tensor.shape.length === 2);
    const head =
      matrices.find(({ name }) => name === 'output.weight') ??
      matrices.find(({ name }) => name === 'token_embd.weight');
    const body = matrices.filter(({ name }) => name.startsWith('blk.'));
    const macs = (list, isFloat) =>
      list.filter(({ type }) => isFloat === isFloatType(type)).reduce((sum, { shape }) => sum + shape[0] * shape[1], 0);
    const numLayers = number('block_count');
    const tail = body.filter(
      ({ name }) => name.startsWith(`blk.${numLayers - 1}.`) && !/attn_(q|k|v|qkv)\./.test(name),
    );
    const width = number('embedding_length');
    const numHeads = number('attention.head_count');
    const headSize = file.metadata.has('llama.attention.key_length')
      ? number('attention.key_length')
      : width / numHeads;
    return {
      body: { int: macs(body, false), float: macs(body, true) },
      tail: { int: macs(tail, false), float: macs(tail, true) },
      head: { int: macs([head], false), float: macs([head], true) },
      bytes: [...body, head].reduce((sum, { numBytes }) => sum + numBytes, 0),
      numLayers,
      attentionMacsPerKey: 2 * numHeads * headSize * numLayers,
      kvBytesPerToken: 2 * 2 * number('attention.head_count_kv') * headSize * numLayers,
    };
  } finally {
    file.close();
  }
}

const isFloatType = (type) => type === 'F32' || type === 'F16' || type === 'BF16';

/** Peaks of the products the kernels use: {int, float, attention} in MAC/s; null where no peak could be probed. */
export function productPeaks({ macsPerSecond: peaks }) {
  const int = peaks.int8Vnni ?? peaks.int4Avx2;
  const attention = peaks.fmaAvx512 ?? peaks.fmaAvx2;
  if (!int || !attention) return null;
  // Some CPUs multiply bf16 pairs more slowly than floats.
  return { int, float: Math.max(peaks.bf16Avx512 ?? 0, attention), attention };
}

/**
 * Seconds of a step with `numTokens` rows, `numOutputs` rows of logits and `numKeys` (query, key) pairs, `outputKeys` of them of rows of
 * logits, `keysRead` keys from memory.
 */
function stepSeconds(costs, peaks, bandwidth, { numTokens, numOutputs, numKeys, outputKeys, keysRead }) {
  const products = (kind) =>
    numTokens * (costs.body[kind] - costs.tail[kind]) + numOutputs * (costs.tail[kind] + costs.head[kind]);
  const keysPerLayer = numKeys + (outputKeys - numKeys) / costs.numLayers;
  const compute =
    products('int') / peaks.int +
    products('float') / peaks.float +
    (keysPerLayer * costs.attentionMacsPerKey) / peaks.attention;
  const memory = (costs.bytes + keysRead * costs.kvBytesPerToken) / bandwidth;
  return { seconds: Math.max(compute, memory), bound: compute > memory ? 'compute' : 'memory' };
}

/** {rate: tokens/s, bound}, or null without peaks. Bursts count output tokens. */
export function roofline(workload, costs, probe) {
  const peaks = productPeaks(probe);
  if (peaks === null) return null;
  const step = (shape) => stepSeconds(costs, peaks, probe.bytesPerSecond, shape);
  const prefill = (n, before = 0) =>
    step({ numTokens: n, numOutputs: 1, numKeys: n * before + (n * (n + 1)) / 2, outputKeys: before + n, keysRead: 0 });
  const decode = (size, depth) => {
    const keys = size * depth;
    return step({ numTokens: size, numOutputs: size, numKeys: keys, outputKeys: keys, keysRead: keys });
  };
  if (workload.kind === 'prefill') {
    const { seconds, bound } = prefill(workload.numTokens);
    return { rate: workload.numTokens / seconds, bound };
  }
  if (workload.kind === 'decode') {
    const { seconds, bound } = decode(workload.numSequences, workload.depth);
    return { rate: workload.numSequences / seconds, bound };
  }
  const { numRequests, sharedTokens, ownTokens, outputTokens } = workload;
  const decoding = decode(numRequests, sharedTokens + ownTokens + outputTokens / 2);
  const shared = sharedTokens > 0 ? prefill(sharedTokens).seconds : 0;
  const own = numRequests * prefill(ownTokens, sharedTokens).seconds;
  const total = shared + own + (outputTokens - 1) * decoding.seconds;
  return { rate: (numRequests * outputTokens) / total, bound: decoding.bound };
}
