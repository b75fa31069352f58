// node scripts/flamegraph.mjs OUT.svg NAME=FILE.cpuprofile… [--from SECONDS] [--top N]
// A flame graph of V8 profiles (`node --cpu-prof`), one root per NAME, without idle time; on standard output the functions with the
// largest shares of their own. `--from` leaves out the start of the profiles. Widths are samples on the wall clock.
import { readFileSync, writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';

const ROW = 15;
const WIDTH = 1200;
/** Narrower boxes are left out, in pixels. */
const MIN_WIDTH = 1.5;
const PIXELS_PER_CHARACTER = 6.2;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { from: { type: 'string', default: '0' }, top: { type: 'string', default: '25' } },
});
const [output, ...inputs] = positionals;
if (output === undefined || inputs.length === 0) {
  process.stderr.write('usage: node scripts/flamegraph.mjs OUT.svg NAME=FILE.cpuprofile… [--from SECONDS] [--top N]\n');
  process.exit(2);
}

const frame = (name) => ({ name, total: 0, self: 0, children: new Map() });
const root = frame('all');
const own = new Map();
for (const input of inputs) {
  const [name, file] = input.split('=', 2);
  add(name, JSON.parse(readFileSync(file, 'utf8')));
}

/** `/dist/server/sse.js:66` for ours, `node:net` for Node's. */
function place({ url, lineNumber }) {
  if (url === '') return '';
  const [, ours] = url.split('/dist/');
  if (ours !== undefined) return ` ${ours}:${lineNumber + 1}`;
  const [, dependency] = url.split('/node_modules/');
  return ` ${dependency ?? url}`;
}

function add(rootName, profile) {
  const nodes = new Map(profile.nodes.map((node) => [node.id, node]));
  const parents = new Map();
  for (const node of profile.nodes) for (const child of node.children ?? []) parents.set(child, node.id);
  const titles = new Map(
    profile.nodes.map((node) => [node.id, `${node.callFrame.functionName || '(anonymous)'}${place(node.callFrame)}`]),
  );
  const first = profile.startTime + Number(values.from) * 1e6;
  let time = profile.startTime;
  profile.samples.forEach((sample, i) => {
    const microseconds = profile.timeDeltas[i];
    time += microseconds;
    if (time < first || nodes.get(sample).callFrame.functionName === '(idle)') return;
    const stack = [];
    for (let id = sample; parents.has(id); id = parents.get(id)) stack.unshift(titles.get(id));
    let at = root;
    root.total += microseconds;
    for (const title of [rootName, ...stack]) {
      if (!at.children.has(title)) at.children.set(title, frame(title));
      at = at.children.get(title);
      at.total += microseconds;
    }
    const leaf = `${rootName}: ${titles.get(sample)}`;
    own.set(leaf, (own.get(leaf) ?? 0) + microseconds);
  });
}

const boxes = [];
let depth = 0;

function draw(node, x, level) {
  const width = (node.total / root.total) * WIDTH;
  if (width < MIN_WIDTH) return;
  depth = Math.max(depth, level);
  boxes.push({ node, x, level, width });
  let left = x;
  for (const child of [...node.children.values()].sort((a, b) => (a.name < b.name ? -1 : 1))) {
    draw(child, left, level + 1);
    left += (child.total / root.total) * WIDTH;
  }
}

const escaped = (text) => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('"', '&quot;');

/** Ours, Node's, or what V8 calls by no file. */
function colour(name) {
  if (/\.js:\d+$/.test(name)) return '#f2a65a';
  return name.includes('node:') ? '#f4d58d' : '#d9dde3';
}

draw(root, 0, 0);
const height = (depth + 1) * ROW;
const parts = boxes.map(({ node, x, level, width }) => {
  const y = height - (level + 1) * ROW;
  const share = ((100 * node.total) / root.total).toFixed(1);
  const length = Math.floor((width - 4) / PIXELS_PER_CHARACTER);
  const text =
    length < 3 ? '' : `<text x="${(x + 2).toFixed(1)}" y="${y + 11}">${escaped(node.name.slice(0, length))}</text>`;
  return (
    `<g><title>${escaped(node.name)} ${share} %</title><rect x="${x.toFixed(1)}" y="${y}" width="${width.toFixed(1)}" ` +
    `height="${ROW - 1}" fill="${colour(node.name)}"/>${text}</g>`
  );
});
writeFileSync(
  output,
  `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" font-family="monospace" font-size="10">` +
    `<rect width="100%" height="100%" fill="#fff"/>\n${parts.join('\n')}\n</svg>\n`,
);
for (const [name, microseconds] of [...own].sort((a, b) => b[1] - a[1]).slice(0, Number(values.top))) {
  process.stdout.write(`${((100 * microseconds) / root.total).toFixed(1).padStart(5)} %  ${name}\n`);
}
