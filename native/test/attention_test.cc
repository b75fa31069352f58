// Paged attention against a plain double-precision loop, and promise P1 at the kernel's level: the bits of a row do not depend on
// chunking, block size, the rows beside it, or on whether segments were merged from parts. Every instruction set of this CPU.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "ops/attention.h"
#include "runtime/cpu-features.h"
#include "runtime/memory.h"

using namespace pagoda;

namespace {

int num_failures = 0;

void expect(bool ok, const char* what, const char* isa) {
  if (ok) return;
  std::printf("FAILED %s: %s\n", isa, what);
  num_failures++;
}

struct Case {
  int32_t head_dim, num_kv_heads, group, length, window;
  float softcap;
  KvType type;
};

// One layer's cache of one sequence, blocks in a scrambled order, garbage (NaN) where nothing was written.
struct Cache {
  int32_t block_size, num_blocks;
  size_t head_bytes, block_bytes;
  AlignedBuffer pool;
  std::vector<int32_t> table;

  Cache(const Case& c, int32_t block) : block_size(block) {
    num_blocks = (c.length + block - 1) / block;
    const size_t element = c.type == KvType::F32 ? 4 : c.type == KvType::Int8 ? 1 : 2;
    head_bytes = 2 * block * (c.head_dim * element + (c.type == KvType::Int8 ? 4 : 0));
    block_bytes = head_bytes * c.num_kv_heads;
    pool = AlignedBuffer(block_bytes * num_blocks + 64);
    std::memset(pool.data(), 0xff, block_bytes * num_blocks + 64);
    for (int32_t i = 0; i < num_blocks; i++) table.push_back(num_blocks - 1 - i);
  }
};

struct Data {
  std::vector<float> q, k, v;
};

Data random_data(const Case& c, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Data d;
  d.q.resize(static_cast<size_t>(c.length) * c.num_kv_heads * c.group * c.head_dim);
  d.k.resize(static_cast<size_t>(c.length) * c.num_kv_heads * c.head_dim);
  d.v.resize(d.k.size());
  for (float& x : d.q) x = normal(random);
  for (float& x : d.k) x = normal(random);
  for (float& x : d.v) x = normal(random);
  return d;
}

void write_all(const Kernels& kernels, const Case& c, const Data& d, Cache* cache, int32_t first, int32_t last) {
  const int32_t width = c.num_kv_heads * c.head_dim;
  for (int32_t t = first; t < last; t++) {
    uint8_t* block = cache->pool.data() + cache->block_bytes * cache->table[t / cache->block_size];
    kernels.kv_write(block, cache->block_size, t % cache->block_size, d.k.data() + static_cast<size_t>(t) * width, d.v.data() + static_cast<size_t>(t) * width, c.num_kv_heads, c.head_dim, c.type);
  }
}

AttentionArgs arguments(const Case& c, const Data& d, const Cache& cache, int32_t first, int32_t count, int32_t kv_head, std::vector<float>* out, float* scratch) {
  const size_t width = static_cast<size_t>(c.num_kv_heads) * c.group * c.head_dim;
  AttentionArgs args{};
  args.q = d.q.data() + first * width + static_cast<size_t>(kv_head) * c.group * c.head_dim;
  args.q_stride = width;
  args.out = out->data() + first * width + static_cast<size_t>(kv_head) * c.group * c.head_dim;
  args.out_stride = width;
  args.num_tokens = count;
  args.group = c.group;
  args.head_dim = c.head_dim;
  args.position = first;
  args.window = c.window;
  args.scale = 0.3f;
  args.softcap = c.softcap;
  args.block_table = cache.table.data();
  args.kv = cache.pool.data() + cache.head_bytes * kv_head;
  args.block_bytes = cache.block_bytes;
  args.block_size = cache.block_size;
  args.type = c.type;
  args.scratch = scratch;
  return args;
}

// Runs the whole sequence in chunks, writing each chunk before it attends.
std::vector<float> run(const Kernels& kernels, const Case& c, const Data& d, int32_t block_size, int32_t chunk, bool split) {
  Cache cache(c, block_size);
  std::vector<float> out(d.q.size(), -1.0f);
  AlignedBuffer scratch(attention_scratch_floats(c.group, c.head_dim) * sizeof(float));
  const size_t stride = attention_partial_floats(c.head_dim);
  for (int32_t first = 0; first < c.length; first += chunk) {
    const int32_t count = std::min(chunk, c.length - first);
    write_all(kernels, c, d, &cache, first, first + count);
    const int32_t tile = std::max(1, kAttentionRows / c.group);
    for (int32_t t = first; t < first + count; t += tile) {
      const int32_t tokens = std::min(tile, first + count - t);
      for (int32_t h = 0; h < c.num_kv_heads; h++) {
        AttentionArgs args = arguments(c, d, cache, t, tokens, h, &out, scratch.floats());
        if (!split) {
          kernels.attention(&args);
          continue;
        }
        const int32_t low = c.window > 0 ? std::max(0, t - c.window + 1) : 0;
        const int32_t begin = low / kAttentionSegment, end = (t + tokens - 1) / kAttentionSegment + 1;
        AlignedBuffer partial(stride * tokens * c.group * (end - begin) * sizeof(float));
        args.partial_stride = stride;
        for (int32_t s = end - 1; s >= begin; s--) {
          args.partial = partial.floats() + stride * tokens * c.group * (s - begin);
          args.segment_begin = s;
          args.segment_end = s + 1;
          kernels.attention(&args);
        }
        args.partial = partial.floats();
        kernels.merge_attention(&args, end - begin);
      }
    }
  }
  return out;
}

// Largest error relative to 1 of a few rows against exact arithmetic on the unrounded keys and values.
double error_of(const Case& c, const Data& d, const std::vector<float>& out) {
  double worst = 0;
  const int32_t heads = c.num_kv_heads * c.group;
  for (int32_t t = c.length - 1; t >= 0; t -= std::max(1, c.length / 7)) {
    for (int32_t h = 0; h < heads; h++) {
      const float* q = d.q.data() + (static_cast<size_t>(t) * heads + h) * c.head_dim;
      const int32_t first = c.window > 0 ? std::max(0, t - c.window + 1) : 0;
      std::vector<double> s;
      double max = -1e300, sum = 0;
      for (int32_t j = first; j <= t; j++) {
        const float* k = d.k.data() + (static_cast<size_t>(j) * c.num_kv_heads + h / c.group) * c.head_dim;
        double dot = 0;
        for (int32_t i = 0; i < c.head_dim; i++) dot += static_cast<double>(q[i]) * k[i];
        dot *= 0.3f;
        if (c.softcap > 0) dot = c.softcap * std::tanh(dot / c.softcap);
        s.push_back(dot);
        max = std::max(max, dot);
      }
      for (double& x : s) sum += x = std::exp(x - max);
      for (int32_t i = 0; i < c.head_dim; i++) {
        double value = 0;
        for (int32_t j = first; j <= t; j++) value += s[j - first] / sum * d.v[(static_cast<size_t>(j) * c.num_kv_heads + h / c.group) * c.head_dim + i];
        worst = std::max(worst, std::abs(value - out[(static_cast<size_t>(t) * heads + h) * c.head_dim + i]));
      }
    }
  }
  return worst;
}

bool same(const std::vector<float>& a, const std::vector<float>& b) { return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0; }

void test_case(const Kernels& kernels, const Case& c, uint32_t seed) {
  const Data d = random_data(c, seed);
  const std::vector<float> whole = run(kernels, c, d, 16, c.length, false);
  // Rounding of the cache: 2^-9 of bf16, 2^-12 of f16, 1/254 of the largest value of int8, on scores and on values.
  const double tolerance = c.type == KvType::F32 ? 1e-5 : c.type == KvType::F16 ? 1.2e-2 : 8e-2;
  const double error = error_of(c, d, whole);
  if (!(error < tolerance)) std::printf("head_dim %d group %d length %d window %d type %d: error %g\n", c.head_dim, c.group, c.length, c.window, static_cast<int>(c.type), error);
  expect(error < tolerance, "attention is near exact arithmetic", kernels.isa);
  expect(same(whole, run(kernels, c, d, 32, 1, false)), "one token at a time gives the same bits", kernels.isa);
  expect(same(whole, run(kernels, c, d, 64, 37, false)), "chunks of 37 and blocks of 64 give the same bits", kernels.isa);
  expect(same(whole, run(kernels, c, d, 16, 50, true)), "merged segments give the same bits", kernels.isa);
}

// Tokens that share a segment, taken together, have the partial results that each has alone.
void test_shared_segment(const Kernels& kernels, const Case& c, uint32_t seed) {
  const Data d = random_data(c, seed);
  Cache cache(c, 16);
  write_all(kernels, c, d, &cache, 0, c.length);
  std::vector<float> out(d.q.size());
  AlignedBuffer scratch(attention_scratch_floats(c.group, c.head_dim) * sizeof(float));
  const size_t stride = attention_partial_floats(c.head_dim), rows_floats = stride * c.group;
  const std::vector<int32_t> tokens = {kAttentionSegment, c.length - 1, kAttentionSegment + 37};
  const int32_t count = static_cast<int32_t>(tokens.size());
  AlignedBuffer together(2 * count * rows_floats * sizeof(float)), alone(rows_floats * sizeof(float));
  std::vector<AttentionMember> members;
  for (int32_t i = 0; i < count; i++) members.push_back({tokens[i] - tokens[0], static_cast<int64_t>(2 * (count - 1 - i) * rows_floats)});
  for (int32_t h = 0; h < c.num_kv_heads; h++) {
    AttentionArgs args = arguments(c, d, cache, tokens[0], count, h, &out, scratch.floats());
    args.segment_end = 1;
    args.partial_stride = stride;
    args.partial = together.floats();
    args.members = members.data();
    kernels.attention(&args);
    for (int32_t i = 0; i < count; i++) {
      AttentionArgs own = arguments(c, d, cache, tokens[i], 1, h, &out, scratch.floats());
      own.segment_end = 1;
      own.partial_stride = stride;
      own.partial = alone.floats();
      kernels.attention(&own);
      for (int32_t g = 0; g < c.group; g++) {
        const float *a = together.floats() + members[i].partial + g * stride, *b = alone.floats() + g * stride;
        expect(std::memcmp(a, b, 2 * sizeof(float)) == 0 && std::memcmp(a + 16, b + 16, c.head_dim * sizeof(float)) == 0, "a shared segment gives each token the bits it has alone", kernels.isa);
      }
    }
  }
}

// exp in double precision must have the same bits everywhere: the sampler rests on it.
void test_exact_weights(const Kernels& kernels, const Kernels& other) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> uniform(-30, 0);
  std::vector<double> x(1003), a(x.size()), b(x.size());
  for (double& value : x) value = uniform(random);
  x[5] = -INFINITY;
  x[6] = -708.5;
  x[7] = -707.9;
  x[8] = 0;
  kernels.exact_weights(x.data(), static_cast<int32_t>(x.size()), 0, 0.7, a.data());
  other.exact_weights(x.data(), static_cast<int32_t>(x.size()), 0, 0.7, b.data());
  expect(std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0, "exact weights agree between instruction sets", kernels.isa);
  expect(a[5] == 0 && a[8] == 1, "exact weights of -infinity and 0", kernels.isa);
  for (size_t i = 9; i < x.size(); i++) {
    if (std::abs(a[i] - std::exp(x[i] / 0.7)) > 1e-13 * std::exp(x[i] / 0.7)) return expect(false, "exact weights are near exp", kernels.isa);
  }
  // Sums of chunks: eight lanes in order of id, whatever the width of a vector.
  const std::vector<float> logits(x.begin(), x.end());
  const std::vector<double> wide(logits.begin(), logits.end());
  kernels.exact_weights(wide.data(), static_cast<int32_t>(wide.size()), 0, 0.7, a.data());
  std::vector<double> sums((x.size() + kWeightChunk - 1) / kWeightChunk);
  kernels.weight_sums(logits.data(), static_cast<int32_t>(logits.size()), 0, 0.7, sums.data());
  for (size_t chunk = 0; chunk < sums.size(); chunk++) {
    double lanes[8] = {};
    for (size_t i = chunk * kWeightChunk; i < std::min(x.size(), (chunk + 1) * kWeightChunk); i++) lanes[i % 8] += a[i];
    const double sum = ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
    if (sums[chunk] != sum) return expect(false, "sums of weights have the bits of their definition", kernels.isa);
  }
}

}  // namespace

