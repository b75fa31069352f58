// How much one value of a chat template may grow. A thread's heap limit catches slow growth, but a single allocation beyond it
// would end the whole process, so every operation that multiplies its input asks here first.

/** What goes wrong in a template apart from raise_exception. */
export class TemplateFailure extends Error {}

/** UTF-16 units; also the most that a rendering may have. */
export const MAX_TEXT_LENGTH = 4 << 20;
const MAX_ITEMS = 1 << 20;

export function allowText(length: number): void {
  if (!(length <= MAX_TEXT_LENGTH))
    throw new TemplateFailure(`it builds a text of more than ${MAX_TEXT_LENGTH} characters`);
}

export function allowItems(length: number): void {
  if (!(length <= MAX_ITEMS)) throw new TemplateFailure(`it builds a list of more than ${MAX_ITEMS} items`);
}

/** Joins after checking the length. */
export function joinTexts(texts: readonly string[], separator: string): string {
  let length = separator.length * Math.max(0, texts.length - 1);
  for (const text of texts) length += text.length;
  allowText(length);
  return texts.join(separator);
}

/** `text.padStart`, `padEnd` and friends take any width; this one is checked. */
export function checkedWidth(width: number): number {
  allowText(width);
  return width;
}
