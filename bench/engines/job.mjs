/** {model, threads, settings, job} from standard input. */
export async function readJob() {
  let text = '';
  for await (const chunk of process.stdin) text += chunk;
  return JSON.parse(text);
}

/** One line; the CPU seconds of this process go with it. */
export function writeResult(result) {
  const { user, system } = process.cpuUsage();
  process.stdout.write(`${JSON.stringify({ ...result, cpuSeconds: (user + system) / 1e6 })}\n`);
}
