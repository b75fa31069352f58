"""Prefill and decode in ik_llama.cpp through its C interface: reads a job from standard input, writes one JSON line.

Decode takes the next token from the prompts' generator of tokens, not from a sampler: the engine is spared that work."""
import json
import os
import sys
import time

# The library logs to standard output's descriptor: ours is a copy of it.
out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
from ik_llama_cpp import _ctypes_api as ik  # noqa: E402

spec = json.load(sys.stdin)
job, settings, threads = spec["job"], spec["settings"], spec["threads"]
prompts = job["prompts"]
is_decode = job["kind"] == "decode"
num_seqs = len(prompts) if is_decode else 1
num_steps = job["numWindows"] * job["windowSteps"] if is_decode else 0
ubatch = max(settings["ubatch"], num_seqs)
per_seq = (max(map(len, prompts)) + num_steps + 264) // 256 * 256

ik.llama_backend_init()
model_params = ik.llama_model_default_params()
model_params.n_gpu_layers = 0
model_params.repack_tensors = settings["repack"]
model_params.use_mmap = not settings["repack"]  # mapped weights cannot be repacked
model = ik.llama_model_load_from_file(spec["model"].encode(), model_params)
if not model:
    sys.exit("ik_llama.cpp could not load the model")
params = ik.llama_context_default_params()
params.n_ctx = per_seq * num_seqs
params.n_batch = params.n_ubatch = ubatch
params.n_seq_max = num_seqs
params.n_threads = params.n_threads_batch = threads
params.flash_attn = settings["flashAttention"]
context = ik.llama_init_from_model(model, params)
if not context:
    sys.exit("ik_llama.cpp could not make a context")
batch = ik.llama_batch_init(ubatch, 0, 1)


def decode(rows):
    """rows: (token, position, sequence, wants logits)"""
    batch.n_tokens = len(rows)
    for i, (token, position, sequence, logits) in enumerate(rows):
        batch.token[i] = token
        batch.pos[i] = position
        batch.n_seq_id[i] = 1
        batch.seq_id[i][0] = sequence
        batch.logits[i] = logits
    if ik.llama_decode(context, batch) != 0:
        sys.exit("ik_llama.cpp could not decode a batch")
    # Reading logits waits for the work.
    if any(row[3] for row in rows):
        ik.llama_get_logits_ith(context, len(rows) - 1)


def prefill(tokens, sequence):
    for start in range(0, len(tokens), ubatch):
        part = tokens[start : start + ubatch]
        last = start + len(part) == len(tokens)
        decode([(t, start + i, sequence, int(last and i == len(part) - 1)) for i, t in enumerate(part)])


rates = []
if is_decode:
    for sequence, tokens in enumerate(prompts):
        prefill(tokens, sequence)
    step = 0
    for _ in range(job["numWindows"]):
        started = time.perf_counter()
        for _ in range(job["windowSteps"]):
            decode([(tokens[step % len(tokens)], len(tokens) + step, s, 1) for s, tokens in enumerate(prompts)])
            step += 1
        rates.append(num_seqs * job["windowSteps"] / (time.perf_counter() - started))
else:
    for tokens in prompts:
        ik.llama_kv_cache_clear(context)
        started = time.perf_counter()
        prefill(tokens, 0)
        rates.append(len(tokens) / (time.perf_counter() - started))
print(json.dumps({"rates": rates[1:], "cpuSeconds": time.process_time()}), file=out, flush=True)
os._exit(0)
