// The medians of a comparison as grouped bars: a row for each workload, a column for each model and format. Bars of a group are as long
// as the share of its fastest engine; behind a peer's tokens/s stands how many times as fast Pagoda was.
import { bar, COLOURS, card, label, line } from './svg.mjs';

const LEFT = 84;
const TOP = 82;
const COLUMN = 232;
const BAR_WIDTH = 128;
const BAR = 12;
const STEP = BAR + 3;
const GAP = 14;

const rateText = (rate) => (rate < 100 ? rate.toFixed(1) : Math.round(rate).toLocaleString('en'));

const ratioText = (ratio) => `${ratio.toFixed(ratio < 2 ? 2 : 1)}x`;

function group(row, names, { x, y }) {
  const fastest = Math.max(...row.results.map(({ median }) => median));
  const shown = names.filter((name) => row.medians[name] !== undefined);
  return shown.flatMap((name, i) => {
    const rate = row.medians[name];
    const width = (BAR_WIDTH * rate) / fastest;
    const ours = row.medians.pagoda;
    const ratio = name === 'pagoda' || ours === undefined ? '' : ` · ${ratioText(ours / rate)}`;
    const top = y + i * STEP;
    return [
      bar(x, top, { width, height: BAR, colour: COLOURS[names.indexOf(name)] }),
      label(x + width + 5, top + BAR - 2, `${rateText(rate)}${ratio}`, { weight: name === 'pagoda' ? 600 : 400 }),
    ];
  });
}

/** rows: of peers.mjs; engines: by name. */
export function peersChart(rows, engines) {
  const columnOf = (row) => `${row.base} ${row.format}`.trim();
  const columns = [...new Set(rows.map(columnOf))];
  const workloads = [...new Set(rows.map(({ workload }) => workload))];
  const names = Object.keys(engines).filter((name) => rows.some(({ medians }) => medians[name] !== undefined));
  const width = Math.max(LEFT + columns.length * COLUMN + 12, 620);
  const parts = [label(16, 42, 'Bars: share of the fastest. Numbers: tokens/s, and how many times as fast Pagoda is.')];
  let legendX = 16;
  for (const name of names) {
    const { label: text } = engines[name];
    parts.push(
      bar(legendX, 51, { width: 10, height: 10, colour: COLOURS[names.indexOf(name)] }),
      label(legendX + 14, 60, text),
    );
    legendX += 34 + 6.2 * text.length;
  }
  parts.push(...columns.map((column, i) => label(LEFT + i * COLUMN, TOP, column, { weight: 600 })));
  let y = TOP + 12;
  for (const workload of workloads) {
    const cells = rows.filter((row) => row.workload === workload && row.results.length > 0);
    const most = Math.max(1, ...cells.map(({ results }) => results.length));
    parts.push(line([16, y - 4], [width - 16, y - 4]), label(16, y + 12, workload, { weight: 600 }));
    for (const row of cells)
      parts.push(...group(row, names, { x: LEFT + columns.indexOf(columnOf(row)) * COLUMN, y: y + 2 }));
    y += most * STEP + GAP;
  }
  return card({ width, height: y + 4, title: 'Pagoda and its peers, medians of rounds in turns' }, parts);
}
