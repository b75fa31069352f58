// What the SVG charts are drawn with: an opaque card, so that they are readable on a light and on a dark page, and Okabe and Ito's
// palette, told apart with any colour vision.
import { escapeHtml } from '../dist/sim/svg-chart.js';

export const COLOURS = ['#0072b2', '#d55e00', '#009e73', '#cc79a7', '#e69f00', '#56b4e9', '#7f7f7f'];
const INK = '#24292f';
const FAINT = '#d0d7de';

/** A whole file: the card with a title, and `parts` on it. */
export function card({ width, height, title }, parts) {
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" role="img" aria-label="${escapeHtml(title)}" font-family="system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif" font-size="11">`,
    `<rect x="0.5" y="0.5" width="${width - 1}" height="${height - 1}" rx="6" fill="#fff" stroke="${FAINT}"/>`,
    label(16, 24, title, { size: 14, weight: 600 }),
    ...parts,
    '</svg>\n',
  ].join('\n');
}

export function label(x, y, content, { anchor = 'start', size = 11, weight = 400, colour = INK } = {}) {
  return `<text x="${round(x)}" y="${round(y)}" text-anchor="${anchor}" font-size="${size}" font-weight="${weight}" fill="${colour}">${escapeHtml(content)}</text>`;
}

export function line([x1, y1], [x2, y2], colour = FAINT) {
  return `<line x1="${round(x1)}" y1="${round(y1)}" x2="${round(x2)}" y2="${round(y2)}" stroke="${colour}"/>`;
}

export function bar(x, y, { width, height, colour }) {
  return `<rect x="${round(x)}" y="${round(y)}" width="${round(Math.max(1, width))}" height="${height}" rx="1.5" fill="${colour}"/>`;
}

/** A line through `points`, a dot at each; dashed and without dots for a limit. */
export function curve(points, { colour, isLimit }) {
  const path = points.map(([x, y]) => `${round(x)},${round(y)}`).join(' ');
  const dash = isLimit ? ' stroke-dasharray="5 4"' : '';
  const dots = isLimit
    ? []
    : points.map(([x, y]) => `<circle cx="${round(x)}" cy="${round(y)}" r="2.6" fill="${colour}"/>`);
  return [`<polyline points="${path}" fill="none" stroke="${colour}" stroke-width="1.8"${dash}/>`, ...dots].join('');
}

const round = (value) => Number(value.toFixed(1));
