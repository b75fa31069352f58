#include "step-arrays.h"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace pagoda {
namespace {

// What JavaScript's arrays must have room for.
struct StepCounts {
  size_t top = 0, prompt_rows = 0, prompt_top = 0;
  explicit StepCounts(const Step& step) : prompt_rows(step.out.num_prompt_rows) {
    for (int32_t r = 0; r < step.out.row_start[step.in.num_seqs]; r++) top += step.out.rows[r].top_tokens.size();
    for (size_t r = 0; r < prompt_rows; r++) prompt_top += step.out.prompt_rows[r].top_tokens.size();
  }
};

void read_counts(const Step& step, const StepCounts& counts, Span<double> to) {
  const StepTimes& times = step.out.times;
  const double values[9] = {static_cast<double>(counts.top), static_cast<double>(counts.prompt_rows), static_cast<double>(counts.prompt_top), times.total, times.attention, times.linear, times.sampling, times.rows, times.serial};
  if (to.length < std::size(values)) throw InvalidArgument("counts is too short");
  std::memcpy(to.data, values, sizeof(values));
}

struct SampledArrays {
  Span<int32_t> tokens;
  Span<float> logprobs;
  Span<int32_t> ranks;
  Span<uint8_t> faults;
  Span<int32_t> top_start, top_tokens;
  Span<float> top_logprobs;
};

struct PromptArrays {
  Span<int32_t> fields;
  Span<float> logprobs;
  Span<int32_t> top_tokens;
  Span<float> top_logprobs;
};

void read_sampled_rows(const Step& step, const SampledArrays& to) {
  const size_t seqs = step.in.num_seqs, rows = step.out.row_start[seqs];
  if (std::min({to.tokens.length, to.logprobs.length, to.ranks.length}) < rows || to.top_start.length < rows + 1 || to.faults.length < seqs) throw InvalidArgument("arrays of sampled rows are too short");
  std::memcpy(to.faults.data, step.out.faults.data(), seqs);
  int32_t at = 0;
  for (size_t r = 0; r < rows; r++) {
    const SampledRow& row = step.out.rows[r];
    to.tokens.data[r] = row.token;
    to.logprobs.data[r] = row.logprob;
    to.ranks.data[r] = row.rank;
    to.top_start.data[r] = at;
    for (size_t i = 0; i < row.top_tokens.size(); i++, at++) {
      to.top_tokens.data[at] = row.top_tokens[i];
      to.top_logprobs.data[at] = row.top_logprobs[i];
    }
  }
  to.top_start.data[rows] = at;
}

void read_prompt_rows(const Step& step, const PromptArrays& to) {
  size_t at = 0;
  for (size_t r = 0; r < step.out.num_prompt_rows; r++) {
    const PromptRow& row = step.out.prompt_rows[r];
    const int32_t values[5] = {row.seq, row.position, row.token, row.rank, static_cast<int32_t>(row.top_tokens.size())};
    std::memcpy(to.fields.data + r * 5, values, sizeof(values));
    to.logprobs.data[r] = row.logprob;
    for (size_t i = 0; i < row.top_tokens.size(); i++, at++) {
      to.top_tokens.data[at] = row.top_tokens[i];
      to.top_logprobs.data[at] = row.top_logprobs[i];
    }
  }
}

}  // namespace

bool fill_arrays(const Step& step, Arguments& arguments) {
  const StepCounts counts(step);
  read_counts(step, counts, arguments.next_array<double>("counts"));
  SampledArrays sampled;
  sampled.tokens = arguments.next_array<int32_t>("sampledTokens");
  sampled.logprobs = arguments.next_array<float>("sampledLogprobs");
  sampled.ranks = arguments.next_array<int32_t>("sampledRanks");
  sampled.faults = arguments.next_array<uint8_t>("faults");
  sampled.top_start = arguments.next_array<int32_t>("topStart");
  sampled.top_tokens = arguments.next_array<int32_t>("topTokens");
  sampled.top_logprobs = arguments.next_array<float>("topLogprobs");
  bool fits = std::min(sampled.top_tokens.length, sampled.top_logprobs.length) >= counts.top;
  PromptArrays prompt{};
  if (counts.prompt_rows > 0) {
    prompt.fields = arguments.next_array<int32_t>("promptFields");
    prompt.logprobs = arguments.next_array<float>("promptLogprobs");
    prompt.top_tokens = arguments.next_array<int32_t>("promptTopTokens");
    prompt.top_logprobs = arguments.next_array<float>("promptTopLogprobs");
    fits = fits && prompt.fields.length >= counts.prompt_rows * 5 && prompt.logprobs.length >= counts.prompt_rows && std::min(prompt.top_tokens.length, prompt.top_logprobs.length) >= counts.prompt_top;
  }
  if (!fits) return false;
  read_sampled_rows(step, sampled);
  read_prompt_rows(step, prompt);
  return true;
}

}  // namespace pagoda
