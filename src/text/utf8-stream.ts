// UTF-8 decoding of a byte stream that comes in pieces, as the WHATWG decoder does it: an incomplete character is held back,
// a sequence that can no longer become valid gives U+FFFD per maximal subpart. A few numbers of state per stream.

const REPLACEMENT = '\ufffd';

export class Utf8Stream {
  #codePoint = 0;
  #numNeeded = 0;
  #lower = 0x80;
  #upper = 0xbf;
  /** ED A0..BF, the first two bytes of an encoded surrogate: never valid, but told only with the third byte, as CPython does. */
  #holdsSurrogate = false;

  /** True when no incomplete character is held back. */
  get isAtBoundary(): boolean {
    return this.#numNeeded === 0;
  }

  /** The text that these bytes make certain. */
  push(bytes: Uint8Array): string {
    let text = '';
    for (let i = 0; i < bytes.length; i++) {
      const byte = bytes[i]!;
      if (this.#holdsSurrogate) {
        text += this.flush() + (byte >= 0x80 && byte <= 0xbf ? REPLACEMENT : this.#start(byte));
      } else if (this.#numNeeded === 0) {
        text += this.#start(byte);
      } else if (byte > this.#upper && this.#upper === 0x9f && byte <= 0xbf) {
        this.#holdsSurrogate = true;
      } else if (byte < this.#lower || byte > this.#upper) {
        this.#numNeeded = 0;
        text += REPLACEMENT + this.#start(byte);
      } else {
        this.#lower = 0x80;
        this.#upper = 0xbf;
        this.#codePoint = (this.#codePoint << 6) | (byte & 0x3f);
        if (--this.#numNeeded === 0) text += String.fromCodePoint(this.#codePoint);
      }
    }
    return text;
  }

  /** What is left of an incomplete character. */
  flush(): string {
    if (this.#numNeeded === 0) return '';
    this.#numNeeded = 0;
    const text = this.#holdsSurrogate ? REPLACEMENT + REPLACEMENT : REPLACEMENT;
    this.#holdsSurrogate = false;
    return text;
  }

  #start(byte: number): string {
    if (byte < 0x80) return String.fromCharCode(byte);
    this.#lower = 0x80;
    this.#upper = 0xbf;
    if (byte >= 0xc2 && byte <= 0xdf) {
      this.#numNeeded = 1;
      this.#codePoint = byte & 0x1f;
    } else if (byte >= 0xe0 && byte <= 0xef) {
      // No overlong forms, no surrogates.
      if (byte === 0xe0) this.#lower = 0xa0;
      if (byte === 0xed) this.#upper = 0x9f;
      this.#numNeeded = 2;
      this.#codePoint = byte & 0x0f;
    } else if (byte >= 0xf0 && byte <= 0xf4) {
      // No overlong forms, nothing above U+10FFFF.
      if (byte === 0xf0) this.#lower = 0x90;
      if (byte === 0xf4) this.#upper = 0x8f;
      this.#numNeeded = 3;
      this.#codePoint = byte & 0x07;
    } else {
      return REPLACEMENT;
    }
    return '';
  }
}
