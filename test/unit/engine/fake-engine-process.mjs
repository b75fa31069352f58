// A child that speaks the engine's messages without an engine: one token per prompt token, then the end. A prompt that begins
// with 666 kills the process, with 667 fails it in order, with 668 is never answered. Model `unstartable` refuses to start, `slow` never
// becomes ready.

import { writeSync } from 'node:fs';
import { serialize } from 'node:v8';

let isClosing = false;
const open = new Set();

function event(id, tokenIds, reason) {
  const timing = { arrivalTime: 0, firstScheduledTime: 0, firstTokenTime: 0, finishTime: 0, numPreemptions: 0 };
  const finish = reason === null ? null : { reason, stopTokenId: null, message: null, timing };
  return { id, tokenIds, logprobs: null, promptLogprobs: null, numCachedTokens: 0, finish };
}

function send(message) {
  const payload = serialize(message);
  const header = Buffer.alloc(8);
  header.writeUInt32LE(payload.length, 0);
  header.writeUInt32LE(1, 4);
  writeSync(4, Buffer.concat([header, payload]));
}

process.on('disconnect', () => process.exit(0));
process.on('SIGTERM', () => undefined);
process.on('message', (message) => {
  if (message.kind === 'start') {
    if (message.options.model === 'unstartable') {
      send({ kind: 'failed', code: 'bad_model_file', message: 'no such model', param: null });
      setTimeout(() => process.exit(1), 20);
    } else if (message.options.model !== 'slow') {
      send({ kind: 'log', level: 'info', message: 'loading' });
      send({ kind: 'ready', info: { maxModelLen: 32, pid: process.pid } });
    }
  } else if (message.kind === 'submit') {
    for (const { id, promptTokenIds, sampling } of message.requests) {
      open.add(id);
      if (promptTokenIds[0] === 666) process.kill(process.pid, 'SIGKILL');
      if (promptTokenIds[0] === 667) {
        send({ kind: 'down', reason: 'The engine failed: as told' });
        setTimeout(() => process.exit(1), 20);
      } else if (promptTokenIds[0] !== 668) {
        // Proves that 64-bit seeds arrive whole.
        const tokens = [...promptTokenIds, Number(sampling.seed % 1000n)];
        const events = tokens.map((token, i) => event(id, [token], i === tokens.length - 1 ? 'length' : null));
        send({ kind: 'step', events, record: { stepId: 0, numWaiting: 0 } });
        open.delete(id);
      }
    }
  } else if (message.kind === 'abort') {
    send({
      kind: 'step',
      events: message.ids.filter((id) => open.delete(id)).map((id) => event(id, [], 'abort')),
      record: null,
    });
  } else if (message.kind === 'close' && !isClosing) {
    isClosing = true;
    send({ kind: 'step', events: [...open].map((id) => event(id, [], 'abort')), record: null });
    send({ kind: 'closed' });
    setTimeout(() => process.exit(0), 10);
  }
});
