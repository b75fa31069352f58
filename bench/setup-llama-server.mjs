// Builds llama.cpp's own server for exactly this CPU (GGML_NATIVE), of the sources of the release that the library comparison uses:
// several minutes on two cores, once. Without CMake or a compiler it says so and ends with 1; the server inside xllamacpp, an AVX2
// build, then stands in.
import { spawnSync } from 'node:child_process';
import { availableParallelism } from 'node:os';
import { llamaServerBuild, sourceFolder } from './engines/llama-source.mjs';
import { readFlags } from './flags.mjs';

readFlags(
  `Usage: node bench/setup-llama-server.mjs: builds llama.cpp's server for this CPU, several minutes, once\n`,
  {},
);

const OPTIONS = [
  '-DCMAKE_BUILD_TYPE=Release',
  '-DGGML_NATIVE=ON',
  '-DBUILD_SHARED_LIBS=OFF',
  '-DLLAMA_BUILD_TESTS=OFF',
  '-DLLAMA_BUILD_EXAMPLES=OFF',
  '-DLLAMA_USE_PREBUILT_UI=OFF',
  '-DLLAMA_OPENSSL=OFF',
];

function cmake(...args) {
  const run = spawnSync('cmake', args, { stdio: ['ignore', 'ignore', 'inherit'] });
  if (run.status !== 0)
    throw new Error(run.error?.message ?? `cmake ${args[0]} ended with ${run.status ?? run.signal}`);
}

try {
  cmake('-S', sourceFolder(), '-B', llamaServerBuild(), ...OPTIONS);
  cmake('--build', llamaServerBuild(), '--target', 'llama-server', '--parallel', String(availableParallelism()));
} catch (error) {
  process.stderr.write(`llama.cpp's server was not built: ${error.message}\n`);
  process.exitCode = 1;
}
