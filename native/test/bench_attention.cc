// Paged attention: decode (one query token of sequences of 1,024 tokens, share of what plain reads of the same cache reach) and
// prefill (a chunk of 256 tokens on 1,024, share of the multiply-add peak, counting only products that are not masked).
#include <algorithm>
#include <cstring>
#include <random>

#include "bench_common.h"
#include "ops/attention.h"
#include "runtime/memory.h"

namespace pagoda::bench {
namespace {

constexpr int kHeadDim = 64, kBlockSize = 16, kTokens = 1024;
constexpr size_t kPoolBytes = size_t{256} << 20;  // far beyond the caches: as when a step goes through all layers

// Sequences of kTokens tokens whose blocks lie in random order in one pool.
struct Cache {
  int num_seqs, num_kv_heads, blocks_per_seq;
  size_t head_bytes, block_bytes;
  AlignedBuffer pool;
  std::vector<int32_t> table;

  Cache(const Kernels& kernels, KvType type, int seqs, int kv_heads, int tokens) : num_seqs(seqs), num_kv_heads(kv_heads), blocks_per_seq(tokens / kBlockSize) {
    const size_t element = type == KvType::F32 ? 4 : type == KvType::Int8 ? 1 : 2;
    head_bytes = 2 * kBlockSize * (kHeadDim * element + (type == KvType::Int8 ? 4 : 0));
    block_bytes = head_bytes * kv_heads;
    const int num_blocks = seqs * blocks_per_seq;
    pool = AlignedBuffer(block_bytes * num_blocks + 4096);
    std::mt19937 random(1);
    std::vector<float> values(2 * kHeadDim * kv_heads);
    for (int t = 0; t < kBlockSize; ++t) {
      for (float& v : values) v = static_cast<float>(random() % 2001) * 0.001f - 1.0f;
      kernels.kv_write(pool.data(), kBlockSize, t, values.data(), values.data() + kHeadDim * kv_heads, kv_heads, kHeadDim, type);
    }
    for (int b = 1; b < num_blocks; ++b) std::memcpy(pool.data() + block_bytes * b, pool.data(), block_bytes);
    for (int b = 0; b < num_blocks; ++b) table.push_back(b);
    std::shuffle(table.begin(), table.end(), random);
  }
  AttentionArgs args(int seq, int kv_head, int group, KvType type) const {
    AttentionArgs a = {};
    a.group = group;
    a.head_dim = kHeadDim;
    a.scale = 0.125f;
    a.block_table = table.data() + static_cast<size_t>(seq) * blocks_per_seq;
    a.kv = pool.data() + head_bytes * kv_head;
    a.block_bytes = block_bytes;
    a.block_size = kBlockSize;
    a.type = type;
    return a;
  }
};

const char* name_of(KvType type) { return type == KvType::F32 ? "kv f32" : type == KvType::F16 ? "kv f16" : type == KvType::BF16 ? "kv bf16" : "kv int8"; }
std::string shape_of(int group, int num_kv_heads) { return std::to_string(group * num_kv_heads) + "/" + std::to_string(num_kv_heads) + " heads"; }

std::vector<AlignedBuffer> scratches_of(int group, int threads) {
  std::vector<AlignedBuffer> scratches;
  for (int t = 0; t < threads; ++t) scratches.emplace_back(attention_scratch_floats(group, kHeadDim) * sizeof(float));
  return scratches;
}

}  // namespace

void bench_decode(const Kernels& kernels, KvType type, int group, int num_kv_heads, Team& team) {
  const size_t seq_bytes = 2 * static_cast<size_t>(kTokens) * num_kv_heads * kHeadDim * (type == KvType::F32 ? 4 : type == KvType::Int8 ? 1 : 2);
  const int num_seqs = static_cast<int>((kPoolBytes + seq_bytes - 1) / seq_bytes);
  const Cache cache(kernels, type, num_seqs, num_kv_heads, kTokens);
  const int threads = team.size();
  const auto scratches = scratches_of(group, threads);
  AlignedBuffer q(sizeof(float) * group * kHeadDim * (threads + 1));
  for (int i = 0; i < group * kHeadDim; ++i) q.floats()[i] = static_cast<float>(i * 37 % 101) * 0.02f - 1;
  // A window: all KV heads of one sequence per thread, so that each block is read whole.
  int next = 0;
  const double bytes = static_cast<double>(cache.block_bytes) * cache.blocks_per_seq * threads;
  const auto kernel = [&] {
    const int seq = next++ % (num_seqs / threads) * threads;
    return bytes * 1e-9 / team.run([&](int t) {
      for (int head = 0; head < num_kv_heads; ++head) {
        AttentionArgs a = cache.args(seq + t, head, group, type);
        a.q = q.floats();
        a.out = q.floats() + (t + 1) * group * kHeadDim;
        a.num_tokens = 1;
        a.position = kTokens - 1;
        a.scratch = scratches[t].floats();
        kernels.attention(&a);
      }
    });
  };
  std::atomic<uint64_t> sink{0};
  const auto stream = [&] {
    const int seq = next++ % (num_seqs / threads) * threads;
    const size_t part = cache.block_bytes * cache.blocks_per_seq;
    return bytes * 1e-9 / team.run([&](int t) { sink.fetch_xor(read_bytes(cache.pool.data() + part * (seq + t), part)); });
  };
  // Held against the stream where reading is the limit: a wide group takes `group / 2` multiply-adds per byte of a 16-bit cache, which for
  // seven heads, and on AVX2 for four, is more than a core does while it reads.
  const std::string isa = kernels.isa;
  const bool counts = isa != "portable" && type != KvType::Int8 && group <= (isa == "avx2" ? 3 : 4);
  measure({"decode", kernels.isa, name_of(type), shape_of(group, num_kv_heads), 1, threads, "GB/s", "stream", counts ? 0.70 : 0}, kernel, stream);
}

void bench_prefill(const Kernels& kernels, KvType type, int group, int num_kv_heads, Team& team) {
  constexpr int kChunk = 256;
  const Cache cache(kernels, type, 1, num_kv_heads, kTokens + kChunk);
  const int threads = team.size(), tokens = std::max(1, kAttentionRows / group), num_items = kChunk / tokens;
  const auto scratches = scratches_of(group, threads);
  const size_t stride = static_cast<size_t>(group) * num_kv_heads * kHeadDim;
  AlignedBuffer q(sizeof(float) * stride * kChunk), out(sizeof(float) * stride * kChunk);
  for (size_t i = 0; i < stride * kChunk; ++i) q.floats()[i] = static_cast<float>(i * 37 % 101) * 0.02f - 1;
  int next = 0;
  const auto kernel = [&] {
    constexpr int kItems = 4;  // per thread
    const int first = next++;
    double macs = 0;
    const auto token_of = [&](int t, int i) { return (first + t * kItems + i) % num_items * tokens; };
    for (int t = 0; t < threads; ++t) {
      for (int i = 0; i < kItems; ++i) {
        for (int k = 0; k < tokens; ++k) macs += 2.0 * kHeadDim * group * (kTokens + token_of(t, i) + k + 1);
      }
    }
    return macs * 1e-9 / team.run([&](int t) {
      for (int i = 0; i < kItems; ++i) {
        const int head = (first + i) % num_kv_heads, token = token_of(t, i);
        AttentionArgs a = cache.args(0, head, group, type);
        a.q = q.floats() + token * stride + static_cast<size_t>(head) * group * kHeadDim;
        a.q_stride = stride;
        a.out = out.floats() + token * stride + static_cast<size_t>(head) * group * kHeadDim;
        a.out_stride = stride;
        a.num_tokens = tokens;
        a.position = kTokens + token;
        a.scratch = scratches[t].floats();
        kernels.attention(&a);
      }
    });
  };
  const Peak peak = peak_of(kernels.isa, PeakKind::Fma);
  measure({"prefill", kernels.isa, name_of(type), shape_of(group, num_kv_heads), kChunk, threads, "GMAC/s", peak.name, peak.name ? 0.65 : 0}, kernel, [&] { return peak.loop ? loop_rate(team, peak) : 0; });
}

}  // namespace pagoda::bench
