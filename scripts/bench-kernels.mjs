// Builds native/test/gemm_bench.cc with the kernels as the addon has them, and runs it: `npm run bench:kernels -- format=Q4_1 m=1,32`.
import { spawnSync } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { join, relative } from 'node:path';
import { findCompiler, instructionSetFlags, languageFlags, nativeFiles, root } from './native-sources.mjs';

const compiler = findCompiler();
if (!compiler) {
  process.stderr.write('No C++17 compiler found.\n');
  process.exit(1);
}
const dir = join(root, 'build', 'bench-kernels');
mkdirSync(dir, { recursive: true });
function run(command, args) {
  const { status } = spawnSync(command, args, { stdio: 'inherit' });
  if (status !== 0) process.exit(status ?? 1);
}
const sources = [
  join(root, 'native', 'test', 'gemm_bench.cc'),
  ...nativeFiles(['.cc']).filter((file) => /[\\/]ops[\\/]/.test(file)),
];
const objects = sources.map((source) => {
  const object = join(dir, `${relative(join(root, 'native'), source).replaceAll(/[\\/]/g, '-')}.o`);
  run(compiler.name, [
    ...languageFlags,
    '-O3',
    ...instructionSetFlags(source),
    '-I',
    join(root, 'native'),
    '-c',
    '-o',
    object,
    source,
  ]);
  return object;
});
const program = join(dir, 'gemm_bench');
run(compiler.name, ['-pthread', '-o', program, ...objects]);
run(program, process.argv.slice(2));
