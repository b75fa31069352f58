// Prefill and decode in llama.cpp through its C interface: llama-library MODEL BACKENDS THREADS UBATCH FLASH_ATTENTION reads a job from
// standard input (numWindows, windowSteps, numPrompts, then each prompt's length and token ids; no windows means prefill) and writes one
// line {"rates":[tokens/s per window]} without the first window, which warms up. Like llama.cpp's own tools it keeps one thread pool for
// the whole run and one KV stream per sequence; like llama-bench it does not sample: the next token comes from the prompt.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <vector>

#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "llama.h"

namespace {

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "llama.cpp: %s\n", what);
  std::exit(1);
}

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void print_warnings(ggml_log_level level, const char* text, void*) {
  if (level == GGML_LOG_LEVEL_WARN || level == GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
}

int read_number() {
  int value = 0;
  if (!(std::cin >> value) || value < 0) fail("the job is not a list of numbers");
  return value;
}

/// The pool llama.cpp's tools attach: without one, a build without OpenMP starts its threads anew for every step.
void attach_threads(llama_context* context, int num_threads) {
  ggml_backend_reg_t registry = ggml_backend_dev_backend_reg(ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU));
  const auto make = reinterpret_cast<decltype(ggml_threadpool_new)*>(ggml_backend_reg_get_proc_address(registry, "ggml_threadpool_new"));
  if (!make) fail("no thread pool");
  ggml_threadpool_params params = ggml_threadpool_params_default(num_threads);
  llama_attach_threadpool(context, make(&params), nullptr);
}

struct Runner {
  llama_context* context;
  llama_batch batch;
  int ubatch;

  void add(int token, int position, int sequence, bool wants_logits) {
    const int i = batch.n_tokens++;
    batch.token[i] = token;
    batch.pos[i] = position;
    batch.n_seq_id[i] = 1;
    batch.seq_id[i][0] = sequence;
    batch.logits[i] = wants_logits;
  }

  void decode() {
    if (llama_decode(context, batch) != 0) fail("a batch could not be decoded");
    llama_synchronize(context);
    batch.n_tokens = 0;
  }

  void prefill(const std::vector<int>& tokens, int sequence) {
    const int size = static_cast<int>(tokens.size());
    for (int start = 0; start < size; start += ubatch) {
      const int end = std::min(size, start + ubatch);
      for (int i = start; i < end; i++) add(tokens[i], i, sequence, i == size - 1);
      decode();
    }
  }
};

void print_rates(const std::vector<double>& rates) {
  for (size_t i = 1; i < rates.size(); i++) std::printf("%s%.4f", i == 1 ? "{\"rates\":[" : ",", rates[i]);
  std::puts("]}");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) fail("five arguments are expected");
  const int num_threads = std::atoi(argv[3]);
  const int num_windows = read_number(), window_steps = read_number();
  std::vector<std::vector<int>> prompts(read_number());
  size_t longest = 0;
  for (std::vector<int>& prompt : prompts) {
    prompt.resize(read_number());
    for (int& token : prompt) token = read_number();
    longest = std::max(longest, prompt.size());
  }
  const bool is_decode = num_windows > 0;
  const int num_sequences = is_decode ? static_cast<int>(prompts.size()) : 1;
  const int ubatch = std::max(std::atoi(argv[4]), num_sequences);

  llama_log_set(print_warnings, nullptr);
  ggml_backend_load_all_from_path(argv[2]);
  llama_backend_init();
  llama_model* model = llama_model_load_from_file(argv[1], llama_model_default_params());
  if (!model) fail("the model could not be loaded");
  llama_context_params params = llama_context_default_params();
  params.n_ctx = static_cast<uint32_t>((longest + num_windows * window_steps + 255) / 256 * 256 * num_sequences);
  params.n_batch = params.n_ubatch = static_cast<uint32_t>(ubatch);
  params.n_seq_max = static_cast<uint32_t>(num_sequences);
  params.n_threads = params.n_threads_batch = num_threads;
  params.flash_attn_type = std::atoi(argv[5]) ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
  params.kv_unified = false;
  params.no_perf = true;
  llama_context* context = llama_init_from_model(model, params);
  if (!context) fail("no context");
  attach_threads(context, num_threads);
  Runner run{context, llama_batch_init(ubatch, 0, 1), ubatch};

  std::vector<double> rates;
  if (!is_decode) {
    for (const std::vector<int>& prompt : prompts) {
      llama_memory_clear(llama_get_memory(context), true);
      const double started = seconds();
      run.prefill(prompt, 0);
      rates.push_back(static_cast<double>(prompt.size()) / (seconds() - started));
    }
  }
  for (int s = 0; is_decode && s < num_sequences; s++) run.prefill(prompts[s], s);
  for (int window = 0, step = 0; window < num_windows; window++) {
    const double started = seconds();
    for (int i = 0; i < window_steps; i++, step++) {
      for (int s = 0; s < num_sequences; s++) {
        const int size = static_cast<int>(prompts[s].size());
        run.add(prompts[s][step % size], size + step, s, true);
      }
      run.decode();
    }
    rates.push_back(num_sequences * window_steps / (seconds() - started));
  }
  print_rates(rates);
  return 0;
}
