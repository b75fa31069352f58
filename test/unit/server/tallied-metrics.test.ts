import { Counter, Histogram, Registry } from 'prom-client';
import { describe, expect, it } from 'vitest';
import { TalliedCounter, TalliedHistogram } from '../../../src/server/tallied-metrics.ts';

const labels = { model_name: 'a "quoted" name', engine: '0' };
const labelNames = Object.keys(labels);
const buckets = [0.01, 0.5, 1];

describe('tallied metrics', () => {
  it('are scraped as those of prom-client are, over several scrapes', async () => {
    const ours = new Registry();
    const theirs = new Registry();
    const counter = new TalliedCounter({ name: 'c_total', help: 'Count.', registry: ours, labelNames });
    const tally = counter.tally(labels);
    const histogram = new TalliedHistogram({ name: 'h_seconds', help: 'Time.', registry: ours, labels, buckets });
    const theirCounter = new Counter({ name: 'c_total', help: 'Count.', registers: [theirs], labelNames });
    const theirHistogram = new Histogram({
      name: 'h_seconds',
      help: 'Time.',
      registers: [theirs],
      labelNames,
      buckets,
    });
    theirCounter.inc(labels, 0);
    theirHistogram.zero(labels);
    expect(await ours.metrics()).toBe(await theirs.metrics());
    for (const values of [[0.01, 0.3, 0.5], [2, 0, -1, 1, 1.0001], []]) {
      for (const value of values) {
        tally.inc(2 + value);
        theirCounter.inc(labels, 2 + value);
        histogram.observe(value);
        theirHistogram.observe(labels, value);
      }
      expect(await ours.metrics()).toBe(await theirs.metrics());
    }
  });

  it('refuse what is no number', () => {
    const histogram = new TalliedHistogram({ name: 'h', help: 'h', registry: new Registry(), labels, buckets });
    expect(() => histogram.observe(Number.NaN)).toThrow('NaN is no number');
  });
});
