// The engines by name. Each has: label; check() -> version, or throws with the reason why it is not there; covers(workload, format);
// settings(workload): candidates, the first the default; and for the workloads in its own process command({model, threads, settings, job})
// -> [program, ...args] that reads the same from standard input, as JSON or as what encode() makes of it, and writes one line
// {"rates":[tokens/s per window]} (or {"seconds"} of an http job that a library without a server ran); and, if it has a server,
// server({model, threads, port, settings, numSeqs, contextTokens}).
import * as ik from './ik.mjs';
import * as llama from './llama.mjs';
import * as llamaServer from './llama-server.mjs';
import * as nodeLlamaCpp from './node-llama-cpp.mjs';
import * as openvino from './openvino.mjs';
import * as pagoda from './pagoda.mjs';

export const ENGINES = { pagoda, llama, 'llama-server': llamaServer, 'node-llama-cpp': nodeLlamaCpp, ik, openvino };
