// Builds the measuring programs of native/test with the very objects of the addon's kernels. Shared by bench-kernels.mjs and bench/probe.mjs.
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

/** -> path of the program `name`, made of native/test/NAME.cc and `sources` beside it. Throws without a compiler. */
export async function buildNativeBench(name, sources) {
  const compiler = findCompiler();
  if (!compiler)
    throw new Error('No C++17 compiler found: what the kernels and this machine can do cannot be measured.');
  const objectDir = join(root, 'build', 'bench');
  const options = { flags: addonFlags, includes: addonIncludes(), isPart: true };
  const kernels = nativeFiles(['.cc']).filter((file) => /[\\/]ops[\\/]|cpu-features|memory\.cc/.test(file));
  const own = [name, ...sources].map((source) => join(root, 'native', 'test', `${source}.cc`));
  const objects = [
    ...(await compileAll(compiler, kernels, { ...options, objectDir: addonObjectDir })).values(),
    ...(await compileAll(compiler, own, { ...options, objectDir })).values(),
  ];
  const program = join(objectDir, name);
  await runCompiler(compiler, ['-pthread', '-o', program, ...objects]);
  return program;
}
