// Cuts a text at the spellings of added tokens: leftmost match first, the longest one at that place.
// One pass over the text with a trie; the cost does not grow with the number of tokens.

export interface AddedToken {
  readonly id: number;
  readonly spelling: string;
  /** Whitespace before / after it belongs to the token and vanishes. */
  readonly stripLeft?: boolean;
  readonly stripRight?: boolean;
}

/** Text between tokens, or a token id. Empty texts are left out. */
export type Fragment = string | number;

interface TrieNode {
  readonly children: Map<number, TrieNode>;
  token: AddedToken | null;
}

const WHITESPACE_AT_END = /\p{White_Space}+$/u;
const WHITESPACE_AT_START = /^\p{White_Space}+/u;

export class AddedTokenSplitter {
  readonly #root: TrieNode = { children: new Map(), token: null };

  constructor(tokens: Iterable<AddedToken>) {
    for (const token of tokens) {
      if (token.spelling === '') continue;
      let node = this.#root;
      for (let i = 0; i < token.spelling.length; i++) {
        const unit = token.spelling.charCodeAt(i);
        let child = node.children.get(unit);
        if (!child) {
          child = { children: new Map(), token: null };
          node.children.set(unit, child);
        }
        node = child;
      }
      node.token ??= token;
    }
  }

  split(text: string): Fragment[] {
    const fragments: Fragment[] = [];
    let start = 0;
    let position = 0;
    while (position < text.length) {
      const token = this.longestAt(text, position);
      if (!token) {
        position++;
        continue;
      }
      let before = text.slice(start, position);
      if (token.stripLeft && before !== '') before = stripEnd(before);
      if (before !== '') fragments.push(before);
      fragments.push(token.id);
      position += token.spelling.length;
      if (token.stripRight) position += WHITESPACE_AT_START.exec(text.slice(position))?.[0].length ?? 0;
      start = position;
    }
    if (start < text.length) fragments.push(start === 0 ? text : text.slice(start));
    return fragments;
  }

  /** A token is spelled at `position`, or begins there and would go on behind the end of the text. */
  beginsAt(text: string, position: number): boolean {
    let node = this.#root.children.get(text.charCodeAt(position));
    for (let i = position + 1; node; i++) {
      if (node.token || i === text.length) return true;
      node = node.children.get(text.charCodeAt(i));
    }
    return false;
  }

  /** The longest token that starts at `position`, or null. */
  longestAt(text: string, position: number): AddedToken | null {
    let node: TrieNode | undefined = this.#root.children.get(text.charCodeAt(position));
    let longest: AddedToken | null = null;
    for (let i = position + 1; node; i++) {
      if (node.token) longest = node.token;
      node = i < text.length ? node.children.get(text.charCodeAt(i)) : undefined;
    }
    return longest;
  }
}

/** Looks only at the end: `/\s+$/` alone would try every run of whitespace in the text. */
function stripEnd(text: string): string {
  let end = text.length;
  while (end > 0 && WHITESPACE_AT_END.test(text[end - 1]!)) end--;
  return text.slice(0, end);
}
