// Native compute threads. Thread 0, the leader, is a thread of its own that takes jobs from a queue in order, so that the
// JavaScript thread never computes. A job calls parallel() to run one function on all threads; inside it the threads meet at a
// barrier. Waiting spins for a bounded time and then sleeps, so an idle or oversubscribed pool costs nothing.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace pagoda {

// A 32-bit word that threads wait on until it changes.
class WaitWord {
 public:
  uint32_t load() const { return word_.load(std::memory_order_acquire); }
  // Adds one and wakes every sleeper.
  void advance();
  // Returns when the word differs from `seen`. `spins` adapts: it grows while spinning succeeds and shrinks when it does not.
  void wait_change(uint32_t seen, int* spins);

 private:
  std::atomic<uint32_t> word_{0};
  std::atomic<int> sleepers_{0};
  std::mutex mutex_;  // used where the system has no futex
  std::condition_variable changed_;
};

class Barrier {
 public:
  explicit Barrier(int num_threads) : num_threads_(num_threads) {}
  void wait(int* spins) {
    if (num_threads_ == 1) return;
    const uint32_t seen = generation_.load();
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == num_threads_) {
      arrived_.store(0, std::memory_order_relaxed);
      generation_.advance();
    } else {
      generation_.wait_change(seen, spins);
    }
  }

 private:
  const int num_threads_;
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) WaitWord generation_;
};

// Jobs in the order they came, in a ring that grows when it is full: in a steady state nothing is allocated, as long as a job's captures
// fit the function object itself.
class JobQueue {
 public:
  bool empty() const { return count_ == 0; }
  void push(std::function<void()> job);
  std::function<void()> pop();

 private:
  std::vector<std::function<void()>> ring_;
  size_t first_ = 0, count_ = 0;
};

class ThreadPool {
 public:
  // `cpus`: which CPUs each thread may use, one list per thread, or empty when threads go where the system likes. Threads are called
  // pagoda-0, pagoda-1, … (the leader is 0).
  explicit ThreadPool(int num_threads, std::vector<std::vector<int>> cpus = {});
  ~ThreadPool();  // finishes the queued jobs, then ends the threads
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }
  // Queues a job for the leader. Jobs must not throw.
  void submit(std::function<void()> job);
  // Only from a job: runs body(thread) on every thread and returns when all are done. The body must not throw.
  void parallel(const std::function<void(int)>& body);
  // Only from inside a parallel body, by every thread.
  void barrier(int thread) { barrier_.wait(&spins_[thread * 16]); }

 private:
  void begin(int thread);  // of each thread: name and place
  void lead();
  void work(int thread);

  const int num_threads_;
  Barrier barrier_;
  std::unique_ptr<int[]> spins_;  // one cache line per thread
  std::mutex mutex_;
  std::condition_variable queued_;
  JobQueue jobs_;
  std::vector<std::vector<int>> cpus_;
  bool closing_ = false;
  const std::function<void(int)>* body_ = nullptr;
  std::atomic<bool> ending_{false};
  WaitWord start_;
  std::vector<std::thread> threads_;
};

}  // namespace pagoda
