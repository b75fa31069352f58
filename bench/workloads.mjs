// The workloads by name, and their prompts. Prompts are token ids drawn from (workload, round): all engines get the same ones, and no
// round meets a prompt of an earlier one, so that no cache helps where it should not.
import { RandomSource } from '../dist/workload/random-source.js';

const FIRST_TOKEN = 1000;
const NUM_TOKENS = 39_000;

/** Names: ppTOKENS, xSEQUENCES@DEPTH, served, prefix. */
export const WORKLOADS = [
  'pp512',
  'pp2048',
  ...[1, 8, 32].flatMap((size) => [`x${size}@128`, `x${size}@1024`]),
  'served',
  'prefix',
];

export const WORKLOAD_FORMS = 'ppTOKENS (pp512), xSEQUENCES@DEPTH (x32@128), served, prefix';

/** A workload from its name, or null. `kind`: prefill and decode run in the engine's own process, http over its server. */
export function parseWorkload(name) {
  const prefill = /^pp([1-9]\d{0,5})$/.exec(name);
  if (prefill) return { name, kind: 'prefill', numTokens: Number(prefill[1]) };
  const decode = /^x([1-9]\d{0,2})@([1-9]\d{0,5})$/.exec(name);
  if (decode) return { name, kind: 'decode', numSequences: Number(decode[1]), depth: Number(decode[2]) };
  if (name === 'served')
    return { name, kind: 'http', numRequests: 32, sharedTokens: 0, ownTokens: 256, outputTokens: 64 };
  if (name === 'prefix')
    return { name, kind: 'http', numRequests: 32, sharedTokens: 1024, ownTokens: 32, outputTokens: 32 };
  return null;
}

/** `source`: a RandomSource. */
export function randomTokens(length, source) {
  return Array.from({ length }, () => FIRST_TOKEN + source.below(NUM_TOKENS));
}

/**
 * What one process measures: prompts, and how many windows (prefill: one prompt each; decode: `windowSteps` steps each). The first
 * prompt of a prefill and the first window of a decode only warm up.
 */
export function makeJob(workload, { round, numWindows, windowSteps }) {
  const source = new RandomSource(round, workload.name);
  switch (workload.kind) {
    case 'prefill':
      return {
        kind: 'prefill',
        prompts: Array.from({ length: numWindows + 1 }, () => randomTokens(workload.numTokens, source)),
      };
    case 'decode':
      return {
        kind: 'decode',
        prompts: Array.from({ length: workload.numSequences }, () => randomTokens(workload.depth, source)),
        numWindows: numWindows + 1,
        windowSteps,
      };
    default: {
      const shared = randomTokens(workload.sharedTokens, source);
      return {
        kind: 'http',
        warmup: randomTokens(64, source),
        sharedPrompt: shared,
        prompts: Array.from({ length: workload.numRequests }, () => [
          ...shared,
          ...randomTokens(workload.ownTokens, source),
        ]),
        outputTokens: workload.outputTokens,
      };
    }
  }
}
