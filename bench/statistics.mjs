/** The middle value; the mean of the middle two for an even count. */
export function median(values) {
  return quantile(values, 0.5);
}

/** Linear between the neighbours, as numpy's default. */
export function quantile(values, share) {
  const sorted = [...values].sort((a, b) => a - b);
  const at = (sorted.length - 1) * share;
  const low = Math.floor(at);
  return sorted[low] + (sorted[Math.ceil(at)] - sorted[low]) * (at - low);
}
