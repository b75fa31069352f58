// Finds stop strings in text that comes in chunks. The result is the same however the text is cut: the match that is complete
// first wins, of several that end together the longest. Held back is only what may still become a stop string.

export interface StopResult {
  /** Text that can be shown now. */
  readonly emit: string;
  /** The stop string that was found; nothing comes after it. */
  readonly stopString: string | null;
}

interface Automaton {
  /** As the caller spelled it. */
  readonly stop: string;
  readonly text: string;
  /** Knuth-Morris-Pratt: length of the longest proper prefix that is a suffix of the first i characters. */
  readonly fallback: Int32Array;
  numMatched: number;
}

const LONE_SURROGATE = /\p{Surrogate}/gu;

export class StopStrings {
  readonly #automata: readonly Automaton[];
  readonly #includeStop: boolean;
  #held = '';
  #hasStopped = false;

  constructor(stops: readonly string[], options: { readonly includeStop: boolean }) {
    this.#includeStop = options.includeStop;
    // Generated text is well-formed; half a character in a stop string must not cut one in two.
    this.#automata = stops
      .filter((stop) => stop !== '')
      .map((stop) => {
        const text = stop.replace(LONE_SURROGATE, '\ufffd');
        return { stop, text, fallback: fallbackTable(text), numMatched: 0 };
      });
  }

  push(text: string): StopResult {
    if (this.#hasStopped) return { emit: '', stopString: null };
    if (this.#automata.length === 0) return { emit: text, stopString: null };
    for (let i = 0; i < text.length; i++) {
      const found = this.#advance(text.charCodeAt(i));
      if (found) {
        this.#hasStopped = true;
        const upTo = this.#held + text.slice(0, i + 1);
        this.#held = '';
        const emit = this.#includeStop ? upTo : upTo.slice(0, upTo.length - found.text.length);
        return { emit, stopString: found.stop };
      }
    }
    let numHeld = 0;
    for (const automaton of this.#automata) numHeld = Math.max(numHeld, automaton.numMatched);
    const all = this.#held + text;
    this.#held = numHeld === 0 ? '' : all.slice(-numHeld);
    return { emit: all.slice(0, all.length - numHeld), stopString: null };
  }

  /** No more text comes: what was held back is no stop string. */
  flush(): string {
    const text = this.#held;
    this.#held = '';
    return text;
  }

  /** The longest stop string that this character completes, or null. */
  #advance(unit: number): Automaton | null {
    let found: Automaton | null = null;
    for (const automaton of this.#automata) {
      const { text, fallback } = automaton;
      let numMatched = automaton.numMatched;
      while (numMatched > 0 && text.charCodeAt(numMatched) !== unit) numMatched = fallback[numMatched]!;
      if (text.charCodeAt(numMatched) === unit) numMatched++;
      automaton.numMatched = numMatched;
      if (numMatched === text.length && (!found || text.length > found.text.length)) found = automaton;
    }
    return found;
  }
}

function fallbackTable(text: string): Int32Array {
  const fallback = new Int32Array(text.length + 1);
  let length = 0;
  for (let i = 1; i < text.length; i++) {
    while (length > 0 && text.charCodeAt(i) !== text.charCodeAt(length)) length = fallback[length]!;
    if (text.charCodeAt(i) === text.charCodeAt(length)) length++;
    fallback[i + 1] = length;
  }
  return fallback;
}