int main() {
  for (const std::string& isa : usable_isas()) {
    const Kernels& kernels = *choose_kernels(isa);
    uint32_t seed = 1;
    for (KvType type : {KvType::F32, KvType::F16, KvType::BF16, KvType::Int8}) {
      test_case(kernels, {64, 1, 3, 150, 0, 0, type}, seed++);
      test_case(kernels, {24, 2, 1, 70, 8, 0, type}, seed++);
      test_case(kernels, {16, 1, 9, 90, 65, 20, type}, seed++);
    }
    test_case(kernels, {32, 1, 2, 1100, 0, 0, KvType::F32}, seed++);
    test_case(kernels, {32, 1, 2, 1100, 600, 0, KvType::F16}, seed++);
    test_case(kernels, {256, 1, 50, 66, 0, 0, KvType::F16}, seed++);
    for (KvType type : {KvType::F32, KvType::F16, KvType::BF16, KvType::Int8}) test_shared_segment(kernels, {64, 2, 3, 700, 0, 0, type}, seed++);
    test_shared_segment(kernels, {24, 1, 7, 560, 0, 20, KvType::F16}, seed++);
    test_exact_weights(kernels, *kernels_portable());
  }
  std::printf(num_failures == 0 ? "attention: all passed\n" : "attention: %d failed\n", num_failures);
  return num_failures == 0 ? 0 : 1;
}
