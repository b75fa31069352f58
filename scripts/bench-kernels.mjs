// Links native/test/gemm_bench.cc with the very objects of the addon and runs it: `npm run bench:kernels -- format=Q4_1 m=1,32`.
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import {
  addonFlags,
  addonIncludes,
  addonObjectDir,
  compileAll,
  findCompiler,
  nativeFiles,
  root,
  runCompiler,
} from './native-sources.mjs';

const compiler = findCompiler();
if (!compiler) {
  process.stderr.write('No C++17 compiler found.\n');
  process.exit(1);
}
const objectDir = join(root, 'build', 'bench-kernels');
const options = { flags: addonFlags, includes: addonIncludes() };
const kernels = nativeFiles(['.cc']).filter((file) => /[\\/]ops[\\/]|cpu-features/.test(file));
try {
  const objects = [
    ...(await compileAll(compiler, kernels, { ...options, objectDir: addonObjectDir, isPart: true })).values(),
    ...(await compileAll(compiler, [join(root, 'native/test/gemm_bench.cc')], { ...options, objectDir })).values(),
  ];
  const program = join(objectDir, 'gemm_bench');
  await runCompiler(compiler, ['-pthread', '-o', program, ...objects]);
  process.exitCode = spawnSync(program, process.argv.slice(2), { stdio: 'inherit' }).status ?? 1;
} catch (error) {
  process.stderr.write(`${error.message}\n`);
  process.exit(1);
}
