// The runtime without Node: barriers with more threads than cores, the cache of packed weights in all its broken forms, and steps that
// allocate nothing once they are warm. Run by `npm run test:native`. Prints "N passed, N failed".
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "runtime/checksum.h"
#include "runtime/device.h"
#include "runtime/packed-cache.h"
#include "runtime/thread-pool.h"
#include "test/checks.h"
#include "test/plans.h"

namespace {
std::atomic<long> num_allocations{0};

void* counted(size_t bytes) {
  num_allocations.fetch_add(1, std::memory_order_relaxed);
  void* p = malloc(bytes > 0 ? bytes : 1);
  if (!p) throw std::bad_alloc();
  return p;
}
}  // namespace

// Every allocation of C++ in this program.
void* operator new(size_t bytes) { return counted(bytes); }
void* operator new[](size_t bytes) { return counted(bytes); }
void operator delete(void* p) noexcept { free(p); }
void operator delete[](void* p) noexcept { free(p); }
void operator delete(void* p, size_t) noexcept { free(p); }
void operator delete[](void* p, size_t) noexcept { free(p); }

using namespace pagoda;
using namespace pagoda::test;

namespace {

uint8_t random_byte() { return static_cast<uint8_t>(random_bits() >> 23); }

// Runs a job on the pool's leader and waits for it.
void run_job(ThreadPool& pool, const std::function<void()>& job) {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  pool.submit([&] {
    job();
    std::lock_guard<std::mutex> lock(mutex);
    done = true;
    changed.notify_all();
  });
  std::unique_lock<std::mutex> lock(mutex);
  changed.wait(lock, [&] { return done; });
}

void test_oversubscription() {
  const int num_threads = 4 * static_cast<int>(std::max(1u, std::thread::hardware_concurrency())) + 3;
  ThreadPool pool(num_threads);
  constexpr int kRounds = 50, kBarriers = 20;
  std::atomic<int> early{0};
  std::vector<int> counts(num_threads * 16, 0);
  run_job(pool, [&] {
    for (int round = 0; round < kRounds; round++) {
      pool.parallel([&](int thread) {
        for (int i = 0; i < kBarriers; i++) {
          const int before = counts[thread * 16]++;
          pool.barrier(thread);
          // Behind the barrier everybody has counted.
          if (counts[(thread + 1) % num_threads * 16] < before + 1) early++;
          pool.barrier(thread);
        }
      });
    }
  });
  check(early.load() == 0, "a barrier lets nobody through early");
  bool all = true;
  for (int t = 0; t < num_threads; t++) all = all && counts[t * 16] == kRounds * kBarriers;
  check(all, "every one of " + std::to_string(num_threads) + " threads ran every round");
}

void test_job_order() {
  ThreadPool pool(1);
  std::vector<int> order;
  for (int i = 0; i < 500; i++) pool.submit([&order, i] { order.push_back(i); });
  run_job(pool, [] {});
  bool sorted = order.size() == 500;
  for (size_t i = 0; i < order.size(); i++) sorted = sorted && order[i] == static_cast<int>(i);
  check(sorted, "jobs run in the order of their submission");
}

void test_checksum() {
  // Published vectors of XXH64.
  check(checksum("", 0) == 0xEF46DB3751D8E999ull, "checksum of nothing");
  check(checksum("a", 1) == 0xD24EC4F1A98C6E5Bull, "checksum of a");
  check(checksum("abc", 3) == 0x44BC2CF5AD770999ull, "checksum of abc");
  const char text[] = "Nobody inspects the spammish repetition";
  check(checksum(text, sizeof(text) - 1) == 0xFBCEA83C8A378BF1ull, "checksum of a text with whole lanes");
}

// --- the cache ---

struct Folder {
  std::string path;
  Folder() {
    char name[] = "/tmp/pagoda-runtime-test-XXXXXX";
    path = mkdtemp(name);
  }
  ~Folder() {
    chmod(path.c_str(), 0700);
    for (const std::string& name : names()) unlink((path + "/" + name).c_str());
    rmdir(path.c_str());
  }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    DIR* dir = opendir(path.c_str());
    while (const dirent* item = readdir(dir)) if (item->d_name[0] != '.') found.emplace_back(item->d_name);
    closedir(dir);
    std::sort(found.begin(), found.end());
    return found;
  }
};

