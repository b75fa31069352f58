// The known name that is nearest to what was typed, for errors that help.

/** Up to `count` names by edit distance, nearest first; a common beginning counts as near. */
export function nearestNames(typed: string, names: readonly string[], count = 3): string[] {
  const wanted = typed.toLowerCase();
  return names
    .map((name) => ({ name, distance: editDistance(wanted, name.toLowerCase()) - sharedStart(wanted, name) / 4 }))
    .sort((a, b) => a.distance - b.distance || (a.name < b.name ? -1 : 1))
    .slice(0, count)
    .map(({ name }) => name);
}

function sharedStart(a: string, b: string): number {
  let length = 0;
  while (length < a.length && length < b.length && a[length] === b[length]) length++;
  return length;
}

/** Levenshtein. */
export function editDistance(a: string, b: string): number {
  const left = a.slice(0, 100);
  const right = b.slice(0, 100);
  let row = Array.from({ length: right.length + 1 }, (_, i) => i);
  for (let i = 1; i <= left.length; i++) {
    const next = [i];
    for (let j = 1; j <= right.length; j++) {
      const change = row[j - 1]! + (left[i - 1] === right[j - 1] ? 0 : 1);
      next.push(Math.min(change, row[j]! + 1, next[j - 1]! + 1));
    }
    row = next;
  }
  return row[right.length]!;
}
