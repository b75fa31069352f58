// A child that speaks the engine's messages without an engine: one token per prompt token, then the end. A prompt that begins
// with 666 kills the process, with 667 fails it in order, with 668 is never answered. Model `unstartable` refuses to start, `slow` never
// becomes ready.

let isClosing = false;
const open = new Set();

function event(id, tokenIds, reason) {
  const timing = { arrivalTime: 0, firstScheduledTime: 0, firstTokenTime: 0, finishTime: 0, numPreemptions: 0 };
  const finish = reason === null ? null : { reason, stopTokenId: null, message: null, timing };
  return { id, tokenIds, logprobs: null, promptLogprobs: null, numCachedTokens: 0, finish };
}

process.on('disconnect', () => process.exit(0));
process.on('SIGTERM', () => undefined);
process.on('message', (message) => {
  if (message.kind === 'start') {
    if (message.options.model === 'unstartable') {
      process.send({ kind: 'failed', code: 'bad_model_file', message: 'no such model', param: null });
      setTimeout(() => process.exit(1), 20);
    } else if (message.options.model !== 'slow') {
      process.send({ kind: 'log', level: 'info', message: 'loading' });
      process.send({ kind: 'ready', info: { maxModelLen: 32, pid: process.pid } });
    }
  } else if (message.kind === 'submit') {
    for (const { id, promptTokenIds, sampling } of message.requests) {
      open.add(id);
      if (promptTokenIds[0] === 666) process.kill(process.pid, 'SIGKILL');
      if (promptTokenIds[0] === 667) {
        process.send({ kind: 'down', reason: 'The engine failed: as told' });
        setTimeout(() => process.exit(1), 20);
      } else if (promptTokenIds[0] !== 668) {
        // Proves that 64-bit seeds arrive whole.
        const tokens = [...promptTokenIds, Number(sampling.seed % 1000n)];
        const events = tokens.map((token, i) => event(id, [token], i === tokens.length - 1 ? 'length' : null));
        process.send({ kind: 'step', events, record: { stepId: 0, numWaiting: 0 } });
        open.delete(id);
      }
    }
  } else if (message.kind === 'abort') {
    process.send({
      kind: 'step',
      events: message.ids.filter((id) => open.delete(id)).map((id) => event(id, [], 'abort')),
      record: null,
    });
  } else if (message.kind === 'close' && !isClosing) {
    isClosing = true;
    process.send({ kind: 'step', events: [...open].map((id) => event(id, [], 'abort')), record: null });
    process.send({ kind: 'closed' });
    setTimeout(() => process.exit(0), 10);
  }
});
