#include "runtime/thread-pool.h"

#include <algorithm>
#include <cstdio>

#include "runtime/background-thread.h"
#if defined(__linux__)
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace pagoda {
namespace {

constexpr int kMinSpins = 64;
constexpr int kMaxSpins = 4096;

inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

}  // namespace

void WaitWord::advance() {
  word_.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
#if defined(__linux__)
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word_), FUTEX_WAKE_PRIVATE, 0x7fffffff, nullptr, nullptr, 0);
#else
  { std::lock_guard<std::mutex> lock(mutex_); }
  changed_.notify_all();
#endif
}

void WaitWord::wait_change(uint32_t seen, int* spins) {
  for (int i = 0; i < *spins; i++) {
    if (word_.load(std::memory_order_acquire) != seen) {
      *spins = std::min(*spins + *spins / 8 + 1, kMaxSpins);
      return;
    }
    if (i > 32) cpu_relax();
  }
  *spins = std::max(*spins / 2, kMinSpins);
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
#if defined(__linux__)
  while (word_.load(std::memory_order_seq_cst) == seen) {
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word_), FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
  }
#else
  {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return word_.load(std::memory_order_seq_cst) != seen; });
  }
#endif
  sleepers_.fetch_sub(1, std::memory_order_seq_cst);
}

void JobQueue::push(std::function<void()> job) {
  if (count_ == ring_.size()) {
    std::vector<std::function<void()>> larger(std::max<size_t>(64, 2 * count_));
    for (size_t i = 0; i < count_; i++) larger[i] = std::move(ring_[(first_ + i) % count_]);
    ring_ = std::move(larger);
    first_ = 0;
  }
  ring_[(first_ + count_) % ring_.size()] = std::move(job);
  count_++;
}

std::function<void()> JobQueue::pop() {
  std::function<void()> job = std::move(ring_[first_]);
  ring_[first_] = nullptr;
  first_ = (first_ + 1) % ring_.size();
  count_--;
  return job;
}

ThreadPool::ThreadPool(int num_threads, std::vector<std::vector<int>> cpus)
    : num_threads_(num_threads), barrier_(num_threads), spins_(new int[num_threads * 16]), cpus_(std::move(cpus)) {
  std::fill_n(spins_.get(), num_threads * 16, 1024);
  try {
    threads_.emplace_back([this] { lead(); });
    for (int thread = 1; thread < num_threads; thread++) threads_.emplace_back([this, thread] { work(thread); });
  } catch (...) {
    ending_.store(true);
    start_.advance();
    {
      std::lock_guard<std::mutex> lock(mutex_);
      closing_ = true;
    }
    queued_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    throw;
  }
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    closing_ = true;
  }
  queued_.notify_all();
  threads_[0].join();
  ending_.store(true);
  start_.advance();
  for (size_t i = 1; i < threads_.size(); i++) threads_[i].join();
}

void ThreadPool::submit(std::function<void()> job) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    jobs_.push(std::move(job));
  }
  queued_.notify_one();
}

void ThreadPool::begin(int thread) {
  char name[16];
  std::snprintf(name, sizeof(name), "pagoda-%d", thread);
  set_thread_name(name);
#if defined(__linux__)
  if (cpus_.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int cpu : cpus_[thread]) {
    if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_SET(cpu, &set);
  }
  // Refused when the allowed CPUs have just changed: then the thread stays where it may be.
  pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
#endif
}

void ThreadPool::lead() {
  begin(0);
  for (;;) {
    std::function<void()> job;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      queued_.wait(lock, [&] { return closing_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      job = jobs_.pop();
    }
    job();
  }
}

void ThreadPool::parallel(const std::function<void(int)>& body) {
  if (num_threads_ == 1) {
    body(0);
    return;
  }
  body_ = &body;
  start_.advance();
  body(0);
  barrier_.wait(&spins_[0]);
}

void ThreadPool::work(int thread) {
  begin(thread);
  uint32_t seen = 0;
  int idle_spins = 256;
  for (;;) {
    start_.wait_change(seen, &idle_spins);
    seen++;
    if (ending_.load()) return;
    (*body_)(thread);
    barrier_.wait(&spins_[thread * 16]);
  }
}

}  // namespace pagoda
