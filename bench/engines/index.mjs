// The engines by name. Each has: label; check() -> version, or throws with the reason why it is not there; covers(workload);
// settings(workload): candidates, the first the default; and for the workloads in its own process command({settings}) -> [program, ...args]
// that reads a job as JSON from standard input and writes one line {"rates":[tokens/s per window]} (or {"seconds"} of an http job that
// a library without a server ran); and, if it has a server, server({model, threads, port, settings, numSeqs, contextTokens}).
import * as ik from './ik.mjs';
import * as llama from './llama.mjs';
import * as llamaServer from './llama-server.mjs';
import * as openvino from './openvino.mjs';
import * as pagoda from './pagoda.mjs';

export const ENGINES = { pagoda, llama, 'llama-server': llamaServer, ik, openvino };
