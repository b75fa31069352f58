// All rules, in the order of their numbers. What each looks at: docs/doctor.md.

import type { Rule } from './rule.ts';
import { LOAD_RULES } from './rules-load.ts';
import { MEMORY_RULES } from './rules-memory.ts';
import { SCHEDULE_RULES } from './rules-schedule.ts';
import { STEP_RULES } from './rules-step.ts';

export const RULES: readonly Rule[] = [...MEMORY_RULES, ...SCHEDULE_RULES, ...STEP_RULES, ...LOAD_RULES].sort(
  (a, b) => Number(a.id.slice(1)) - Number(b.id.slice(1)),
);
