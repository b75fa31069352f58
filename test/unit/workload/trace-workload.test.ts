import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { PagodaError } from '../../../src/errors.ts';
import { openTrace, type TraceOptions } from '../../../src/workload/trace-workload.ts';
import { workloadStatistics } from '../../../src/workload/workload-statistics.ts';
import { noShared, sharedPath } from '../../shared-data.ts';

const folder = mkdtempSync(join(tmpdir(), 'pagoda-trace-'));
afterAll(() => rmSync(folder, { recursive: true }));

let numFiles = 0;
function fileOf(text: string): string {
  const path = join(folder, `trace-${numFiles++}`);
  writeFileSync(path, text);
  return path;
}
const open = (text: string, options: Partial<TraceOptions> = {}) => openTrace({ path: fileOf(text), ...options });
const rows = (text: string, options: Partial<TraceOptions> = {}) =>
  [...open(text, options).requests()].map((each) => [
    Number(each.arrivalSeconds.toFixed(6)),
    each.numPromptTokens,
    each.numOutputTokens,
  ]);

const VIDUR = 'arrived_at,num_prefill_tokens,num_decode_tokens\n0,16,600\n0.5,5112,2\n10,3,4\n';
const AZURE =
  'TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.9799600,4808,10\r\n2023-11-16 18:17:04.0319600,3180,8';

describe('formats', () => {
  it('Vidur', () => {
    expect(rows(VIDUR)).toEqual([
      [0, 16, 600],
      [0.5, 5112, 2],
      [10, 3, 4],
    ]);
    expect(open(VIDUR)).toMatchObject({ format: 'vidur', numRequests: 3, numSkipped: 0, closedLoop: null });
  });

  it('Azure 2023 with CRLF, 2024 with an offset and further columns', () => {
    expect(rows(AZURE)).toEqual([
      [0, 4808, 10],
      [0.052, 3180, 8],
    ]);
    const later =
      'TIMESTAMP,ContextTokens,GeneratedTokens,NumImages\n2024-05-10 00:00:00.009930+00:00,5,6,1\n2024-05-10 01:00:01.009930+01:00,7,8,0\n';
    expect(rows(later)).toEqual([
      [0, 5, 6],
      [1, 7, 8],
    ]);
  });

  it('BurstGPT leaves out failures and keeps sessions', () => {
    const header = 'Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n';
    const text = `${header}5,1,2.5,ChatGPT,472,18,490,Conversation log\n45,2,3,GPT-4,1087,0,1087,API log\n118,1,1,GPT-4,417,276,693,API log\n`;
    const workload = open(text);
    expect(workload).toMatchObject({ format: 'burstgpt', numRequests: 2, numSkipped: 1 });
    expect([...workload.requests()].map((each) => each.sessionId)).toEqual([1, 1]);
    expect(rows(text)).toEqual([
      [0, 472, 18],
      [113, 417, 276],
    ]);
  });

  it('Mooncake spreads its three-second batches and keeps the ids', () => {
    const line = (timestamp: number, ids: number[]) =>
      JSON.stringify({ timestamp, input_length: 512 * ids.length, output_length: 9, hash_ids: ids });
    const text = [line(0, [0, 1]), line(0, [0, 2]), line(3000, [0, 1, 3]), line(5999, [7])].join('\n');
    const workload = open(text, { seed: 4 });
    const requests = [...workload.requests()];
    expect(workload.hashBlockTokens).toBe(512);
    expect(requests.map((each) => each.hashIds)).toEqual([[0, 1], [0, 2], [0, 1, 3], [7]]);
    const times = requests.map((each) => each.arrivalSeconds);
    expect(times).toEqual([...times].sort((a, b) => a - b));
    expect(times[1]).toBeLessThan(3);
    expect(times[2]).toBeGreaterThan(3);
    expect([...open(text, { spreadSeconds: 0 }).requests()].map((each) => each.arrivalSeconds)).toEqual([
      0, 0, 3, 5.999,
    ]);
    expect(workloadStatistics(workload).sharedBlockShare).toBeCloseTo(3 / 8, 9);
  });

  it("ShareGPT: first turn, vLLM's filter, tokens as the caller counts them", () => {
    const talk = (...values: string[]) => ({
      conversations: values.map((value, i) => ({ from: i % 2 ? 'gpt' : 'human', value })),
    });
    const text = JSON.stringify(
      [
        talk('one two three [four', 'a "b" {c \\ d e'),
        talk('too short', 'a b c d'),
        talk('only one message here'),
        talk('a b c d', 'e f g h i', 'j'),
      ],
      null,
      2,
    );
    const countTokens = (words: string) => words.split(' ').length;
    const workload = open(text, { countTokens, arrivals: { kind: 'constant', requestsPerSecond: 2 } });
    expect(workload).toMatchObject({ format: 'sharegpt', numRequests: 2, numSkipped: 2 });
    expect(
      [...workload.requests()].map((each) => [each.arrivalSeconds, each.numPromptTokens, each.numOutputTokens]),
    ).toEqual([
      [0, 4, 6],
      [0.5, 4, 5],
    ]);
  });
});