std::vector<uint8_t> read_all(const std::string& path) {
  std::vector<uint8_t> bytes;
  FILE* file = fopen(path.c_str(), "rb");
  if (!file) return bytes;
  fseek(file, 0, SEEK_END);
  bytes.resize(static_cast<size_t>(ftell(file)));
  rewind(file);
  if (fread(bytes.data(), 1, bytes.size(), file) != bytes.size()) bytes.clear();
  fclose(file);
  return bytes;
}
void write_all(const std::string& path, const std::vector<uint8_t>& bytes) {
  FILE* file = fopen(path.c_str(), "wb");
  fwrite(bytes.data(), 1, bytes.size(), file);
  fclose(file);
}

// The reason why the file cannot be used, or "".
std::string problem(const std::string& path, const std::string& header, std::vector<uint8_t>* content = nullptr) {
  ThreadPool pool(2);
  std::string reason;
  run_job(pool, [&] {
    try {
      size_t bytes = 0;
      const AlignedBuffer buffer = read_packed_cache(path, header, &pool, &bytes);
      if (content) content->assign(buffer.data(), buffer.data() + bytes);
    } catch (const UnusableCache& e) {
      reason = e.what();
    }
  });
  return reason;
}

void test_cache() {
  const Folder folder;
  const std::string path = folder.path + "/model.packed", header = "{\"which\":\"this one\"}";
  std::vector<uint8_t> first(5'000'000), second(64 * 1024);
  for (uint8_t& byte : first) byte = random_byte();
  for (uint8_t& byte : second) byte = random_byte();
  std::vector<uint8_t> both(first);
  both.insert(both.end(), second.begin(), second.end());
  const std::vector<ContentPart> parts = {{first.data(), first.size()}, {second.data(), second.size()}};
  const uint64_t no_limit = uint64_t{1} << 40;
  std::atomic<bool> cancelled{false};

  check(problem(path, header).find("cannot be opened") != std::string::npos, "no file");
  check(write_packed_cache(path, header, parts, no_limit, cancelled) == CacheWrite::Written, "written");
  check((folder.names() == std::vector<std::string>{"lock", "model.packed"}), "nothing else is left");
  std::vector<uint8_t> content;
  check(problem(path, header, &content).empty() && content == both, "the content comes back");
  check(read_packed_header(path) == header, "the header comes back");
  check(problem(path, header + " ") == "it belongs to something else", "another header");

  const std::vector<uint8_t> good = read_all(path);
  const auto damaged = [&](const std::string& what, const std::function<void(std::vector<uint8_t>&)>& change) {
    std::vector<uint8_t> bytes(good);
    change(bytes);
    write_all(path, bytes);
    check(!problem(path, header).empty(), what + " is noticed");
  };
  for (size_t at : {size_t{0}, size_t{9}, size_t{20}, size_t{30}, size_t{60}, size_t{70}, size_t{4096}, size_t{4096 + 4'999'999}, good.size() - 20, good.size() - 1}) {
    damaged("a wrong bit in byte " + std::to_string(at), [&](std::vector<uint8_t>& b) { b[at] ^= 4; });
  }
  damaged("another version", [](std::vector<uint8_t>& b) {
    b[8]++;
    const uint64_t sum = checksum(b.data(), 56);
    memcpy(b.data() + 56, &sum, 8);
  });
  damaged("an impossible size", [](std::vector<uint8_t>& b) {
    const uint64_t huge = uint64_t{1} << 62;
    memcpy(b.data() + 24, &huge, 8);
    const uint64_t sum = checksum(b.data(), 56);
    memcpy(b.data() + 56, &sum, 8);
  });
  for (size_t length : {size_t{0}, size_t{10}, size_t{64}, size_t{5000}, good.size() / 2, good.size() - 1}) {
    damaged("a file cut to " + std::to_string(length), [&](std::vector<uint8_t>& b) { b.resize(length); });
  }
  damaged("a longer file", [](std::vector<uint8_t>& b) { b.push_back(0); });

  // A broken file is simply replaced; what a dead writer left is cleared away.
  write_all(folder.path + "/dead.packed.tmp", {1, 2, 3});
  check(write_packed_cache(path, header, parts, no_limit, cancelled) == CacheWrite::Written && problem(path, header).empty(), "written again");
  check((folder.names() == std::vector<std::string>{"lock", "model.packed"}), "leftovers are cleared");

  cancelled.store(true);
  check(write_packed_cache(folder.path + "/other.packed", header, parts, no_limit, cancelled) == CacheWrite::Cancelled, "cancelled");
  cancelled.store(false);
  check((folder.names() == std::vector<std::string>{"lock", "model.packed"}), "a cancelled file leaves nothing");

  // The least recently used go when there is too little room.
  const auto set_time = [&](const std::string& name, time_t time) {
    const struct timespec times[2] = {{time, 0}, {time, 0}};
    utimensat(AT_FDCWD, (folder.path + "/" + name).c_str(), times, 0);
  };
  check(write_packed_cache(folder.path + "/b.packed", header, parts, no_limit, cancelled) == CacheWrite::Written, "a second file");
  set_time("model.packed", 2000);
  set_time("b.packed", 1000);
  check(write_packed_cache(folder.path + "/c.packed", header, parts, 2 * good.size() + 100, cancelled) == CacheWrite::Written, "a third file");
  check((folder.names() == std::vector<std::string>{"c.packed", "lock", "model.packed"}), "the least recently used file made room");
  check(write_packed_cache(folder.path + "/d.packed", header, parts, good.size() - 1, cancelled) == CacheWrite::TooLarge, "larger than all the room");
  check(folder.names().size() == 3, "then nothing is removed");

  check(problem(folder.path, header).find("regular") != std::string::npos, "a folder is no file");
}

