// A server whose replies a test writes by hand, over real sockets on 127.0.0.1.

import http from 'node:http';
import type { AddressInfo } from 'node:net';

export interface FakeServer {
  readonly url: string;
  close(): Promise<void>;
}

export type Handler = (request: http.IncomingMessage, body: string, response: http.ServerResponse) => void;

export async function fakeStreamServer(handler: Handler): Promise<FakeServer> {
  const server = http.createServer((request, response) => {
    const parts: Buffer[] = [];
    request.on('data', (part: Buffer) => parts.push(part));
    request.on('end', () => handler(request, Buffer.concat(parts).toString('utf8'), response));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

export const openStream = (response: http.ServerResponse): void => {
  response.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8' });
  response.flushHeaders();
};

export const frame = (event: unknown): string =>
  `data: ${typeof event === 'string' ? event : JSON.stringify(event)}\n\n`;

export const token = (text: string, finish: string | null = null): string =>
  frame({ choices: [{ index: 0, text, finish_reason: finish }] });

export const closing = (numPrompt: number, numOutput: number): string =>
  frame({ choices: [], usage: { prompt_tokens: numPrompt, completion_tokens: numOutput } }) + frame('[DONE]');
