// One step's input, copied from the ForwardBatch when it is queued, and its output, copied to JavaScript when it is done. All
// vectors keep their capacity, so a steady state allocates nothing.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace pagoda {

struct StepInput {
  int32_t num_seqs = 0, num_tokens = 0;
  std::vector<int32_t> token_ids;     // [T], -1 = the slot's last sampled token
  std::vector<int32_t> token_start;   // [S + 1]
  std::vector<int32_t> num_computed;  // [S]
  std::vector<int32_t> slot;          // [S]
  std::vector<uint8_t> logit_rows;    // [S] 0 none, 1 last, 2 all
  std::vector<uint8_t> samples;       // [S] how many of the last rows are sampled from; the tokens after the first of them are drafts
  std::vector<int32_t> block_tables;
  std::vector<int32_t> block_table_start;  // [S * G + 1]
  std::vector<int32_t> sorted_slots;       // [S] room to check them in
};

// Result of one row that was sampled from; token -1 = it was not.
struct SampledRow {
  int32_t token = -1;
  float logprob = 0;
  int32_t rank = 0;
  std::vector<int32_t> top_tokens;
  std::vector<float> top_logprobs;
};

struct PromptRow {
  int32_t seq = 0, position = 0, token = 0, rank = 0;
  float logprob = 0;
  std::vector<int32_t> top_tokens;
  std::vector<float> top_logprobs;
};

// Seconds. `rows`: what goes row by row (norms, rope, KV writes). `serial`: one thread works and the others wait. What is missing from the
// total is the time to wake the threads.
struct StepTimes {
  double total = 0, attention = 0, linear = 0, sampling = 0, rows = 0, serial = 0;
};

struct StepOutput {
  std::vector<int32_t> row_start;  // [S + 1] result rows of sequence s: max(1, samples) of them
  std::vector<SampledRow> rows;    // [R]
  std::vector<uint8_t> faults;     // [S]
  std::vector<PromptRow> prompt_rows;
  size_t num_prompt_rows = 0;
  StepTimes times;
  std::string error;  // not empty: the step failed as a whole
};

struct Step {
  StepInput in;
  StepOutput out;
};

}  // namespace pagoda
