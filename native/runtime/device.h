// One device: threads, weights, plan, KV pool, sequences and two step slots. Methods named queue_* hand a job to the leader
// thread; jobs run in the order of the calls, and `done(error)` is called on the leader when one ends ("" = success).
#pragma once
#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "runtime/cpu-features.h"
#include "runtime/executor.h"
#include "runtime/plan.h"
#include "runtime/sampler.h"
#include "runtime/thread-pool.h"
#include "runtime/weight-store.h"

namespace pagoda {

constexpr int kNumStepSlots = 2;

class Device {
 public:
  // An error text starts with "out of memory" when memory ran out.
  using Done = std::function<void(const std::string& error)>;

  // `cpus`: see ThreadPool.
  Device(const std::string& isa, int num_threads, std::vector<std::vector<int>> cpus = {})
      : kernels_(choose_kernels(isa)), pool_(std::make_unique<ThreadPool>(num_threads, std::move(cpus))), weights_(kernels_, pool_.get()) {}
  ~Device();  // waits for the queued jobs; a cache that is being written is given up

  const Kernels& kernels() const { return *kernels_; }
  int num_threads() const { return pool_->num_threads(); }
  size_t weight_bytes() const { return weights_.bytes(); }

  // Before the first weight; an error text is the reason why the cache cannot be used, and then nothing has happened.
  void queue_cache(std::string path, std::string header, Done done);
  // After the last weight, once: writes a cache on a thread of its own, with low priority, beside the steps. `outcome` is set before done.
  void start_cache_write(std::string path, std::string header, uint64_t max_bytes, CacheWrite* outcome, Done done);
  void queue_load(WeightSource source, Done done);
  // After the last weight: checks the plan and allocates everything it needs but the KV pool.
  void queue_plan(Plan plan, Done done);
  // Null before queue_plan has ended.
  Executor* executor() const { return executor_.get(); }

  void queue_add(SlotInit init);
  void queue_remove(int32_t slot);
  Step& step(int slot) { return steps_[slot]; }
  void queue_step(int slot, Done done);
  void queue_logits(std::vector<int32_t> tokens, std::vector<float>* out, Done done);
  // Ends after everything queued before it.
  void queue_nothing(Done done);

 private:
  void queue(std::function<void()> work, Done done);

  const Kernels* kernels_;
  std::unique_ptr<ThreadPool> pool_;  // ended first: its jobs use everything else
  WeightStore weights_;
  std::unique_ptr<Sampler> sampler_;
  std::unique_ptr<Executor> executor_;
  std::array<Step, kNumStepSlots> steps_;
  std::array<Done, kNumStepSlots> step_done_;
  std::thread cache_writer_;
  std::atomic<bool> ending_{false};
};

}  // namespace pagoda
