import { appendFileSync } from 'node:fs';
import { it } from 'vitest';
import { Gates } from '../../../src/checks/gates.ts';
import { validatePaging } from '../../../src/checks/validate-paging.ts';
import { validateWatermark } from '../../../src/checks/validate-watermark.ts';
import { validateWorkload } from '../../../src/checks/validate-workload.ts';
for (const part of [validateWatermark, validateWorkload, validatePaging])
  it(part.name, async () => {
    const gates = new Gates();
    const check = gates.check.bind(gates);
    gates.check = (name, value, bound, ok) => { appendFileSync('/tmp/gates.log', `${ok ? 'ok  ' : 'FAIL'} ${name}: ${value} (${bound})\n`); check(name, value, bound, ok); };
    const t = Date.now();
    await part.run({ gates, sharedRoot: '/work/shared', add: (table) => appendFileSync('/tmp/gates.log', `${JSON.stringify(table.rows)}\n`) });
    appendFileSync('/tmp/gates.log', `${part.name} ms ${Date.now() - t}\n`);
  });
