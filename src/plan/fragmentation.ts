// Where KV memory goes under each way to allocate it, while a queue waits for it: the shares of the PagedAttention paper's figure 2
// for the model, memory and lengths at hand.

import { type ReservationPolicy, type ReservationShares, simulateReservation } from '../sim/reservation.ts';
import { simulate } from '../sim/simulation.ts';
import type { ResolvedDeployment } from './resolve-deployment.ts';
import { type WorkloadSample, workloadOfSample } from './workload-sample.ts';

export interface FragmentationRow {
  readonly policy: ReservationPolicy | 'paged';
  readonly shares: ReservationShares;
  readonly meanRunning: number;
}

const POLICIES: readonly ReservationPolicy[] = ['max', 'pow2', 'oracle'];

/** Of one replica. All requests of the sample wait at the start; what is counted ends when the queue is empty. */
export function fragmentation({ deployment, ledger }: ResolvedDeployment, sample: WorkloadSample): FragmentationRow[] {
  const requests = sample.requests.map((each) => ({ ...each, arrivalSeconds: 0, sessionId: null }));
  const { flags, cost } = deployment;
  const rows: FragmentationRow[] = POLICIES.map((policy) => {
    const { shares, meanRunning } = simulateReservation(requests, {
      policy,
      cost,
      numSlots: ledger.kvTokens ?? 0,
      maxModelLen: 2 ** Math.ceil(Math.log2(flags.maxModelLen)),
      endSeconds: Number.POSITIVE_INFINITY,
    });
    return { policy, shares, meanRunning };
  });
  const paged = simulate(
    { ...deployment, numReplicas: 1, flags: { ...flags, kvAllocation: 'paged', enablePrefixCaching: false } },
    workloadOfSample({ ...sample, requests, closedLoop: null }),
  );
  const { meanKvWaste, meanRunning } = paged.scheduler;
  rows.push({
    policy: 'paged',
    shares: { tokens: 1 - meanKvWaste, reserved: 0, internal: meanKvWaste, external: 0 },
    meanRunning,
  });
  return rows;
}
