// The workloads by name, and their prompts. Prompts are token ids drawn from (workload, round): all engines get the same ones, and no
// round meets a prompt of an earlier one, so that no cache helps where it should not.

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

/** mulberry32: the same numbers on every machine. */
function generator(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

function seedOf(text) {
  let hash = 0x811c9dc5;
  for (const character of text) hash = Math.imul(hash ^ character.codePointAt(0), 0x01000193);
  return hash >>> 0;
}

export function randomTokens(length, next) {
  return Array.from({ length }, () => FIRST_TOKEN + Math.floor(next() * NUM_TOKENS));
}

/**
 * What one process measures: prompts, and how many windows (prefill: one prompt each; decode: `windowSteps` steps each). The first
 * prompt of a prefill and the first window of a decode only warm up.
 */
export function makeJob(workload, { round, numWindows, windowSteps }) {
  const next = generator(seedOf(`${workload.name} ${round}`));
  switch (workload.kind) {
    case 'prefill':
      return {
        kind: 'prefill',
        prompts: Array.from({ length: numWindows + 1 }, () => randomTokens(workload.numTokens, next)),
      };
    case 'decode':
      return {
        kind: 'decode',
        prompts: Array.from({ length: workload.numSequences }, () => randomTokens(workload.depth, next)),
        numWindows: numWindows + 1,
        windowSteps,
      };
    default: {
      const shared = randomTokens(workload.sharedTokens, next);
      return {
        kind: 'http',
        warmup: randomTokens(64, next),
        sharedPrompt: shared,
        prompts: Array.from({ length: workload.numRequests }, () => [
          ...shared,
          ...randomTokens(workload.ownTokens, next),
        ]),
        outputTokens: workload.outputTokens,
      };
    }
  }
}
