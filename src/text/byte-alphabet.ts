// GPT-2's printable spelling of bytes: every byte is one character, so that vocabularies of byte-level BPE are plain strings.
// Printable Latin-1 characters stand for themselves, the other 68 bytes for U+0100 upwards (`bytes_to_unicode` of GPT-2's encoder.py).

const isPrintable = (byte: number): boolean =>
  (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || (byte >= 0xae && byte <= 0xff);

/** byte -> its character. */
export const BYTE_TO_CHAR: readonly string[] = makeAlphabet();

const CHAR_TO_BYTE = new Map(BYTE_TO_CHAR.map((char, byte) => [char.charCodeAt(0), byte]));

function makeAlphabet(): string[] {
  let numMoved = 0;
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(isPrintable(byte) ? byte : 0x100 + numMoved++));
}

/** The bytes that a piece like `Ġthe` stands for, or null when a character is none of the 256. */
export function pieceToBytes(piece: string): Uint8Array | null {
  const bytes = new Uint8Array(piece.length);
  for (let i = 0; i < piece.length; i++) {
    const byte = CHAR_TO_BYTE.get(piece.charCodeAt(i));
    if (byte === undefined) return null;
    bytes[i] = byte;
  }
  return bytes;
}
