// Line charts as SVG text, for a page that needs no network and no script. Every text is escaped; numbers are finite or left out.

export interface ChartLine {
  readonly name: string;
  readonly points: ReadonlyArray<readonly [x: number, y: number]>;
}

export interface ChartOptions {
  readonly title: string;
  readonly xLabel: string;
  readonly lines: readonly ChartLine[];
  /** How a y value is written. */
  formatY(value: number): string;
  formatX(value: number): string;
  /** A dashed horizontal line. */
  readonly target?: { readonly y: number; readonly name: string } | null;
}

const WIDTH = 560;
const HEIGHT = 260;
const LEFT = 64;
const RIGHT = 12;
const TOP = 34;
const BOTTOM = 54;
/** Okabe and Ito's palette: told apart with any colour vision. */
const COLOURS = ['#0072b2', '#d55e00', '#009e73', '#cc79a7', '#e69f00', '#56b4e9'];

export function svgChart(options: ChartOptions): string {
  const { lines, target } = options;
  const points = lines.flatMap((line) => line.points);
  const mostX = Math.max(1e-9, ...points.map(([x]) => x));
  const topY = niceTop(Math.max(1e-9, target?.y ?? 0, ...points.map(([, y]) => y)));
  const scaleX = (x: number) => LEFT + (x / mostX) * (WIDTH - LEFT - RIGHT);
  const scaleY = (y: number) => HEIGHT - BOTTOM - (Math.min(y, topY) / topY) * (HEIGHT - TOP - BOTTOM);
  const parts = [
    `<svg viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label="${escapeHtml(options.title)}">`,
    `<text x="${LEFT}" y="18" class="title">${escapeHtml(options.title)}</text>`,
    ...grid(options, { mostX, topY, scaleX, scaleY }),
    ...lines.map((line, index) => polyline(line, COLOURS[index % COLOURS.length]!, scaleX, scaleY)),
    ...(target === null || target === undefined ? [] : [targetLine(target, scaleY)]),
    ...legend(lines),
    '</svg>',
  ];
  return parts.join('\n');
}

interface Scales {
  readonly mostX: number;
  readonly topY: number;
  scaleX(x: number): number;
  scaleY(y: number): number;
}

function grid(options: ChartOptions, { mostX, topY, scaleX, scaleY }: Scales): string[] {
  const parts: string[] = [];
  for (let i = 0; i <= 4; i++) {
    const y = (topY * i) / 4;
    const at = number(scaleY(y));
    parts.push(`<line x1="${LEFT}" x2="${WIDTH - RIGHT}" y1="${at}" y2="${at}" class="grid"/>`);
    parts.push(`<text x="${LEFT - 6}" y="${number(scaleY(y) + 4)}" class="y">${escapeHtml(options.formatY(y))}</text>`);
    const x = (mostX * i) / 4;
    parts.push(
      `<text x="${number(scaleX(x))}" y="${HEIGHT - BOTTOM + 16}" class="x">${escapeHtml(options.formatX(x))}</text>`,
    );
  }
  parts.push(
    `<text x="${(LEFT + WIDTH - RIGHT) / 2}" y="${HEIGHT - BOTTOM + 31}" class="x">${escapeHtml(options.xLabel)}</text>`,
  );
  return parts;
}

function polyline(line: ChartLine, colour: string, scaleX: Scales['scaleX'], scaleY: Scales['scaleY']): string {
  const path = line.points
    .filter(([x, y]) => Number.isFinite(x) && Number.isFinite(y))
    .map(([x, y]) => `${number(scaleX(x))},${number(scaleY(y))}`)
    .join(' ');
  return `<polyline points="${path}" fill="none" stroke="${colour}" stroke-width="1.8"/>`;
}

function targetLine({ y, name }: { y: number; name: string }, scaleY: Scales['scaleY']): string {
  const at = number(scaleY(y));
  return `<line x1="${LEFT}" x2="${WIDTH - RIGHT}" y1="${at}" y2="${at}" class="target"/><text x="${WIDTH - RIGHT}" y="${number(scaleY(y) - 4)}" class="y">${escapeHtml(name)}</text>`;
}

function legend(lines: readonly ChartLine[]): string[] {
  const step = (WIDTH - LEFT - RIGHT) / Math.max(1, lines.length);
  return lines.map(({ name }, index) => {
    const x = LEFT + index * step;
    const shown = name.length > step / 7 ? `${name.slice(0, Math.max(1, Math.floor(step / 7) - 1))}…` : name;
    const colour = COLOURS[index % COLOURS.length]!;
    return `<rect x="${number(x)}" y="${HEIGHT - 14}" width="10" height="4" fill="${colour}"/><text x="${number(x + 14)}" y="${HEIGHT - 8}" class="legend">${escapeHtml(shown)}<title>${escapeHtml(name)}</title></text>`;
  });
}

/** The next of 1, 2, 2.5, 5 times a power of ten. */
function niceTop(value: number): number {
  const power = 10 ** Math.floor(Math.log10(value));
  const step = [1, 2, 2.5, 5, 10].find((each) => each * power >= value * 0.999999) ?? 10;
  return step * power;
}

function number(value: number): string {
  return value.toFixed(1);
}

export function escapeHtml(text: string): string {
  return text.replace(
    /[&<>"']/g,
    (character) => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' })[character] ?? character,
  );
}
