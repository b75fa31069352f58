// The gates: ratios of medians in one interleaved run of five rounds or more, by kind of CPU. What did not run has no gate.

const FORMATS = ['q4_1', 'q4_0', 'q8_0', 'bf16'];
const byFormat = (...bounds) => Object.fromEntries(FORMATS.map((format, i) => [format, bounds[i]]));
/** kind -> workload -> {against, bounds by format of SmolLM2-135M}. The best of `against` that ran counts. */
const TABLE = {
  avx512: {
    'x32@128': { against: ['llama'], bounds: byFormat(7, 2.8, 4, 3.5) },
    'x8@128': { against: ['llama'], bounds: byFormat(5, 2.5, 3, 2.5) },
    'x1@128': { against: ['llama'], bounds: byFormat(2, 1.8, 1.5, 1.3) },
    pp512: { against: ['llama'], bounds: byFormat(8, 3, 4.5, 3.5) },
    served: { against: ['llama-server'], bounds: byFormat(3, 3, 3, 3) },
    prefix: { against: ['llama-server'], bounds: byFormat(10, 10, 10, 10) },
  },
  avx2: {
    'x32@128': { against: ['llama', 'ik', 'openvino'], bounds: byFormat(4, 2.6, 1.8, 3) },
    'x8@128': { against: ['llama', 'ik', 'openvino'], bounds: byFormat(3.5, 3, 2.1, 2.4) },
    'x1@128': { against: ['llama', 'ik', 'openvino'], bounds: byFormat(1.8, 1.7, 1.3, 1.6) },
    pp512: { against: ['llama', 'ik', 'openvino'], bounds: byFormat(1.6, 1.8, 1.2, 1.5) },
    served: { against: ['llama-server', 'openvino'], bounds: byFormat(2.5, 2.5, 2.5, 2.5) },
    prefix: { against: ['llama-server'], bounds: byFormat(10, 10, 10, 10) },
  },
};
/** Shares of the roofline that the whole model reaches. */
const SHARES = { 'x1@128': 0.75, 'x32@128': 0.55, pp512: 0.55 };
/** What the engine was held to before: no slower than half of llama.cpp. */
const FLOOR = { 'x32@128': 0.5, pp512: 0.5 };

const gate = (name, value, bound) => ({
  name,
  value: Number(value.toFixed(3)),
  bound: `>= ${bound}`,
  ok: value >= bound,
});

/** rows: {base, format, workload, medians: {engine: tokens/s}, share}. */
export function gatesFor(kind, rows) {
  const gates = [];
  for (const { base, format, workload, medians, share } of rows) {
    const ours = medians.pagoda;
    if (base !== 'smollm2-135m' || ours === undefined) continue;
    const where = `${format} ${workload}`;
    const ratio = (names) => {
      const theirs = names.filter((name) => medians[name] !== undefined).map((name) => medians[name]);
      return theirs.length > 0 ? ours / Math.max(...theirs) : null;
    };
    const row = TABLE[kind]?.[workload];
    const ratioToBest = row ? ratio(row.against) : null;
    if (ratioToBest !== null) {
      const names = row.against.filter((name) => medians[name] !== undefined);
      const missing = row.against.filter((name) => medians[name] === undefined);
      const note = missing.length > 0 ? ` (without ${missing.join(', ')})` : '';
      gates.push(gate(`${where} against the best of ${names.join(', ')}${note}`, ratioToBest, row.bounds[format]));
    }
    if (kind === 'avx2' && workload === 'prefix' && medians.openvino !== undefined)
      gates.push(gate(`${where} against openvino with a warm cache`, ours / medians.openvino, 2));
    const ratioToLlama = FLOOR[workload] ? ratio(['llama']) : null;
    if (ratioToLlama !== null) gates.push(gate(`${where}, at least half of llama`, ratioToLlama, FLOOR[workload]));
    if (share !== null && SHARES[workload])
      gates.push(gate(`${where}, share of the roofline`, share, SHARES[workload]));
  }
  return gates;
}
