// The part of a checkpoint that does not depend on its format: the open files and reads of tensor bytes from them.

import { PagodaError } from '../errors.ts';
import type { Checkpoint, TensorInfo } from './checkpoint.ts';
import type { ModelFile } from './model-file.ts';

type OpenTensors = Pick<
  Checkpoint,
  'files' | 'tensors' | 'weightBytes' | 'warnings' | 'readTensor' | 'readBytes' | 'close'
>;

/** Takes over the files: `close` closes them. Every tensor's bytes must have been checked to lie in its file. */
export function openTensors(
  files: readonly ModelFile[],
  tensors: ReadonlyMap<string, TensorInfo>,
  warnings: readonly string[],
): OpenTensors {
  const byPath = new Map(files.map((file) => [file.path, file]));
  let weightBytes = 0;
  for (const tensor of tensors.values()) weightBytes += tensor.numBytes;

  function readBytes(tensor: TensorInfo, start: number, target: Uint8Array): void {
    const file = byPath.get(tensor.file);
    if (!file || start < 0 || start + target.length > tensor.numBytes) {
      throw new PagodaError(
        'internal',
        `${tensor.name}: bytes ${start} to ${start + target.length} are not in the tensor`,
      );
    }
    file.read(target, tensor.offset + start);
  }

  function readTensor(tensor: TensorInfo): Uint8Array {
    const bytes = allocate(tensor);
    readBytes(tensor, 0, bytes);
    return bytes;
  }

  function close(): void {
    for (const file of files) file.close();
  }
  return { files: files.map((file) => file.path), tensors, weightBytes, warnings, readTensor, readBytes, close };
}

function allocate(tensor: TensorInfo): Uint8Array {
  try {
    return new Uint8Array(tensor.numBytes);
  } catch (cause) {
    throw new PagodaError(
      'out_of_memory',
      `${tensor.file}: tensor ${tensor.name} of ${tensor.numBytes} bytes is too big to read at once`,
      { cause },
    );
  }
}
