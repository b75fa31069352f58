// What crosses between `bench serve` and its worker processes.

import type { LagReport } from './lag-monitor.ts';
import type { LoadJob } from './load-run.ts';
import type { RequestRecord } from './request-record.ts';

export type ToWorker = { readonly kind: 'run'; readonly job: LoadJob } | { readonly kind: 'stop' };

export type FromWorker =
  | { readonly kind: 'ready' }
  | { readonly kind: 'records'; readonly records: readonly RequestRecord[] }
  | { readonly kind: 'done'; readonly lag: LagReport }
  | { readonly kind: 'failed'; readonly message: string };
