"""All workloads in OpenVINO GenAI's ContinuousBatchingPipeline, straight from the GGUF file: reads a job from standard input, writes
one JSON line. Requests of an http job are all submitted at once; the shared prefix is computed beforehand (its cache is warm)."""
import json
import os
import sys
import time

out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
import numpy as np  # noqa: E402
import openvino as ov  # noqa: E402
import openvino_genai as genai  # noqa: E402

spec = json.load(sys.stdin)
job, settings = spec["job"], spec["settings"]
scheduler = genai.SchedulerConfig()
scheduler.cache_size = 2
scheduler.max_num_seqs = 64
scheduler.max_num_batched_tokens = settings["maxNumBatchedTokens"]
scheduler.dynamic_split_fuse = True
scheduler.enable_prefix_caching = True
config = {"INFERENCE_NUM_THREADS": spec["threads"], "PERFORMANCE_HINT": "LATENCY"}
if settings["precision"]:
    config["INFERENCE_PRECISION_HINT"] = settings["precision"]
pipe = genai.ContinuousBatchingPipeline(spec["model"], scheduler, "CPU", config)
num_requests = 0


def add(tokens, num_tokens):
    global num_requests
    num_requests += 1
    generation = genai.GenerationConfig()
    generation.max_new_tokens = num_tokens
    generation.ignore_eos = True
    generation.do_sample = False
    return pipe.add_request(num_requests, ov.Tensor(np.array([tokens], dtype=np.int64)), generation)


def run(prompts, num_tokens, num_full_steps=None):
    """-> per step (time at its end, tokens it gave), and for every request the times of its first and last token, from the start.
    Ends with the last request, or after `num_full_steps` steps in which every request got a token."""
    handles = [add(tokens, num_tokens) for tokens in prompts]
    first, last, steps = [0.0] * len(handles), [0.0] * len(handles), []
    started = time.perf_counter()
    while pipe.has_non_finished_requests():
        pipe.step()
        now, count = time.perf_counter() - started, 0
        for i, handle in enumerate(handles):
            if handle.can_read():
                got = sum(len(each.generated_ids) for each in handle.read().values())
                if got:
                    first[i] = first[i] or now
                    last[i] = now
                    count += got
        steps.append((now, count))
        if num_full_steps and sum(count == len(prompts) for _, count in steps) == num_full_steps:
            break
    return steps, first, last


result = {}
if job["kind"] == "prefill":
    rates = []
    for tokens in job["prompts"]:
        steps, _, _ = run([tokens], 1)
        rates.append(len(tokens) / steps[-1][0])
    result["rates"] = rates[1:]
elif job["kind"] == "decode":
    window = job["windowSteps"]
    num_full_steps = job["numWindows"] * window + 1
    # Prompts are prefilled one after the other: the first sequences decode while the last ones wait.
    num_prefill_steps = sum(map(len, job["prompts"])) // settings["maxNumBatchedTokens"] + len(job["prompts"])
    steps, _, _ = run(job["prompts"], num_full_steps + num_prefill_steps, num_full_steps)
    times = [now for now, count in steps if count == len(job["prompts"])]
    rates = [len(job["prompts"]) * window / (times[i + window] - times[i]) for i in range(0, len(times) - window, window)]
    result["rates"] = rates[1:]
else:
    run([job["warmup"]], 4)
    if job["sharedPrompt"]:
        run([job["sharedPrompt"] + job["warmup"][:8]], 1)
    steps, first, last = run(job["prompts"], job["outputTokens"])
    result["seconds"] = steps[-1][0]
    result["ttft"] = first
    result["tpot"] = [(b - a) / (job["outputTokens"] - 1) for a, b in zip(first, last)]
    result["clientCpuSeconds"] = 0
result["cpuSeconds"] = time.process_time()
print(json.dumps(result), file=out, flush=True)
os._exit(0)
