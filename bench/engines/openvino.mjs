import { join } from 'node:path';
import { python, pythonPackage } from './python.mjs';

export const label = 'OpenVINO GenAI';
export const check = () => pythonPackage('openvino-genai', 'openvino_genai');
/** It has no server: its http workloads run in its own process, without HTTP or JSON, in its favour. It reads no BF16 from GGUF. */
export const covers = (_workload, format) => format !== 'bf16';

/** Its own choices but for what is swept: bf16 where the CPU multiplies it, else float32, and an 8-bit KV cache, half of the others'. */
export function settings(workload) {
  // The budget of a step does not matter to decoding, but a large one lets all sequences begin together.
  const budgets = workload.kind === 'decode' ? [2048] : [512, 256, 2048];
  return [
    ...budgets.map((maxNumBatchedTokens) => ({ maxNumBatchedTokens, precision: null })),
    { maxNumBatchedTokens: budgets[0], precision: 'f32' },
  ];
}

export const command = () => [python, join(import.meta.dirname, 'openvino-library.py')];