void test_cache_writers() {
  const Folder folder;
  const std::string path = folder.path + "/model.packed";
  std::vector<uint8_t> content(9'000'000);
  for (uint8_t& byte : content) byte = random_byte();
  // Several processes at once, several times: each writes the same file or finds it taken.
  bool all_ended = true;
  std::vector<pid_t> children;
  for (int i = 0; i < 4; i++) {
    const pid_t child = fork();
    if (child == 0) {
      std::atomic<bool> cancelled{false};
      int status = 0;
      for (int round = 0; round < 3; round++) {
        try {
          const CacheWrite outcome = write_packed_cache(path, "header", {{content.data(), content.size()}}, uint64_t{1} << 40, cancelled);
          if (outcome != CacheWrite::Written && outcome != CacheWrite::Busy) status = 1;
        } catch (const std::exception&) {
          status = 2;
        }
      }
      _exit(status);
    }
    children.push_back(child);
  }
  for (pid_t child : children) {
    int status = 0;
    all_ended = waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0 && all_ended;
  }
  check(all_ended, "concurrent writers end well");
  std::vector<uint8_t> found;
  check(problem(path, "header", &found).empty() && found == content, "concurrent writers leave one whole file");
  check((folder.names() == std::vector<std::string>{"lock", "model.packed"}), "concurrent writers leave nothing else");

  // A lock that somebody else holds.
  const int lock = open((folder.path + "/lock").c_str(), O_RDWR);
  check(flock(lock, LOCK_EX) == 0, "the lock is free after its holders");
  std::atomic<bool> cancelled{false};
  check(write_packed_cache(path, "header", {{content.data(), 100}}, uint64_t{1} << 40, cancelled) == CacheWrite::Busy, "a held lock means busy");
  check(problem(path, "header").empty(), "and the file stays as it was");
  close(lock);

  bool refused = false;
  try {
    write_packed_cache(folder.path + "/missing/model.packed", "header", {{content.data(), 100}}, uint64_t{1} << 40, cancelled);
  } catch (const std::runtime_error&) {
    refused = true;
  }
  check(refused, "a folder that is not there is an error");
}

