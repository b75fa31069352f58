// A streaming client for /v1/completions with token-id prompts: the same for every server, and its CPU time is measured.
import { request } from 'node:http';

/**
 * One streamed completion. Resolves to seconds on performance.now()'s clock {sent, first, last} and numTokens (the server's usage, else
 * its events); rejects on a status other than 200, an error event, or a stream without a token.
 */
export function complete(port, prompt, maxTokens) {
  const body = JSON.stringify({
    model: 'm',
    prompt,
    max_tokens: maxTokens,
    temperature: 0,
    ignore_eos: true,
    stream: true,
    stream_options: { include_usage: true },
  });
  const sent = performance.now() / 1000;
  return new Promise((resolve, reject) => {
    const call = request(
      {
        host: '127.0.0.1',
        port,
        path: '/v1/completions',
        method: 'POST',
        agent: false, // a connection of its own: a server may just be closing one that is kept alive
        headers: { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) },
      },
      (reply) => {
        let rest = '';
        const seen = { sent, first: 0, last: 0, numEvents: 0, numTokens: null };
        reply.setEncoding('utf8');
        reply.on('error', reject);
        reply.on('data', (text) => {
          rest += text;
          if (reply.statusCode !== 200) return;
          const now = performance.now() / 1000;
          for (let end = rest.indexOf('\n'); end >= 0; end = rest.indexOf('\n')) {
            const line = rest.slice(0, end).trim();
            rest = rest.slice(end + 1);
            if (!line.startsWith('data:')) continue;
            const data = line.slice(5).trim();
            if (data !== '[DONE]') take(JSON.parse(data), now, seen, reject);
          }
        });
        reply.on('end', () => {
          if (reply.statusCode !== 200) reject(new Error(`status ${reply.statusCode}: ${rest.slice(0, 300)}`));
          else if (seen.numEvents === 0) reject(new Error('the stream ended without a token'));
          else resolve({ ...seen, numTokens: seen.numTokens ?? seen.numEvents });
        });
      },
    );
    call.on('error', reject);
    call.end(body);
  });
}

function take(event, now, seen, reject) {
  if (event.error) reject(new Error(JSON.stringify(event.error).slice(0, 300)));
  if (event.usage?.completion_tokens) seen.numTokens = event.usage.completion_tokens;
  if (!event.choices?.length) return;
  seen.first ||= now;
  seen.last = now;
  seen.numEvents++;
}

/** TPOT in seconds of one reply. */
export const tpotOf = (reply) => (reply.last - reply.first) / Math.max(1, reply.numTokens - 1);

/** All prompts at once: the time until the last token, and every request's times. */
export async function burst(port, prompts, outputTokens) {
  const cpu = process.cpuUsage();
  const started = performance.now() / 1000;
  const replies = await Promise.all(prompts.map((prompt) => complete(port, prompt, outputTokens)));
  const { user, system } = process.cpuUsage(cpu);
  const short = replies.find((reply) => reply.numTokens !== outputTokens);
  if (short) throw new Error(`a reply had ${short.numTokens} of ${outputTokens} tokens`);
  return {
    seconds: Math.max(...replies.map((reply) => reply.last)) - started,
    ttft: replies.map((reply) => reply.first - reply.sent),
    tpot: replies.map(tpotOf),
    clientCpuSeconds: (user + system) / 1e6,
  };
}
