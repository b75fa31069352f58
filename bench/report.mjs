// The results as text and as an SVG chart.
import { svgChart } from '../dist/sim/svg-chart.js';

const giga = (value) => (value / 1e9).toFixed(value < 1e11 ? 1 : 0);
const number = (value) => (value < 100 ? value.toFixed(1) : Math.round(value).toLocaleString('en'));

export function peaksText(peaks) {
  const macs = Object.entries(peaks.macsPerSecond).map(([kind, rate]) => `${kind} ${giga(rate)}`);
  return `GMAC/s: ${macs.join(', ') || 'none probed'}; read ${giga(peaks.bytesPerSecond)} GB/s`;
}

/** One line for each row and engine: median, best, ours to theirs, share of the roofline, the settings of the sweep. */
export function tableText(rows, engines) {
  const lines = [
    '| model | workload | engine | median tokens/s | best | pagoda is | of the roofline | settings |',
    '| --- | --- | --- | --- | --- | --- | --- | --- |',
  ];
  for (const row of rows)
    for (const result of row.results) {
      const ours = row.medians.pagoda;
      const ratio = result.engine === 'pagoda' || ours === undefined ? '' : `${(ours / result.median).toFixed(2)}x`;
      const share = row.roofline === null ? '' : `${((100 * result.median) / row.roofline.rate).toFixed(0)} %`;
      const cells = [`${row.base} ${row.format}`, row.workload, engines[result.engine].label, number(result.median)];
      const settings = JSON.stringify(result.settings).replaceAll(/[{}"]/g, '');
      lines.push(`| ${[...cells, number(result.best), ratio, share, settings].join(' | ')} |`);
    }
  return lines.join('\n');
}

/** Latencies and client time of the bursts. */
export function burstText(rows, engines) {
  const lines = [];
  for (const row of rows)
    for (const { engine, burst } of row.results)
      if (burst)
        lines.push(
          `${row.format} ${row.workload} ${engines[engine].label}: ${burst.seconds.toFixed(2)} s, TTFT median ${burst.ttft.toFixed(2)} s, ` +
            `TPOT median ${(1000 * burst.tpot).toFixed(1)} ms, client CPU ${burst.clientCpuSeconds.toFixed(2)} s (medians of rounds)`,
        );
  return lines.join('\n');
}

/** Decode rates over the batch size, one line per engine and the roofline; null when fewer than two batch sizes ran. */
export function decodeChart(rows, engines) {
  const model = rows[0] && `${rows[0].base} ${rows[0].format}`;
  const points = rows
    .map((row) => ({ row, parts: /^x(\d+)@(\d+)$/.exec(row.workload) }))
    .filter(({ row, parts }) => parts && `${row.base} ${row.format}` === model);
  const depth = points[0]?.parts[2];
  const line = points.filter(({ parts }) => parts[2] === depth).sort((a, b) => a.parts[1] - b.parts[1]);
  if (line.length < 2) return null;
  const ofEngine = (name) =>
    line
      .filter(({ row }) => row.medians[name] !== undefined)
      .map(({ row, parts }) => [Number(parts[1]), row.medians[name]]);
  const names = Object.keys(engines).filter((name) => ofEngine(name).length > 1);
  const roof = line.filter(({ row }) => row.roofline).map(({ row, parts }) => [Number(parts[1]), row.roofline.rate]);
  const chart = svgChart({
    title: `Decode at depth ${depth}, ${model}, tokens/s (medians)`,
    xLabel: 'sequences at once',
    lines: [
      ...names.map((name) => ({ name: engines[name].label, points: ofEngine(name) })),
      ...(roof.length > 1 ? [{ name: 'roofline', points: roof }] : []),
    ],
    formatX: (value) => value.toFixed(0),
    formatY: (value) => Math.round(value).toLocaleString('en'),
  });
  const style =
    '<style>text{font:11px sans-serif;fill:#333}.title{font-size:13px}.x{text-anchor:middle}.y{text-anchor:end}.grid{stroke:#ddd}</style>' +
    '<rect width="100%" height="100%" fill="#fff"/>';
  return `${chart.replace('<svg ', '<svg xmlns="http://www.w3.org/2000/svg" ').replace('>', `>${style}`)}\n`;
}
