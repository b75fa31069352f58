// `pagoda list`: the models that can be served without a path.

import { listCachedModels } from '../checkpoint/list-models.ts';
import type { CliIo } from './cli-io.ts';
import { bytesText, table } from './table.ts';

export function list(asJson: boolean, io: CliIo): void {
  const { models, problems } = listCachedModels(io.env);
  for (const problem of problems) io.stderr.write(`warning: ${problem}\n`);
  if (asJson) {
    const facts = models.map(({ name, format, quant, numBytes, path }) => ({
      name,
      format,
      quant,
      bytes: numBytes,
      path,
    }));
    io.stdout.write(`${JSON.stringify(facts, null, 2)}\n`);
    return;
  }
  const rows = models.map(({ name, format, quant, numBytes }) => [name, format, quant ?? '', bytesText(numBytes)]);
  io.stdout.write(table(['MODEL', 'FORMAT', 'QUANT', 'SIZE'], rows));
}
