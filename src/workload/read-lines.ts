// Lines of a text file one after the other, in bounded memory: traces of a week are larger than memory. Synchronous, because a
// workload is a plain iterator. Understands LF and CRLF, drops a byte order mark, refuses what is no text.

import { closeSync, fstatSync, openSync, readSync } from 'node:fs';
import { StringDecoder } from 'node:string_decoder';
import { PagodaError } from '../errors.ts';

const CHUNK_BYTES = 1 << 16;
/** Longer than any line of a trace: the longest are Mooncake's lists of ids. */
const MOST_LINE_CHARACTERS = 16_000_000;

/** Pieces of the file's text. Throws PagodaError `not_found` or `bad_config` that names the option and the path. */
export function* readChunks(path: string, option: string): Generator<string> {
  const file = openText(path, option);
  try {
    const decoder = new StringDecoder('utf8');
    const bytes = Buffer.allocUnsafe(CHUNK_BYTES);
    let isFirst = true;
    for (;;) {
      const numBytes = readSync(file, bytes, 0, CHUNK_BYTES, null);
      if (numBytes === 0) break;
      const text = decoder.write(bytes.subarray(0, numBytes));
      if (text.includes('\0')) throw badTrace(path, option, 'is not a text file');
      yield isFirst && text.startsWith('\ufeff') ? text.slice(1) : text;
      isFirst = false;
    }
    const rest = decoder.end();
    if (rest !== '') yield rest;
  } finally {
    closeSync(file);
  }
}

/** Lines without their ends; empty ones too, so that the caller can count. */
export function* readLines(path: string, option: string): Generator<string> {
  let rest = '';
  for (const chunk of readChunks(path, option)) {
    const lines = (rest + chunk).split('\n');
    rest = lines.pop() ?? '';
    if (rest.length > MOST_LINE_CHARACTERS)
      throw badTrace(path, option, `has a line of more than ${MOST_LINE_CHARACTERS} characters`);
    for (const line of lines) yield line.endsWith('\r') ? line.slice(0, -1) : line;
  }
  if (rest !== '') yield rest.endsWith('\r') ? rest.slice(0, -1) : rest;
}

export function badTrace(path: string, option: string, what: string): PagodaError {
  return new PagodaError('bad_config', `${option} ${path}: ${what}.`, { param: option });
}

function openText(path: string, option: string): number {
  let file: number;
  try {
    file = openSync(path, 'r');
  } catch (cause) {
    const code = (cause as NodeJS.ErrnoException).code ?? 'unknown error';
    const what = code === 'ENOENT' ? 'there is no such file' : `cannot be read (${code})`;
    throw new PagodaError('bad_config', `${option} ${path}: ${what}.`, { param: option, cause });
  }
  if (fstatSync(file).isFile()) return file;
  closeSync(file);
  throw badTrace(path, option, 'is not a file');
}
