// One small HTTP request whose whole reply is wanted as text: model lists, token ids, metrics. Transport failures are errors with a
// message in words; statuses are the caller's to judge.

import http from 'node:http';
import https from 'node:https';
import { transportProblem } from './http-exchange.ts';

/** No list, no metrics page is larger. */
const MAX_BYTES = 64 * 2 ** 20;

export interface TextRequest {
  readonly method?: 'GET' | 'POST';
  readonly headers?: Readonly<Record<string, string>>;
  /** Sent as JSON. */
  readonly body?: unknown;
  readonly timeoutSeconds: number;
  readonly insecure?: boolean;
}

export interface TextReply {
  readonly status: number;
  readonly text: string;
}

export function fetchText(url: string, request: TextRequest): Promise<TextReply> {
  const target = new URL(url);
  const isTls = target.protocol === 'https:';
  const body = request.body === undefined ? null : JSON.stringify(request.body);
  const headers = {
    ...(body === null ? {} : { 'content-type': 'application/json', 'content-length': String(Buffer.byteLength(body)) }),
    ...request.headers,
  };
  return new Promise((resolve, reject) => {
    const fail = (error: NodeJS.ErrnoException): void => {
      clearTimeout(timer);
      reject(new Error(transportProblem(error), { cause: error }));
    };
    const start: typeof http.request = isTls ? https.request : http.request;
    // The last one only means something to TLS.
    const options = {
      method: request.method ?? 'GET',
      headers,
      agent: false as const,
      rejectUnauthorized: request.insecure !== true,
    };
    const sent = start(target, options, (response) => {
      const parts: Buffer[] = [];
      let numBytes = 0;
      response.on('data', (bytes: Buffer) => {
        numBytes += bytes.byteLength;
        if (numBytes > MAX_BYTES) sent.destroy(new Error(`The reply is larger than ${MAX_BYTES} bytes.`));
        else parts.push(bytes);
      });
      response.on('error', fail);
      response.on('end', () => {
        clearTimeout(timer);
        resolve({ status: response.statusCode ?? 0, text: Buffer.concat(parts).toString('utf8') });
      });
    });
    const timer = setTimeout(
      () => sent.destroy(new Error(`No reply within ${request.timeoutSeconds} s.`)),
      request.timeoutSeconds * 1000,
    );
    sent.on('error', fail);
    sent.end(body ?? undefined);
  });
}
