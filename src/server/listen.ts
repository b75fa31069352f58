// Opens the listening sockets: one per address that the host name has, all on one port, with the limits that Node keeps per
// server. Requests go to the application's handler; what is not even HTTP is answered here.

import { lookup } from 'node:dns/promises';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { type AddressInfo, isIP, type Socket } from 'node:net';
import { PagodaError } from '../errors.ts';
import { errorBody } from './errors.ts';
import type { ServerLimits } from './server-options.ts';

export interface ListenAddress {
  readonly address: string;
  readonly port: number;
  /** What to paste into a client on this machine. */
  readonly url: string;
}

export interface Listener {
  readonly addresses: readonly ListenAddress[];
  /** Takes no new connections and closes the idle ones; resolves when all are closed. */
  stop(): Promise<void>;
  closeAllConnections(): void;
}

export interface ListenOptions {
  readonly host: string;
  readonly port: number;
  readonly limits: ServerLimits;
  readonly onRequest: (request: IncomingMessage, response: ServerResponse) => void;
}

export async function listen(options: ListenOptions): Promise<Listener> {
  const servers: Server[] = [];
  let port = options.port;
  try {
    for (const address of await resolveHost(options.host)) {
      const server = createHttpServer(options);
      await listenOn(server, address, port, options.host);
      servers.push(server);
      // Port 0 means any, but the same one on every address.
      port = (server.address() as AddressInfo).port;
    }
  } catch (error) {
    for (const server of servers) server.close();
    throw error;
  }
  return {
    addresses: servers.map((server) => describe(server.address() as AddressInfo)),
    stop: async () => {
      await Promise.all(servers.map((server) => new Promise<void>((resolve) => server.close(() => resolve()))));
    },
    closeAllConnections: () => {
      for (const server of servers) server.closeAllConnections();
    },
  };
}

async function resolveHost(host: string): Promise<string[]> {
  const bare = host.replace(/^\[(.*)\]$/, '$1');
  if (isIP(bare) !== 0) return [bare];
  try {
    const found = await lookup(bare, { all: true });
    return [...new Set(found.map((entry) => entry.address))];
  } catch (error) {
    throw new PagodaError('bad_config', `--host ${host}: no such host. Give an address such as 127.0.0.1 or 0.0.0.0.`, {
      param: '--host',
      cause: error,
    });
  }
}

function listenOn(server: Server, address: string, port: number, host: string): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => {
      const reasons: Readonly<Record<string, string>> = {
        EADDRINUSE: `port ${port} on ${address} is in use by another program; choose another --port`,
        EACCES: `this user may not listen on port ${port}; choose a --port above 1023`,
        EADDRNOTAVAIL: `this machine has no address ${address}; choose another --host`,
      };
      const reason = reasons[error.code ?? ''] ?? error.message;
      reject(new PagodaError('bad_config', `Cannot listen on ${host}: ${reason}.`, { param: '--port', cause: error }));
    });
    server.listen({ host: address, port }, () => {
      server.removeAllListeners('error');
      resolve();
    });
  });
}

function createHttpServer({ limits, onRequest }: ListenOptions): Server {
  const server = createServer(
    {
      maxHeaderSize: limits.maxHeaderBytes,
      headersTimeout: limits.headersTimeoutSeconds * 1000,
      requestTimeout: limits.bodyTimeoutSeconds * 1000,
      keepAliveTimeout: limits.keepAliveSeconds * 1000,
      connectionsCheckingInterval: 1000,
      noDelay: true,
    },
    onRequest,
  );
  server.maxConnections = limits.maxConnections;
  // Node would drop headers beyond its count in silence; the application counts them and refuses.
  server.maxHeadersCount = 0;
  server.on('clientError', answerClientError);
  limitPerAddress(server, limits.maxConnectionsPerAddress);
  return server;
}

const CLIENT_ERRORS: Readonly<Record<string, { status: number; reason: string; message: string }>> = {
  HPE_HEADER_OVERFLOW: {
    status: 431,
    reason: 'Request Header Fields Too Large',
    message: 'The request headers are too large.',
  },
  HPE_CHUNK_EXTENSIONS_OVERFLOW: {
    status: 413,
    reason: 'Payload Too Large',
    message: 'The chunk extensions are too large.',
  },
  ERR_HTTP_REQUEST_TIMEOUT: { status: 408, reason: 'Request Timeout', message: 'The request took too long to arrive.' },
};

function answerClientError(error: NodeJS.ErrnoException, socket: Socket): void {
  if (error.code === 'ECONNRESET' || !socket.writable) {
    socket.destroy();
    return;
  }
  const { status, reason, message } = CLIENT_ERRORS[error.code ?? ''] ?? {
    status: 400,
    reason: 'Bad Request',
    message: 'The request is not valid HTTP/1.1.',
  };
  const body = JSON.stringify(errorBody(status, 'BadRequestError', message));
  socket.end(
    `HTTP/1.1 ${status} ${reason}\r\nconnection: close\r\ncontent-type: application/json; charset=utf-8\r\n` +
      `content-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
  );
}

function limitPerAddress(server: Server, limit: number): void {
  const open = new Map<string, number>();
  server.on('connection', (socket) => {
    const address = socket.remoteAddress;
    if (address === undefined || isLoopback(address)) return;
    const count = (open.get(address) ?? 0) + 1;
    if (count > limit) {
      socket.destroy();
      return;
    }
    open.set(address, count);
    socket.once('close', () => {
      const left = (open.get(address) ?? 1) - 1;
      if (left === 0) open.delete(address);
      else open.set(address, left);
    });
  });
}

function isLoopback(address: string): boolean {
  return address === '::1' || address.startsWith('127.') || address.startsWith('::ffff:127.');
}

function describe({ address, port }: AddressInfo): ListenAddress {
  const reachable = address === '0.0.0.0' ? '127.0.0.1' : address === '::' ? '::1' : address;
  return { address, port, url: `http://${isIP(reachable) === 6 ? `[${reachable}]` : reachable}:${port}` };
}
