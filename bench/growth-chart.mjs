// Rates over powers of two as curves: one step of the axis is a doubling. A limit is dashed.
import { bar, COLOURS, card, curve, label, line } from './svg.mjs';

const WIDTH = 620;
const HEIGHT = 320;
const LEFT = 62;
const RIGHT = 18;
const TOP = 64;
const BOTTOM = 46;

const numberText = (value) => Math.round(value).toLocaleString('en');

/** The next of 1, 1.5, 2, 2.5, 3, 4, 5, 6, 8 times a power of ten. */
function niceTop(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * ([1, 1.5, 2, 2.5, 3, 4, 5, 6, 8].find((each) => each * power >= value) ?? 10);
}

/** note: what was measured; sizes: the numbers along the axis; lines: {name, colour: index, isLimit, rates: one per size}. */
export function growthChart({ title, note, xLabel, sizes, lines }) {
  const top = niceTop(Math.max(...lines.flatMap(({ rates }) => rates)));
  const atX = (i) => LEFT + 8 + (i * (WIDTH - LEFT - RIGHT - 16)) / Math.max(1, sizes.length - 1);
  const atY = (rate) => HEIGHT - BOTTOM - (rate / top) * (HEIGHT - TOP - BOTTOM);
  const parts = [];
  for (let i = 0; i <= 4; i++) {
    const rate = (top * i) / 4;
    parts.push(line([LEFT, atY(rate)], [WIDTH - RIGHT, atY(rate)]));
    parts.push(label(LEFT - 6, atY(rate) + 4, numberText(rate), { anchor: 'end' }));
  }
  parts.push(...sizes.map((size, i) => label(atX(i), HEIGHT - BOTTOM + 17, numberText(size), { anchor: 'middle' })));
  parts.push(label((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, xLabel, { anchor: 'middle' }));
  parts.push(label(16, HEIGHT - 12, note, { colour: COLOURS.at(-1) }));
  let legendX = 16;
  for (const { name, colour, isLimit, rates } of lines) {
    const points = rates.map((rate, i) => [atX(i), atY(rate)]);
    parts.push(curve(points, { colour: COLOURS[colour], isLimit }));
    for (const x of isLimit ? [0, 7] : [0])
      parts.push(bar(legendX + x, 40, { width: isLimit ? 5 : 12, height: 3, colour: COLOURS[colour] }));
    parts.push(label(legendX + 17, 45, name));
    legendX += 36 + 6 * name.length;
  }
  return card({ width: WIDTH, height: HEIGHT, title }, parts);
}
