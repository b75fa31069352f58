#include "runtime/pages-ahead.h"

#include <sys/mman.h>

#include <algorithm>
#include <system_error>

#include "runtime/background-thread.h"

#if defined(__linux__) && !defined(MADV_POPULATE_WRITE)
#define MADV_POPULATE_WRITE 23
#endif

namespace pagoda {
namespace {

constexpr size_t kPiece = size_t{2} << 20;  // a huge page

#if defined(__linux__)
constexpr std::chrono::milliseconds kQuiet{20};

// Pages of all NUMA nodes in turn, as if any of the compute threads had come first.
void interleave_nodes() {
#if defined(SYS_set_mempolicy)
  constexpr int kInterleave = 3;
  const unsigned long all = ~0ul;
  syscall(SYS_set_mempolicy, kInterleave, &all, sizeof(all) * 8);
#endif
}
#endif

}  // namespace

void PagesAhead::reach(size_t end) {
  if (given_up_) return;
  const size_t wanted = std::min(bytes_, (end + std::clamp(end, least_, most_) + kPiece - 1) / kPiece * kPiece);
  if (wanted <= wanted_) return;  // only this thread changes it
  {
    std::lock_guard<std::mutex> lock(mutex_);
    wanted_ = wanted;
  }
  changed_.notify_one();
#if defined(MADV_POPULATE_WRITE)
  if (thread_.joinable()) return;
  try {
    thread_ = std::thread([this] { work(); });
  } catch (const std::system_error&) {
    given_up_ = true;  // no thread to be had: pages come when they are written
  }
#endif
}

void PagesAhead::set_in_step(bool in_step) {
  std::lock_guard<std::mutex> lock(mutex_);
  in_step_ = in_step;
  last_step_ = std::chrono::steady_clock::now();
}

void PagesAhead::work() {
#if defined(MADV_POPULATE_WRITE)
  // Of usual priority: with a low one it would hold its locks for as long as others keep the cores.
  set_thread_name("pagoda-pages");
  interleave_nodes();
  for (size_t done = 0;;) {
    size_t piece;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [&] { return ending_ || wanted_ > done; });
      while (!ending_ && (in_step_ || std::chrono::steady_clock::now() - last_step_ < kQuiet)) changed_.wait_for(lock, kQuiet);
      if (ending_) return;
      piece = std::min(wanted_ - done, kPiece);
    }
    if (madvise(data_ + done, piece, MADV_POPULATE_WRITE) != 0) return;
    done += piece;
  }
#endif
}

PagesAhead::~PagesAhead() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

}  // namespace pagoda
