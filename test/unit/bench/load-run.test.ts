import type http from 'node:http';
import { afterEach, describe, expect, it } from 'vitest';
import { HttpExchanger, type RequestTarget } from '../../../src/bench/http-exchange.ts';
import { loadMetrics } from '../../../src/bench/load-metrics.ts';
import { dealOut } from '../../../src/bench/load-processes.ts';
import { type LoadJob, type PlannedRequest, runLoad } from '../../../src/bench/load-run.ts';
import { now } from '../../../src/clock.ts';
import { closing, type FakeServer, fakeStreamServer, frame, openStream, token } from './fake-stream-server.ts';

let server: FakeServer | null = null;
afterEach(async () => {
  await server?.close();
  server = null;
});

const target = (url: string): RequestTarget => ({
  url: `${url}/v1/completions`,
  backend: 'openai',
  headers: {},
  idleSeconds: 600,
  insecure: false,
});

const planned = (num: number, gapSeconds: number): PlannedRequest[] =>
  Array.from({ length: num }, (_, index) => ({
    index,
    sendSeconds: index * gapSeconds,
    sessionId: null,
    body: JSON.stringify({ prompt: String(index) }),
    numPromptTokens: 1,
    headers: { 'x-request-id': `bench-${index}` },
  }));

const job = (url: string, fields: Partial<LoadJob>): LoadJob => ({
  target: target(url),
  requests: [],
  maxConcurrency: null,
  isUnpaced: false,
  thinkSeconds: 0,
  startSeconds: now(),
  ...fields,
});

const noLag = { numSamples: 0, meanSeconds: 0, p99Seconds: 0, maxSeconds: 0, spikes: [] };

const forever = (): { clock: () => number; signal: AbortSignal } => ({
  clock: now,
  signal: new AbortController().signal,
});

describe('HttpExchanger', () => {
  // The clock only moves when the server is about to write, and each write waits until the client has read the clock.
  it('stamps tokens at the socket: known token times come out exactly', async () => {
    let time = 0;
    let onRead: (() => void) | null = null;
    const clock = (): number => {
      onRead?.();
      return time;
    };
    const tokenTimes = [10.5, 10.53125, 10.5625, 12, 12.03125];
    server = await fakeStreamServer(async (_request, _body, response) => {
      openStream(response);
      for (const [i, tokenTime] of tokenTimes.entries()) {
        await new Promise<void>((resolve) => {
          onRead = resolve;
          time = tokenTime;
          response.write(token(`t${i}`, i === tokenTimes.length - 1 ? 'length' : null));
        });
      }
      onRead = null;
      time = 13;
      response.end(closing(3, tokenTimes.length));
    });
    const exchanger = new HttpExchanger(target(server.url), clock);
    time = 10.25;
    const reply = await exchanger.send(new TextEncoder().encode('{}'), {});
    exchanger.close();
    expect(reply).toMatchObject({ outcome: 'completed', sentSeconds: 10.25, tokenSeconds: tokenTimes, endSeconds: 13 });
    const { numPromptTokens, ...rest } = reply;
    const record = {
      ...rest,
      index: 0,
      scheduledSeconds: 10,
      admittedSeconds: 10,
      numPromptTokens: numPromptTokens ?? 0,
    };

    const metrics = loadMetrics({ records: [record], startSeconds: 10, targets: {}, lag: noLag });
    expect(metrics.ttfts).toEqual([0.5]);
    expect(metrics.itls).toEqual([[0.03125, 0.03125, 1.4375, 0.03125]]);
    expect(metrics.tpots).toEqual([(12.03125 - 10.5) / 4]);
    expect(metrics.e2es).toEqual([2.03125]);
    expect(metrics.stalls).toMatchObject({ numServer: 1, serverSeconds: 1.4375, numClient: 0 });
    expect(metrics.summary.durationSeconds).toBe(3);
  });
});

