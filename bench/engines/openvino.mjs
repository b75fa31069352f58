import { join } from 'node:path';
import { python, pythonPackage } from './python.mjs';

export const label = 'OpenVINO GenAI';
export const check = () => pythonPackage('openvino-genai', 'openvino_genai');
/** It has no server: its http workloads run in its own process, without HTTP or JSON, in its favour. */
export const covers = () => true;

export function settings(workload) {
  const budgets = workload.kind === 'decode' ? [256] : [512, 256, 2048];
  return budgets.map((maxNumBatchedTokens) => ({ maxNumBatchedTokens }));
}

export const command = () => [python, join(import.meta.dirname, 'openvino-library.py')];
