// What a vocabulary says about each id: its spelling, its kind and the bytes it contributes to the text.
// Bytes of all tokens lie in one flat array, so that a vocabulary of 150,000 tokens is a handful of objects.

/** GGUF's token types; tokenizer.json vocabularies use normal, control (`special: true`) and userDefined. */
export const TokenKind = {
  normal: 1,
  unknown: 2,
  control: 3,
  userDefined: 4,
  unused: 5,
  byte: 6,
} as const;

export type TokenKind = (typeof TokenKind)[keyof typeof TokenKind];

export interface TokenEntry {
  readonly piece: string;
  readonly kind: TokenKind;
  readonly bytes: Uint8Array;
}

const NO_BYTES = new Uint8Array(0);

export class TokenTable {
  readonly size: number;
  readonly #pieces: string[];
  readonly #kinds: Uint8Array;
  readonly #bytes: Uint8Array;
  readonly #offsets: Uint32Array;
  readonly #ids = new Map<string, number>();
  readonly #texts: (string | undefined)[];
  readonly #decoder = new TextDecoder('utf-8', { ignoreBOM: true });

  /** `entryAt(id)` is called once per id; null = an id without a token. */
  constructor(size: number, entryAt: (tokenId: number) => TokenEntry | null) {
    this.size = size;
    this.#pieces = new Array(size);
    this.#kinds = new Uint8Array(size);
    this.#offsets = new Uint32Array(size + 1);
    this.#texts = new Array(size);
    const chunks: Uint8Array[] = new Array(size);
    let numBytes = 0;
    for (let id = 0; id < size; id++) {
      const entry = entryAt(id);
      chunks[id] = entry?.bytes ?? NO_BYTES;
      numBytes += chunks[id]!.length;
      this.#offsets[id + 1] = numBytes;
      this.#pieces[id] = entry?.piece ?? '';
      this.#kinds[id] = entry?.kind ?? TokenKind.unused;
      // The first id wins where a vocabulary lists a piece twice.
      if (entry && entry.piece !== '' && !this.#ids.has(entry.piece)) this.#ids.set(entry.piece, id);
    }
    this.#bytes = new Uint8Array(numBytes);
    for (let id = 0; id < size; id++) this.#bytes.set(chunks[id]!, this.#offsets[id]!);
  }

  /** Ids beyond the table exist in models whose vocabulary is padded: they have no spelling and no bytes. */
  piece(tokenId: number): string {
    return this.#pieces[tokenId] ?? '';
  }

  kind(tokenId: number): TokenKind {
    return (this.#kinds[tokenId] ?? TokenKind.unused) as TokenKind;
  }

  /** A view, not a copy. */
  bytes(tokenId: number): Uint8Array {
    if (!(tokenId >= 0 && tokenId < this.size)) return NO_BYTES;
    return this.#bytes.subarray(this.#offsets[tokenId]!, this.#offsets[tokenId + 1]!);
  }

  /** The text of this token alone; U+FFFD where its bytes are no whole characters. */
  text(tokenId: number): string {
    const known = this.#texts[tokenId];
    if (known !== undefined) return known;
    const text = this.#decoder.decode(this.bytes(tokenId));
    if (tokenId >= 0 && tokenId < this.size) this.#texts[tokenId] = text;
    return text;
  }

  id(piece: string): number | null {
    return this.#ids.get(piece) ?? null;
  }

  /** Unknown tokens count as control tokens: text never spells one, and skip_special_tokens leaves them out. */
  isControl(tokenId: number): boolean {
    const kind = this.#kinds[tokenId];
    return kind === TokenKind.control || kind === TokenKind.unknown;
  }

  /** Ids whose kind is one of `kinds`, ascending. */
  idsOfKind(...kinds: readonly TokenKind[]): number[] {
    const ids: number[] = [];
    for (let id = 0; id < this.size; id++) if (kinds.includes(this.#kinds[id] as TokenKind)) ids.push(id);
    return ids;
  }

  decode(tokenIds: ArrayLike<number>, skipSpecialTokens: boolean): string {
    let numBytes = 0;
    for (let i = 0; i < tokenIds.length; i++) {
      if (!(skipSpecialTokens && this.isControl(tokenIds[i]!))) numBytes += this.bytes(tokenIds[i]!).length;
    }
    const bytes = new Uint8Array(numBytes);
    let at = 0;
    for (let i = 0; i < tokenIds.length; i++) {
      if (skipSpecialTokens && this.isControl(tokenIds[i]!)) continue;
      const chunk = this.bytes(tokenIds[i]!);
      bytes.set(chunk, at);
      at += chunk.length;
    }
    return this.#decoder.decode(bytes);
  }
}
