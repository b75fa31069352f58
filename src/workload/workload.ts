// The workload as the simulator, the load client and the planner see it: requests in order of arrival.

export interface WorkloadRequest {
  /** Seconds after the start; closed-loop workloads decide it while they run and leave 0 here. */
  readonly arrivalSeconds: number;
  readonly numPromptTokens: number;
  readonly numOutputTokens: number;
  /**
   * Ids of the prompt's blocks of `hashBlockTokens` tokens, where prefixes are shared: equal leading ids mean equal tokens.
   * Null = nothing shared.
   */
  readonly hashIds: readonly number[] | null;
  /** Requests of one conversation share it and come one after the other. */
  readonly sessionId: number | null;
  readonly priority: number;
}

export interface Workload {
  /** Says what it is: `azure-conv x 2.0, 3600 s`. */
  readonly name: string;
  readonly seed: number;
  /** Tokens that one hash id stands for. */
  readonly hashBlockTokens: number;
  /** Closed loop: so many users, each sends the next request when the last one has ended; null = open loop by arrivalSeconds. */
  readonly closedLoop: { readonly concurrency: number; readonly thinkSeconds: number } | null;
  /** Number of requests when it is known, for progress bars. */
  readonly numRequests: number | null;
  /** A new pass over the same requests; nothing is kept in memory that grows with their number. */
  requests(): Iterable<WorkloadRequest>;
}
