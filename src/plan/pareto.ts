// The configurations that no other one beats in both: tokens per second and GPU (what it costs), tokens per second and user (how it feels).

export interface Rated {
  readonly tokensPerSecondPerGpu: number;
  readonly tokensPerSecondPerUser: number;
}

/** In order of falling throughput per GPU; of equals the first. */
export function paretoFront<T extends Rated>(items: readonly T[]): T[] {
  const sorted = [...items].sort(
    (a, b) => b.tokensPerSecondPerGpu - a.tokensPerSecondPerGpu || b.tokensPerSecondPerUser - a.tokensPerSecondPerUser,
  );
  const front: T[] = [];
  let best = Number.NEGATIVE_INFINITY;
  for (const item of sorted) {
    if (item.tokensPerSecondPerUser <= best) continue;
    front.push(item);
    best = item.tokensPerSecondPerUser;
  }
  return front;
}
