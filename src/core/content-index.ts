// Finds the block that holds a given content: an open-addressing hash table in Int32Arrays, because filing and forgetting
// happens for every block that fills, and a Map of strings would make garbage of it. Digests come from a keyed SHA-256, so
// their first word is as good as random and nobody can aim at one slot.

/** Words of a digest. */
export const DIGEST_WORDS = 8;

export class ContentIndex {
  /** [power of two, at least 2 * numBlocks] block ids, 0 = empty; linear probing from the digest's first word. */
  readonly #table: Int32Array;
  readonly #mask: number;
  /** [numBlocks, DIGEST_WORDS] */
  readonly #digests: Int32Array;
  /** [numBlocks] KV group the block is filed in; -1 = not filed. */
  readonly #groups: Int32Array;
  /** Blocks filed. */
  size = 0;

  constructor(numBlocks: number) {
    const numSlots = 2 ** Math.ceil(Math.log2(2 * numBlocks));
    this.#table = new Int32Array(numSlots);
    this.#mask = numSlots - 1;
    this.#digests = new Int32Array(numBlocks * DIGEST_WORDS);
    this.#groups = new Int32Array(numBlocks).fill(-1);
  }

  has(block: number): boolean {
    return this.#groups[block] !== -1;
  }

  /** The block filed in `group` under the digest at digests[at, at + DIGEST_WORDS), or 0. */
  find(group: number, digests: Int32Array, at: number): number {
    const table = this.#table;
    for (let slot = this.#home(digests[at]!, group); ; slot = (slot + 1) & this.#mask) {
      const block = table[slot]!;
      if (block === 0 || this.#isFiledUnder(block, group, digests, at)) return block;
    }
  }

  /** Files a block that is not filed under a digest that is not in use. */
  insert(block: number, group: number, digests: Int32Array, at: number): void {
    for (let word = 0; word < DIGEST_WORDS; word++) this.#digests[block * DIGEST_WORDS + word] = digests[at + word]!;
    this.#groups[block] = group;
    let slot = this.#homeOf(block);
    while (this.#table[slot] !== 0) slot = (slot + 1) & this.#mask;
    this.#table[slot] = block;
    this.size++;
  }

  /** Takes out a block that is filed; entries behind it move up, so that no probe ends early. */
  remove(block: number): void {
    const table = this.#table;
    const mask = this.#mask;
    let hole = this.#homeOf(block);
    while (table[hole] !== block) hole = (hole + 1) & mask;
    for (let slot = (hole + 1) & mask; table[slot] !== 0; slot = (slot + 1) & mask) {
      // The entry may fill the hole unless its probe starts after the hole.
      const distanceFromHome = (slot - this.#homeOf(table[slot]!)) & mask;
      if (distanceFromHome < ((slot - hole) & mask)) continue;
      table[hole] = table[slot]!;
      hole = slot;
    }
    table[hole] = 0;
    this.#groups[block] = -1;
    this.size--;
  }

  /** For integrity checks: true when exactly the filed blocks can be found, each under its own digest. */
  isConsistent(): boolean {
    let numFiled = 0;
    for (let block = 0; block < this.#groups.length; block++) {
      if (!this.has(block)) continue;
      numFiled++;
      if (this.find(this.#groups[block]!, this.#digests, block * DIGEST_WORDS) !== block) return false;
    }
    const numEntries = this.#table.reduce((count, block) => (block === 0 ? count : count + 1), 0);
    return numFiled === this.size && numEntries === this.size;
  }

  #home(firstWord: number, group: number): number {
    return (firstWord + Math.imul(group, 0x9e3779b1)) & this.#mask;
  }

  #homeOf(block: number): number {
    return this.#home(this.#digests[block * DIGEST_WORDS]!, this.#groups[block]!);
  }

  #isFiledUnder(block: number, group: number, digests: Int32Array, at: number): boolean {
    if (this.#groups[block] !== group) return false;
    const own = block * DIGEST_WORDS;
    for (let word = 0; word < DIGEST_WORDS; word++) if (this.#digests[own + word] !== digests[at + word]) return false;
    return true;
  }
}
