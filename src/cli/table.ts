// Plain text tables whose columns line up also with Chinese, Japanese and Korean characters.

/** Columns are two spaces apart; the last one is not padded. */
export function table(header: readonly string[], rows: ReadonlyArray<readonly string[]>): string {
  const widths = header.map((title, column) =>
    Math.max(displayWidth(title), ...rows.map((row) => displayWidth(row[column] ?? ''))),
  );
  return [header, ...rows].map((row) => `${tableRow(row, widths)}\n`).join('');
}

export function tableRow(cells: readonly string[], widths: readonly number[]): string {
  return cells
    .map((cell, column) => (column === cells.length - 1 ? cell : pad(cell, widths[column] ?? 0)))
    .join('  ')
    .trimEnd();
}

export function pad(text: string, width: number): string {
  return text + ' '.repeat(Math.max(0, width - displayWidth(text)));
}

/** Cuts to a width and marks the cut. */
export function fit(text: string, width: number): string {
  if (displayWidth(text) <= width) return text;
  let shown = '';
  let used = 1;
  for (const character of text) {
    used += displayWidth(character);
    if (used > width) break;
    shown += character;
  }
  return `${shown}…`;
}

/** Terminal columns: two for wide East Asian characters and emoji, none for combining marks. */
export function displayWidth(text: string): number {
  let width = 0;
  for (const character of text) {
    const code = character.codePointAt(0) ?? 0;
    if (/\p{Mark}|\p{Default_Ignorable_Code_Point}/u.test(character)) continue;
    const isWide =
      (code >= 0x1100 && code <= 0x115f) ||
      (code >= 0x2e80 && code <= 0xa4cf) ||
      (code >= 0xac00 && code <= 0xd7a3) ||
      (code >= 0xf900 && code <= 0xfaff) ||
      (code >= 0xfe30 && code <= 0xfe6f) ||
      (code >= 0xff00 && code <= 0xff60) ||
      (code >= 0xffe0 && code <= 0xffe6) ||
      (code >= 0x1f300 && code <= 0x1faff) ||
      (code >= 0x20000 && code <= 0x3fffd);
    width += isWide ? 2 : 1;
  }
  return width;
}

export function bytesText(bytes: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit++;
  }
  return unit === 0 ? `${bytes} B` : `${value.toFixed(value < 10 ? 2 : 1)} ${units[unit]}`;
}

export function countText(value: number): string {
  return value.toLocaleString('en-US');
}

/** Control characters made visible, so that a token's text stays on its line. */
export function visible(text: string): string {
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u2028\u2029]/g, (character) => {
    const named = { '\n': '\\n', '\r': '\\r', '\t': '\\t' }[character];
    return named ?? `\\x${character.charCodeAt(0).toString(16).padStart(2, '0')}`;
  });
}