void test_layout_ids() {
  const uint64_t portable = packed_layout_id(*kernels_portable());
  for (const std::string& isa : usable_isas()) {
    const bool is_signed = isa == "avx2" || isa == "portable";
    check((packed_layout_id(*choose_kernels(isa)) == portable) == is_signed, "layout id of " + isa + " tells signed from unsigned bytes");
  }
}

// --- steps ---

constexpr int32_t kHidden = 64, kVocabulary = 128, kHeads = 2, kHeadDim = 32, kMaxTokens = 64, kMaxLength = 4096, kBlockSize = 16;

WeightSource values_of(const std::string& name, int32_t rows, int32_t cols, bool is_vector) {
  WeightSource source;
  source.name = name;
  source.rows = rows;
  source.cols = cols;
  source.is_vector = is_vector;
  for (int32_t i = 0; i < rows * cols; i++) source.values.push_back((random_byte() - 127.5f) / 512);
  return source;
}

Plan small_plan() {
  Plan plan;
  plan.limits = {kMaxTokens, 4, kMaxLength, 8};
  plan.kv.num_kv_heads = kHeads;
  plan.kv.head_dim = kHeadDim;
  plan.kv.block_size = kBlockSize;
  plan.kv.layers_per_group = 1;
  plan.kv.groups = {{0}};
  plan.kv.layer_group = {0};
  plan.kv.layer_index = {0};
  plan.vocab_size = kVocabulary;
  // 0 residual, 1 normed, 2 q, 3 k, 4 v, 5 attention, 6 selected, 7 logits
  for (int i = 0; i < 6; i++) plan.buffers.push_back({false, RowForm::Float, kHidden});
  plan.buffers.push_back({true, RowForm::Float, kHidden});
  plan.buffers.push_back({true, RowForm::Float, kVocabulary});
  RopeTableSpec table;
  for (int i = 0; i < kHeadDim / 2; i++) table.inverse_frequencies.push_back(1.0 / (1 + i));
  plan.tables.push_back(table);
  int32_t phase = 0;
  const auto op = [&](OpKind kind, int32_t in, int32_t out, int32_t weight) -> Op& {
    Op& made = add_op(plan, kind, phase++, in, out, weight, kHidden);
    made.num_heads = kHeads;
    made.head_dim = kHeadDim;
    return made;
  };
  op(OpKind::Embed, -1, 0, 0);
  Op& norm = op(OpKind::RmsNorm, 0, 1, 1);
  norm.group_cols = kHidden;
  norm.eps = 1e-5f;
  for (int i = 0; i < 3; i++) op(OpKind::Linear, 1, 2 + i, 2 + i);
  Op& rope = op(OpKind::Rope, 2, -1, -1);
  rope.table = 0;
  rope.rotary_dim = kHeadDim;
  Op& write = op(OpKind::KvWrite, 3, -1, -1);
  write.in2 = 4;
  write.layer = 0;
  Op& attention = op(OpKind::Attention, 2, 5, -1);
  attention.layer = 0;
  attention.scale = 0.18f;
  op(OpKind::Linear, 5, 0, 5).accumulate = true;
  op(OpKind::SelectRows, 0, 6, -1);
  op(OpKind::Linear, 6, 7, 0);
  op(OpKind::Sample, 7, -1, -1).cols = kVocabulary;
  return plan;
}

