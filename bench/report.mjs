// The results as text.

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
