import { createServer } from 'node:net';
import { describe, expect, it } from 'vitest';
import { listen } from '../../../src/server/listen.ts';
import { DEFAULT_LIMITS } from '../../../src/server/server-options.ts';

const open = (host: string, port = 0) =>
  listen({ host, port, limits: DEFAULT_LIMITS, onRequest: (_request, response) => response.end('here') });

describe('listen', () => {
  it('answers on every address of localhost, all on one port, and prints URLs that can be pasted', async () => {
    const listener = await open('localhost');
    expect(new Set(listener.addresses.map((address) => address.port)).size).toBe(1);
    for (const { address, port, url } of listener.addresses) {
      expect(url).toBe(address.includes(':') ? `http://[${address}]:${port}` : `http://${address}:${port}`);
      expect(await (await fetch(url)).text()).toBe('here');
    }
    listener.closeAllConnections();
    await listener.stop();
  });

  it('an address that means all is printed as one that answers', async () => {
    const listener = await open('0.0.0.0');
    expect(listener.addresses[0]?.url).toMatch(/^http:\/\/127\.0\.0\.1:\d+$/);
    await listener.stop();
  });

  it('a port in use and an unknown host are errors that say what to do', async () => {
    const other = createServer();
    await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve));
    const { port } = other.address() as { port: number };
    await expect(open('127.0.0.1', port)).rejects.toThrow(`port ${port} on 127.0.0.1 is in use by another program`);
    await new Promise((resolve) => other.close(resolve));
    await expect(open('no-such-host.invalid')).rejects.toThrow('--host no-such-host.invalid: no such host');
  });
});