describe('what is replayed', () => {
  it('scales, cuts a window, and stops early', () => {
    expect(rows(VIDUR, { scale: 2 })).toEqual([
      [0, 16, 600],
      [0.25, 5112, 2],
      [5, 3, 4],
    ]);
    expect(rows(VIDUR, { windowStartSeconds: 0.4, windowSeconds: 5 })).toEqual([[0.1, 5112, 2]]);
    expect(rows(VIDUR, { maxRequests: 1 })).toEqual([[0, 16, 600]]);
  });

  it('takes the lengths only, in a closed loop', () => {
    const workload = open(VIDUR, { closedLoop: { concurrency: 2, thinkSeconds: 1 } });
    expect([...workload.requests()].map((each) => each.arrivalSeconds)).toEqual([0, 0, 0]);
    expect(workload.closedLoop).toEqual({ concurrency: 2, thinkSeconds: 1 });
  });

  it('a row of 0 tokens has at least one', () => {
    expect(rows('arrived_at,num_prefill_tokens,num_decode_tokens\n0,0,0\n')).toEqual([[0, 1, 1]]);
  });
});

describe('what is wrong with a file', () => {
  const message = (text: string, options: Partial<TraceOptions> = {}) => {
    try {
      open(text, options);
      return 'no error';
    } catch (error) {
      if (!(error instanceof PagodaError)) throw error;
      expect(error.code).toBe('bad_config');
      expect(error.message).not.toContain('\n');
      return error.message;
    }
  };

  it.each([
    ['', /the file is empty/],
    ['\n\n', /the file is empty/],
    ['arrived_at,num_prefill_tokens,num_decode_tokens\n', /has no requests/],
    ['a,b,c\n1,2,3\n', /of no known format; known are azure, burstgpt, mooncake, vidur, sharegpt/],
    [`${VIDUR}11,x,4\n`, /line 5 'x' is not a number of prompt tokens/],
    [`${VIDUR}11,4\n`, /line 5 has 2 fields, the header has 3/],
    [`${VIDUR}1,4,4\n`, /line 5 is earlier than the line before it/],
    [`${VIDUR}soon,4,4\n`, /line 5 'soon' is not a time/],
    [`${VIDUR}11,4,-4\n`, /line 5 '-4' is not a number of output tokens/],
    ['{"timestamp":0,"input_length":5,"output_length":6}\n{"timestamp":0,"input_le', /line 2 is not JSON/],
    ['{"timestamp":0,"input_length":5,"output_length":2.5}\n', /line 1 has no output_length/],
    ['{"timestamp":0,"input_length":5,"output_length":2,"hash_ids":["a"]}\n', /hash_ids that are not a list/],
    ['[{"conversations":[{"value":"a b c d e f g h"', /cut off/],
    ['[{"talk":[]}]', /conversation 1 has no list "conversations"/],
    ['[]', /has no requests/],
    [
      '[{"conversations":[{"value":"tell me something nice"},{"value":"something nice, as you said"}]}]',
      /ShareGPT has no times: .*--rate 5/,
    ],
    ['TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,2\n', /line 2 'yesterday' is not a time/],
    ['arrived_at,num_prefill_tokens,num_decode_tokens\n0,\0,2', /is not a text file/],
  ])('%j', (text, expected) => expect(message(text)).toMatch(expected));

  it('names the options of a window without requests, and of numbers out of range', () => {
    expect(message(VIDUR, { windowStartSeconds: 60, windowSeconds: 5 })).toMatch(
      /--trace-window .*no request lies in 60 s to 65 s, the trace lasts 10\.0 s/,
    );
    expect(message(VIDUR, { scale: 0 })).toMatch(/--trace-scale must be above 0/);
    expect(message(AZURE, { format: 'vidur' })).toMatch(/lacks the column arrived_at/);
  });

  it('says when there is no file, or it is a folder', () => {
    expect(() => openTrace({ path: join(folder, 'nothing.csv') })).toThrow(/there is no such file/);
    expect(() => openTrace({ path: folder })).toThrow(/is not a file|cannot be read/);
  });
});

describe.skipIf(noShared)('recorded traces', () => {
  it('Azure, conversations of 2023: counts and lengths as published', () => {
    const workload = openTrace({ path: sharedPath('data', 'AzureLLMInferenceTrace_conv.csv') });
    const statistics = workloadStatistics(workload);
    expect(workload.numRequests).toBe(19_366);
    expect(statistics.promptTokens.mean).toBeCloseTo(1154.7, 1);
    expect(statistics.outputTokens.mean).toBeCloseTo(211.1, 1);
    expect(Math.abs(statistics.promptTokens.p50 / 1020 - 1)).toBeLessThan(0.01);
    expect(statistics.requestsPerSecond).toBeCloseTo(5.53, 2);
    expect(statistics.interarrivalCv).toBeCloseTo(1.09, 1);
    expect(Math.abs(statistics.indexOfDispersion10s! / 4 - 1)).toBeLessThan(0.1);
    // 20.6 with the unfinished last window, 16.1 without.
    expect(statistics.indexOfDispersion60s).toBeCloseTo(16.13, 1);
    // By ranks; the plain correlation of the lengths is -0.11.
    expect(Math.abs(statistics.rankCorrelation - 0.073)).toBeLessThan(0.05);
  });
});
