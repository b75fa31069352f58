"""The llama.cpp server inside xllamacpp: llama-server.py MODEL PORT THREADS SLOTS UBATCH TOKENS_PER_SLOT; runs until it is ended."""
import signal
import sys

import xllamacpp

model = sys.argv[1]
port, threads, slots, ubatch, context = map(int, sys.argv[2:7])
params = xllamacpp.CommonParams()
params.model.path = model
params.hostnames = ["127.0.0.1"]
params.port = port
params.n_parallel = slots
params.n_ctx = slots * context
params.n_batch = 2048
params.n_ubatch = ubatch
params.cpuparams.n_threads = threads
params.cpuparams_batch.n_threads = threads
params.kv_unified = False
params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_ENABLED
params.cont_batching = True
params.cache_prompt = True
params.fit_params = False
# Every request is greedy: no work on candidates that cannot win.
params.sampling.samplers = "top_k"
params.sampling.top_k = 1
server = xllamacpp.Server(params)
print("listening on", server.listening_address, flush=True)
signal.pause()