describe('runLoad', () => {
  it('never waits for replies: a server that holds everything back still gets everything', async () => {
    const num = 40;
    const held: Array<() => void> = [];
    server = await fakeStreamServer((_request, _body, response) => {
      held.push(() => {
        openStream(response);
        response.end(token('a') + token('b', 'length') + closing(5, 2));
      });
      // Nobody is answered before the last one has come: a closed loop would never end.
      if (held.length === num) for (const answer of held) answer();
    });
    const startSeconds = now();
    const requests = planned(num, 0.002);
    const { records } = await runLoad(job(server.url, { requests, startSeconds }), forever());
    expect(records.map((record) => record.outcome)).toEqual(requests.map(() => 'completed'));
    // Latency counts from the schedule, exactly.
    expect(records.map((record) => record.scheduledSeconds)).toEqual(
      requests.map((request) => startSeconds + request.sendSeconds),
    );
    for (const record of records) {
      expect(record.sentSeconds).toBeGreaterThanOrEqual(record.scheduledSeconds);
      expect(record.tokenSeconds).toHaveLength(2);
      expect(record).toMatchObject({ numPromptTokens: 5, numOutputTokens: 2, text: 'ab' });
    }
    const { ttfts } = loadMetrics({ records, startSeconds, targets: {}, lag: noLag });
    expect(ttfts).toEqual(records.map((record) => record.tokenSeconds[0]! - record.scheduledSeconds));
    // The first had to wait for the last to be sent: the wait is in its latency.
    expect(ttfts[0]!).toBeGreaterThanOrEqual(requests.at(-1)!.sendSeconds);
  });

  it('keeps to the limit of requests under way', async () => {
    let most = 0;
    const held: http.ServerResponse[] = [];
    // Answers three at a time and some turns of the loop later, so that a fourth has to wait for an answer.
    server = await fakeStreamServer(async (_request, _body, response) => {
      held.push(response);
      most = Math.max(most, held.length);
      if (held.length < 3) return;
      for (let i = 0; i < 20; i++) await new Promise((resolve) => setImmediate(resolve));
      for (const each of held.splice(0)) {
        openStream(each);
        each.end(token('x', 'stop') + closing(1, 1));
      }
    });
    const requests = planned(12, 0);
    const closed = await runLoad(job(server.url, { requests, maxConcurrency: 3, isUnpaced: true }), forever());
    expect(closed.records.every((record) => record.outcome === 'completed')).toBe(true);
    expect(most).toBe(3);
    // Without a schedule a request's time begins with its place, else with its time in the schedule.
    expect(closed.records.every((record) => record.scheduledSeconds === record.admittedSeconds)).toBe(true);
    const open = await runLoad(job(server.url, { requests, maxConcurrency: 3 }), forever());
    expect(new Set(open.records.map((record) => record.scheduledSeconds)).size).toBe(1);
    // The first three went at once; all the others stood in line, which is not the client's lateness.
    const waits = open.records.map((record) => record.admittedSeconds - record.scheduledSeconds);
    expect(waits.map((wait) => wait > 0)).toEqual(waits.map((_, i) => i >= 3));
    expect(waits).toEqual([...waits].sort((a, b) => a - b));
    expect(most).toBe(3);
  });

  it('asks on in a conversation only when the answer has come', async () => {
    const open = new Map<string, number>();
    let most = 0;
    server = await fakeStreamServer((_request, body, response) => {
      const { prompt } = JSON.parse(body) as { prompt: string };
      const session = String(Number(prompt) % 2);
      open.set(session, (open.get(session) ?? 0) + 1);
      most = Math.max(most, open.get(session)!);
      setTimeout(() => {
        open.set(session, open.get(session)! - 1);
        openStream(response);
        response.end(token('x', 'stop') + closing(1, 1));
      }, 2);
    });
    const requests = planned(6, 0).map((request) => ({ ...request, sessionId: request.index % 2 }));
    const { records } = await runLoad(job(server.url, { requests }), forever());
    expect(most).toBe(1);
    // The time of a later turn begins with the end of the one before.
    for (let i = 2; i < records.length; i++) {
      expect(records[i]!.scheduledSeconds).toBeGreaterThanOrEqual(records[i - 2]!.endSeconds);
    }
  });

  it('tells completed, failed and cut requests apart', async () => {
    server = await fakeStreamServer((_request, body, response) => {
      const { prompt } = JSON.parse(body) as { prompt: string };
      const answers: Record<string, () => void> = {
        0: () => {
          openStream(response);
          response.end(token('a', 'stop') + closing(1, 1));
        },
        1: () => {
          response.writeHead(503, { 'content-type': 'application/json' });
          response.end(JSON.stringify({ error: { message: 'The queue is full.' } }));
        },
        2: () => {
          openStream(response);
          response.write(token('a'), () => setTimeout(() => response.destroy(), 5));
        },
        3: () => {
          openStream(response);
          response.end(token('a'));
        },
        4: () => {
          openStream(response);
          response.end(token('a') + frame({ error: { message: 'engine died' } }) + frame('[DONE]'));
        },
        5: () => response.destroy(),
        6: () => {
          response.writeHead(200, { 'content-type': 'application/json' });
          response.end('{"choices":[]}');
        },
      };
      answers[prompt]!();
    });
    const { records } = await runLoad(job(server.url, { requests: planned(7, 0) }), forever());
    expect(records.map((record) => [record.outcome, record.error])).toEqual([
      ['completed', ''],
      ['failed', 'HTTP 503: The queue is full.'],
      ['cut', 'The connection was reset.'],
      ['cut', 'The stream ended without its end mark.'],
      ['cut', 'The server reported: engine died'],
      ['failed', 'The connection was reset.'],
      ['failed', 'The reply is application/json, not a stream of events.'],
    ]);
    const gone = server.url;
    await server.close();
    server = null;
    const refused = await runLoad(job(gone, { requests: planned(1, 0) }), forever());
    expect(refused.records[0]).toMatchObject({
      outcome: 'failed',
      error: 'Nothing listens there (connection refused).',
    });
  });

  it('an abort ends what is under way and leaves the rest out', async () => {
    const stop = new AbortController();
    server = await fakeStreamServer((_request, _body, response) => {
      openStream(response);
      response.write(token('a'), () => setTimeout(() => stop.abort(), 5));
    });
    const requests = planned(2, 3600);
    const { records } = await runLoad(job(server.url, { requests }), { clock: now, signal: stop.signal });
    expect(records).toHaveLength(1);
    expect(records[0]!.outcome).not.toBe('completed');
  });
});

describe('dealOut', () => {
  it('gives every request to one process and divides the limit', () => {
    const whole = job('http://127.0.0.1:1', { requests: planned(10, 1), maxConcurrency: 7 });
    const shares = dealOut(whole, 3);
    expect(shares.map((share) => share.requests.map((request) => request.index))).toEqual([
      [0, 3, 6, 9],
      [1, 4, 7],
      [2, 5, 8],
    ]);
    expect(shares.map((share) => share.maxConcurrency)).toEqual([3, 2, 2]);
  });
});
