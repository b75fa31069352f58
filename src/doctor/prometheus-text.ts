// Reads the Prometheus text format (version 0.0.4): samples with labels, histograms put together again. Sums over label sets, since
// a diagnosis looks at the server as a whole.

/** A line that is no sample is skipped; a page without any is for the caller to refuse. */
export interface PromSample {
  readonly name: string;
  readonly labels: ReadonlyMap<string, string>;
  readonly value: number;
}

const NAME = /^[a-zA-Z_:][a-zA-Z0-9_:]*/;

export class Scrape {
  readonly #byName = new Map<string, PromSample[]>();

  constructor(text: string) {
    for (const line of text.split('\n')) {
      const sample = parseLine(line);
      if (sample === null) continue;
      const list = this.#byName.get(sample.name);
      if (list === undefined) this.#byName.set(sample.name, [sample]);
      else list.push(sample);
    }
  }

  names(): IterableIterator<string> {
    return this.#byName.keys();
  }

  samples(name: string): readonly PromSample[] {
    return this.#byName.get(name) ?? [];
  }

  /** Sum over all label sets; null when there is none. */
  sum(name: string, where?: readonly [string, string]): number | null {
    const samples = this.samples(name).filter(({ labels }) => where === undefined || labels.get(where[0]) === where[1]);
    return samples.length === 0 ? null : samples.reduce((sum, { value }) => sum + value, 0);
  }

  mean(name: string): number | null {
    const samples = this.samples(name);
    return samples.length === 0 ? null : samples.reduce((sum, { value }) => sum + value, 0) / samples.length;
  }

  /** By one label, each summed over the others. */
  sumBy(name: string, label: string): ReadonlyMap<string, number> {
    const sums = new Map<string, number>();
    for (const { labels, value } of this.samples(name)) {
      const key = labels.get(label) ?? '';
      sums.set(key, (sums.get(key) ?? 0) + value);
    }
    return sums;
  }

  histogram(name: string): Histogram | null {
    const count = this.sum(`${name}_count`);
    const sum = this.sum(`${name}_sum`);
    if (count === null || sum === null) return null;
    const buckets = [...this.sumBy(`${name}_bucket`, 'le')]
      .map(([le, value]): Bucket => ({ le: bound(le), count: value }))
      .filter(({ le }) => !Number.isNaN(le))
      .sort((a, b) => a.le - b.le);
    return { count, sum, buckets };
  }
}

export interface Bucket {
  /** Upper bound, inclusive. */
  readonly le: number;
  /** Cumulative. */
  readonly count: number;
}

export interface Histogram {
  readonly count: number;
  readonly sum: number;
  readonly buckets: readonly Bucket[];
}

const bound = (text: string): number => (/^\+?inf$/i.test(text) ? Number.POSITIVE_INFINITY : Number(text));

/** What happened between two scrapes; a counter that went back began again at 0. */
export function histogramDelta(before: Histogram | null, after: Histogram): Histogram {
  if (before === null || after.count < before.count) return after;
  const earlier = new Map(before.buckets.map(({ le, count }) => [le, count]));
  return {
    count: after.count - before.count,
    sum: after.sum - before.sum,
    buckets: after.buckets.map(({ le, count }) => ({ le, count: Math.max(0, count - (earlier.get(le) ?? 0)) })),
  };
}

/** As Prometheus's histogram_quantile: linear inside the bucket; beyond the last bound, that bound. Null when empty. */
export function histogramQuantile(histogram: Histogram, share: number): number | null {
  const { buckets } = histogram;
  const total = buckets.at(-1)?.count ?? 0;
  if (total <= 0) return null;
  const rank = share * total;
  const index = buckets.findIndex(({ count }) => count >= rank);
  const bucket = buckets[index]!;
  const previous = buckets[index - 1];
  if (bucket.le === Number.POSITIVE_INFINITY) return previous?.le ?? null;
  const low = previous?.le ?? 0;
  const below = previous?.count ?? 0;
  return bucket.count === below ? bucket.le : low + ((bucket.le - low) * (rank - below)) / (bucket.count - below);
}

/** Share of the values above a bound, from the bucket that ends closest below it. */
export function shareAbove(histogram: Histogram, limit: number): number | null {
  const total = histogram.buckets.at(-1)?.count ?? 0;
  if (total <= 0) return null;
  const below = histogram.buckets.findLast(({ le }) => le < limit);
  return 1 - (below?.count ?? 0) / total;
}

function parseLine(line: string): PromSample | null {
  const name = NAME.exec(line)?.[0];
  if (name === undefined) return null;
  let at = name.length;
  const labels = new Map<string, string>();
  if (line[at] === '{') {
    const end = readLabels(line, at + 1, labels);
    if (end === -1) return null;
    at = end;
  }
  const [text = ''] = line.slice(at).trim().split(/\s+/);
  if (text === '') return null;
  const value = /^[+-]?inf$/i.test(text) ? (text.startsWith('-') ? -1 : 1) * Number.POSITIVE_INFINITY : Number(text);
  return Number.isNaN(value) ? null : { name, labels, value };
}

/** Fills in the labels; the place after the closing brace, or -1 when the line is broken. */
function readLabels(line: string, start: number, labels: Map<string, string>): number {
  const label = /\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(,|(?=\}))/y;
  label.lastIndex = start;
  let at = start;
  for (let match = label.exec(line); match !== null; match = label.exec(line)) {
    labels.set(
      match[1]!,
      match[2]!.replace(/\\(.)/g, (_, character: string) => (character === 'n' ? '\n' : character)),
    );
    at = label.lastIndex;
  }
  const rest = /\s*\}/y;
  rest.lastIndex = at;
  return rest.test(line) ? rest.lastIndex : -1;
}
