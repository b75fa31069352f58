#include "parse.h"

#include <algorithm>
#include <cmath>

namespace pagoda {

WeightSource parse_weight(const Object& object) {
  WeightSource source;
  source.name = object.string("name");
  source.rows = object.int32("rows", 1);
  source.cols = object.int32("cols", 1);
  source.num_parts = object.int32("numParts", 1);
  source.format = static_cast<Format>(object.int32("format", 0, kNumFormats - 1));
  source.is_vector = object.boolean("isVector");
  if (object.has("values")) {
    const Span<float> values = object.floats("values");
    source.values.assign(values.data, values.data + values.length);
    return source;
  }
  object.for_each("pieces", [&](const Object& piece) {
    SourcePiece p;
    p.file = piece.string("file");
    p.offset = static_cast<uint64_t>(piece.integer("offset", 0, int64_t{1} << 53));
    p.row_bytes = static_cast<uint64_t>(piece.integer("rowBytes", 1, int64_t{1} << 40));
    p.num_rows = piece.int32("numRows", 1);
    source.pieces.push_back(std::move(p));
  });
  return source;
}

static MoeSpec parse_moe(const Object& o) {
  MoeSpec moe;
  moe.router = o.int32("router", 0);
  moe.gate = o.int32("gate", 0);
  moe.up = o.int32("up", 0);
  moe.down = o.int32("down", 0);
  moe.num_experts = o.int32("numExperts", 1);
  moe.top_k = o.int32("topK", 1);
  moe.expert_cols = o.int32("expertCols", 1);
  moe.renormalise = o.boolean("renormalise");
  moe.shared_cols = o.int32_or("sharedCols", 0, 0);
  moe.shared_gate = o.int32_or("sharedGate", -1);
  moe.shared_up = o.int32_or("sharedUp", -1);
  moe.shared_down = o.int32_or("sharedDown", -1);
  moe.shared_gate_weight = o.int32_or("sharedGateWeight", -1);
  return moe;
}

static Op parse_op(const Object& o) {
  Op op;
  op.kind = static_cast<OpKind>(o.int32("kind", 0, kNumOpKinds - 1));
  op.phase = o.int32("phase", 0);
  op.in = o.int32_or("in", -1);
  op.in2 = o.int32_or("in2", -1);
  op.out = o.int32_or("out", -1);
  op.q = o.int32_or("q", -1);
  op.weight = o.int32_or("weight", -1);
  op.bias = o.int32_or("bias", -1);
  op.cols = o.int32_or("cols", 0, 0);
  op.group_cols = o.int32_or("groupCols", 0, 0);
  op.num_heads = o.int32_or("numHeads", 0, 0);
  op.head_dim = o.int32_or("headDim", 0, 0);
  op.rotary_dim = o.int32_or("rotaryDim", 0, 0);
  op.table = o.int32_or("table", -1);
  op.layer = o.int32_or("layer", -1);
  op.offset = o.int32_or("offset", 0, 0);
  op.interleaved = o.boolean_or("interleaved", false);
  op.accumulate = o.boolean_or("accumulate", false);
  op.activation = static_cast<ActivationKind>(o.has("activation") ? o.int32("activation", 0, 3) : 0);
  op.scale = static_cast<float>(o.number_or("scale", 1));
  op.eps = static_cast<float>(o.number_or("eps", 0));
  op.cap = static_cast<float>(o.number_or("cap", 0));
  if (o.has("moe")) op.moe = parse_moe(o.object("moe"));
  return op;
}

Plan parse_plan(const Object& object) {
  Plan plan;
  const Object limits = object.object("limits");
  plan.limits.max_tokens = limits.int32("maxTokens", 1, 1 << 20);
  plan.limits.max_seqs = limits.int32("maxSeqs", 1, 1 << 16);
  plan.limits.max_model_len = limits.int32("maxModelLen", 1, 1 << 28);
  plan.limits.logit_rows = limits.int32("logitRows", 1, 1 << 16);
  const Object kv = object.object("kv");
  plan.kv.num_kv_heads = kv.int32("numKvHeads", 1);
  plan.kv.head_dim = kv.int32("headDim", 1);
  plan.kv.block_size = kv.int32("blockSize", 1);
  plan.kv.layers_per_group = kv.int32("layersPerGroup", 1);
  plan.kv.type = static_cast<KvType>(kv.int32("type", 0, 3));
  for (int32_t window : kv.int32_vector("windows")) plan.kv.groups.push_back({std::max(window, 0)});
  plan.kv.layer_group = kv.int32_vector("layerGroup");
  plan.kv.layer_index = kv.int32_vector("layerIndex");
  plan.vocab_size = object.int32("vocabSize", 1);
  plan.int8 = object.boolean("int8");
  object.for_each("buffers", [&](const Object& b) { plan.buffers.push_back({b.boolean("perLogitRow"), static_cast<RowForm>(b.int32("form", 0, 2)), b.int32("cols", 1)}); });
  object.for_each("tables", [&](const Object& t) {
    const Span<double> frequencies = t.doubles("inverseFrequencies");
    plan.tables.push_back({std::vector<double>(frequencies.data, frequencies.data + frequencies.length), t.number("magnitude")});
  });
  object.for_each("ops", [&](const Object& o) { plan.ops.push_back(parse_op(o)); });
  return plan;
}

static void check_ids(const std::vector<int32_t>& ids, int32_t vocab_size, const char* what) {
  for (int32_t id : ids) {
    if (id < 0 || id >= vocab_size) throw InvalidArgument(std::string(what) + " holds token " + std::to_string(id) + ", the vocabulary has " + std::to_string(vocab_size));
  }
}

static double finite(const Object& o, const char* name, double low, double high) {
  const double value = o.number(name);
  if (!(value >= low && value <= high)) throw InvalidArgument(std::string(name) + " is out of range");
  return value;
}

static SamplingSpec parse_sampling(const Object& o, int32_t vocab_size) {
  SamplingSpec s;
  s.temperature = finite(o, "temperature", 0, 1e6);
  s.top_k = o.int32("topK", 0);
  s.top_p = finite(o, "topP", 0, 1);
  s.min_p = finite(o, "minP", 0, 1);
  s.repetition_penalty = finite(o, "repetitionPenalty", 1e-6, 1e6);
  s.presence_penalty = finite(o, "presencePenalty", -1e6, 1e6);
  s.frequency_penalty = finite(o, "frequencyPenalty", -1e6, 1e6);
  s.min_tokens = o.int32("minTokens", 0);
  s.seed = o.uint64("seed");
  s.num_logprobs = o.int32("numLogprobs", -2);
  s.num_prompt_logprobs = o.int32("numPromptLogprobs", -2);
  const std::vector<int32_t> bias_ids = o.int32_vector("biasIds");
  const Span<double> bias_values = o.doubles("biasValues");
  if (bias_values.length != bias_ids.size()) throw InvalidArgument("biasIds and biasValues differ in length");
  check_ids(bias_ids, vocab_size, "logit bias");
  for (size_t i = 0; i < bias_ids.size(); i++) s.logit_bias.emplace_back(bias_ids[i], bias_values.data[i]);
  s.has_allowed = o.has("allowedIds");
  if (s.has_allowed) {
    s.allowed = o.int32_vector("allowedIds");
    check_ids(s.allowed, vocab_size, "allowed tokens");
    std::sort(s.allowed.begin(), s.allowed.end());
  }
  const std::vector<int32_t> bad = o.int32_vector("badWords"), starts = o.int32_vector("badWordStarts");
  check_ids(bad, vocab_size, "bad words");
  for (size_t i = 0; i + 1 < starts.size(); i++) {
    if (starts[i] < 0 || starts[i + 1] <= starts[i] || starts[i + 1] > static_cast<int32_t>(bad.size())) throw InvalidArgument("badWordStarts is out of order");
    s.bad_words.emplace_back(bad.begin() + starts[i], bad.begin() + starts[i + 1]);
  }
  s.end_tokens = o.int32_vector("endTokens");
  check_ids(s.end_tokens, vocab_size, "end tokens");
  return s;
}

SlotInit parse_sequence(const Object& object, const Plan& plan) {
  SlotInit init;
  init.slot = object.int32("slot", 0, plan.limits.max_seqs - 1);
  init.tokens = object.int32_vector("tokenIds");
  if (init.tokens.empty()) throw InvalidArgument("a sequence needs at least one token");
  check_ids(init.tokens, plan.vocab_size, "tokenIds");
  init.num_prompt_tokens = object.int32("numPromptTokens", 0, static_cast<int32_t>(init.tokens.size()));
  init.sampling = parse_sampling(object.object("sampling"), plan.vocab_size);
  return init;
}

static void require(bool ok, const std::string& what) {
  if (!ok) throw InvalidArgument("step: " + what);
}

static void check_table(const StepInput& in, const Plan& plan, int64_t num_blocks, int32_t s, int32_t g) {
  const int32_t num_groups = static_cast<int32_t>(plan.kv.groups.size());
  const int32_t first = in.block_table_start[s * num_groups + g], last = in.block_table_start[s * num_groups + g + 1];
  const int64_t end = static_cast<int64_t>(in.num_computed[s]) + in.token_start[s + 1] - in.token_start[s];
  require(static_cast<int64_t>(last - first) * plan.kv.block_size >= end, "a block table is too short for its sequence");
  for (int32_t i = first; i < last; i++) require(in.block_tables[i] >= 0 && in.block_tables[i] < num_blocks, "a block id is outside the pool");
}

void parse_batch(Arguments& arguments, const Plan& plan, int64_t num_blocks, StepInput* in) {
  const int32_t num_seqs = arguments.next_int32("numSeqs", 1, plan.limits.max_seqs);
  const int32_t num_tokens = arguments.next_int32("numTokens", 1, plan.limits.max_tokens);
  const size_t num_groups = plan.kv.groups.size();
  in->num_seqs = num_seqs;
  in->num_tokens = num_tokens;
  const auto copy = [&](const char* name, size_t count, std::vector<int32_t>* to) {
    const Span<int32_t> span = arguments.next_array<int32_t>(name);
    require(span.length >= count, std::string(name) + " is too short");
    to->assign(span.data, span.data + count);
  };
  const auto copy_bytes = [&](const char* name, std::vector<uint8_t>* to) {
    const Span<uint8_t> span = arguments.next_array<uint8_t>(name);
    require(span.length >= static_cast<size_t>(num_seqs), std::string(name) + " is too short");
    to->assign(span.data, span.data + num_seqs);
  };
  copy("tokenIds", num_tokens, &in->token_ids);
  copy("tokenStart", num_seqs + 1, &in->token_start);
  copy("numComputed", num_seqs, &in->num_computed);
  copy("slot", num_seqs, &in->slot);
  copy_bytes("logitRows", &in->logit_rows);
  copy_bytes("samples", &in->samples);
  copy("blockTableStart", num_seqs * num_groups + 1, &in->block_table_start);
  require(in->block_table_start[0] >= 0, "blockTableStart is out of order");
  for (size_t i = 0; i < num_seqs * num_groups; i++) require(in->block_table_start[i + 1] >= in->block_table_start[i], "blockTableStart is out of order");
  copy("blockTables", in->block_table_start[num_seqs * num_groups], &in->block_tables);

  require(in->token_start[0] == 0 && in->token_start[num_seqs] == num_tokens, "tokenStart does not cover the tokens");
  for (int32_t id : in->token_ids) require(id >= -1 && id < plan.vocab_size, "a token id is outside the vocabulary");
  std::vector<int32_t>& slots = in->sorted_slots;
  slots.assign(in->slot.begin(), in->slot.end());
  std::sort(slots.begin(), slots.end());
  require(slots.front() >= 0 && slots.back() < plan.limits.max_seqs, "a slot is out of range");
  require(std::adjacent_find(slots.begin(), slots.end()) == slots.end(), "a slot appears twice");
  for (int32_t s = 0; s < num_seqs; s++) {
    const int32_t count = in->token_start[s + 1] - in->token_start[s];
    require(count >= 1, "a sequence has no tokens");
    require(in->num_computed[s] >= 0 && in->num_computed[s] <= plan.limits.max_model_len - count, "a sequence is longer than max-model-len");
    require(in->logit_rows[s] <= 2, "logitRows is out of range");
    require(in->samples[s] <= count, "a sequence samples from more rows than it has");
    for (int32_t t = in->token_start[s + 1] - in->samples[s] + 1; t < in->token_start[s + 1]; t++) require(in->token_ids[t] >= 0, "a draft token is not known");
    for (size_t g = 0; g < num_groups; g++) check_table(*in, plan, num_blocks, s, static_cast<int32_t>(g));
  }
}

}  // namespace pagoda
