// Opens a GGUF model, one file or a split set (NAME-00001-of-00003.gguf), as one checkpoint. Any part opens the whole set;
// every part is there and agrees with the others before a tensor is looked at.

import { existsSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { PagodaError } from '../errors.ts';
import type { GgufCheckpoint, TensorInfo } from './checkpoint.ts';
import { type GgufFile, parseGguf } from './gguf-file.ts';
import { optionalNumber } from './gguf-metadata.ts';
import { ModelFile } from './model-file.ts';
import { openTensors } from './open-tensors.ts';

const PART_NAME = /^(.+)-(\d{5})-of-(\d{5})\.gguf$/i;
const MAX_PARTS = 99_999;

/** `source` is what the user asked for; it defaults to the path. */
export function openGguf(path: string, source: string = path): GgufCheckpoint {
  const files: ModelFile[] = [];
  try {
    return openParts(resolve(path), source, files);
  } catch (error) {
    for (const file of files) file.close();
    throw error;
  }
}

/** The parts of the set that a file belongs to, by its name; the file alone when its name is not that of a part. */
export function ggufParts(path: string): string[] {
  const match = PART_NAME.exec(basename(path));
  const count = match ? Number(match[3]) : 1;
  if (!match || count <= 1) return [path];
  return Array.from({ length: count }, (_, i) => join(dirname(path), partName(match[1]!, i, count)));
}

function partName(stem: string, index: number, count: number): string {
  return `${stem}-${String(index + 1).padStart(5, '0')}-of-${String(count).padStart(5, '0')}.gguf`;
}

function openParts(path: string, source: string, files: ModelFile[]): GgufCheckpoint {
  const bad = (message: string): never => {
    throw new PagodaError('bad_model_file', message);
  };
  const parts = ggufParts(path);
  const match = PART_NAME.exec(basename(path));
  if (match && (Number(match[2]) < 1 || Number(match[2]) > Number(match[3]))) {
    bad(`${path}: the name says part ${Number(match[2])} of ${Number(match[3])}`);
  }
  for (const part of existsSync(path) ? parts : []) {
    if (!existsSync(part))
      bad(`${part}: missing; ${basename(path)} is one of ${parts.length} parts, and all must be in one folder`);
  }
  const opened: GgufFile[] = [];
  const warnings: string[] = [];
  for (const [i, part] of parts.entries()) {
    const file = new ModelFile(part);
    files.push(file);
    const gguf = parseGguf(file);
    checkPart(part, gguf, { index: i, count: parts.length });
    checkEnd(file, gguf, warnings);
    opened.push(gguf);
  }
  const tensors = uniteTensors(opened);
  const first = opened[0]!;
  const total = optionalNumber(first.metadata, 'split.tensors.count', { integer: true, min: 0 });
  if (total !== null && total !== tensors.size) {
    bad(
      `${parts[0]}: holds ${tensors.size} of ${total} tensors (split.tensors.count)${parts.length > 1 ? ' with all its parts' : ''}; get the file again`,
    );
  }
  return { format: 'gguf', source, metadata: first.metadata, ...openTensors(files, tensors, warnings) };
}

/** The numbers inside a part must agree with its name. */
function checkPart(
  path: string,
  { metadata, tensors }: GgufFile,
  { index, count }: { index: number; count: number },
): void {
  const splitCount = optionalNumber(metadata, 'split.count', { integer: true, min: 0, max: MAX_PARTS }) ?? 1;
  const splitNo = optionalNumber(metadata, 'split.no', { integer: true, min: 0, max: MAX_PARTS }) ?? 0;
  if (count === 1 && splitCount > 1) {
    const total = optionalNumber(metadata, 'split.tensors.count', { integer: true, min: 0 });
    const holds = total === null ? `is part ${splitNo + 1}` : `holds ${tensors.length} of ${total} tensors`;
    const name = partName('NAME', splitNo, splitCount);
    throw new PagodaError(
      'bad_model_file',
      `${path}: ${holds} of a model that was split in ${splitCount} (split.count); parts keep their names (${name}) and may not be joined with cat, only with gguf-split --merge`,
    );
  }
  if (splitCount !== count && !(count === 1 && splitCount === 0)) {
    throw new PagodaError('bad_model_file', `${path}: the name says ${count} parts, split.count says ${splitCount}`);
  }
  if (splitNo !== index) {
    throw new PagodaError(
      'bad_model_file',
      `${path}: the name says part ${index + 1}, split.no says part ${splitNo + 1}`,
    );
  }
}

/** Bytes after the data: another GGUF means files joined with cat; anything else is only strange. */
function checkEnd(file: ModelFile, { endOfData }: GgufFile, warnings: string[]): void {
  const extra = file.numBytes - endOfData;
  if (extra <= 0) return;
  const magic = new Uint8Array(Math.min(4, extra));
  file.read(magic, endOfData);
  if (Buffer.from(magic).toString('latin1') === 'GGUF') {
    throw new PagodaError(
      'bad_model_file',
      `${file.path}: a second GGUF file begins at byte ${endOfData}; files may not be joined with cat`,
    );
  }
  warnings.push(`${file.path}: ${extra} bytes after the last tensor are ignored`);
}

function uniteTensors(parts: readonly GgufFile[]): Map<string, TensorInfo> {
  const tensors = new Map<string, TensorInfo>();
  for (const tensor of parts.flatMap((part) => part.tensors)) {
    const other = tensors.get(tensor.name);
    if (other)
      throw new PagodaError('bad_model_file', `${tensor.file}: tensor ${tensor.name} is also in ${other.file}`);
    tensors.set(tensor.name, tensor);
  }
  return tensors;
}