class Waiter {
 public:
  Device::Done done() {
    return [this](const std::string& error) {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!error.empty()) printf("step: %s\n", error.c_str());
      ok_ = ok_ && error.empty();
      count_++;
      changed_.notify_all();
    };
  }
  void wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return count_ > 0; });
    count_--;
  }
  bool ok() const { return ok_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;
  bool ok_ = true;
};

void fill_step(StepInput& in, int32_t num_seqs, int32_t count, int32_t computed) {
  const int32_t blocks = kMaxLength / kBlockSize;
  in.num_seqs = num_seqs;
  in.num_tokens = num_seqs * count;
  in.token_ids.assign(in.num_tokens, computed == 0 ? 7 : -1);
  in.token_start.assign(1, 0);
  in.block_table_start.assign(1, 0);
  in.block_tables.clear();
  for (int32_t s = 0; s < num_seqs; s++) {
    in.token_start.push_back((s + 1) * count);
    for (int32_t b = 0; b < blocks; b++) in.block_tables.push_back(1 + s * blocks + b);
    in.block_table_start.push_back((s + 1) * blocks);
  }
  in.num_computed.assign(num_seqs, computed);
  in.slot.clear();
  for (int32_t s = 0; s < num_seqs; s++) in.slot.push_back(s);
  in.logit_rows.assign(num_seqs, 1);
  in.samples.assign(num_seqs, 1);
}

void test_steady_state(int num_threads) {
  Waiter waiter;
  Device device("portable", num_threads);
  const auto load = [&](WeightSource source) {
    device.queue_load(std::move(source), waiter.done());
    waiter.wait();
  };
  load(values_of("embed", kVocabulary, kHidden, false));
  load(values_of("norm", 1, kHidden, true));
  for (const char* name : {"q", "k", "v", "o"}) load(values_of(name, kHidden, kHidden, false));
  device.queue_plan(small_plan(), waiter.done());
  waiter.wait();
  check(waiter.ok(), "the small model loads");
  if (!waiter.ok()) return;
  constexpr int32_t kSeqs = 4;
  device.executor()->allocate_kv(1 + 4 * kMaxLength / kBlockSize);
  for (int32_t s = 0; s < kSeqs; s++) {
    SlotInit init;
    init.slot = s;
    init.tokens.assign(8, 7);
    init.num_prompt_tokens = 8;
    init.sampling.temperature = s == 0 ? 0 : 0.8;  // greedy, random, random with filters from all logits and from the best ones
    if (s >= 2) {
      init.sampling.top_k = 20;
      init.sampling.top_p = 0.9;
    }
    if (s == 2) init.sampling.num_logprobs = 3;
    device.queue_add(std::move(init));
  }
  int32_t computed = 0;
  const auto step = [&](int slot) {
    fill_step(device.step(slot).in, kSeqs, computed == 0 ? 8 : 1, computed);
    computed += computed == 0 ? 8 : 1;
    device.queue_step(slot, waiter.done());
    waiter.wait();
  };
  for (int i = 0; i < 100; i++) step(i % 2);
  const long before = num_allocations.load();
  for (int i = 0; i < 200; i++) step(i % 2);
  const long after = num_allocations.load();
  check(waiter.ok(), "all steps succeed");
  check(after == before, "200 warm steps on " + std::to_string(num_threads) + " threads allocate nothing (" + std::to_string(after - before) + " allocations)");
  const StepTimes& times = device.step(1).out.times;
  const double sum = times.attention + times.linear + times.sampling + times.rows + times.serial;
  check(times.serial > 0 && times.rows > 0 && sum <= times.total, "the parts of a step's time are within the whole");
}

}  // namespace

int main() {
  test_checksum();
  test_job_order();
  test_oversubscription();
  test_cache();
  test_cache_writers();
  test_layout_ids();
  test_steady_state(1);
  test_steady_state(3);
  return end_checks();
}
