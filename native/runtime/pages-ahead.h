// Whoever writes to a page for the first time waits until the system has found and cleared it: up to a tenth of a long prefill, where the
// machine is a virtual one whose host does the same once more. Between steps a thread asks for the pages of a buffer that is used from its
// start on before they are needed; what nobody comes near stays unused.
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>

namespace pagoda {

class PagesAhead {
 public:
  // At least and at most so many bytes are ahead of what is in use.
  PagesAhead(uint8_t* data, size_t bytes, size_t least, size_t most) : data_(data), bytes_(bytes), least_(least), most_(most) {}
  ~PagesAhead();
  PagesAhead(const PagesAhead&) = delete;
  PagesAhead& operator=(const PagesAhead&) = delete;

  // `end` bytes are in use: as many more get pages, within the limits. Contents stay as they are. Does nothing where the system offers no
  // such request (Linux before 5.14, others). This and the next two are called by one thread.
  void reach(size_t end);
  // Between begin_step and end_step, and for a moment after, it keeps still: who asks holds locks that a step may need.
  void begin_step() { set_in_step(true); }
  void end_step() { set_in_step(false); }

 private:
  void set_in_step(bool in_step);
  void work();

  uint8_t* const data_;
  const size_t bytes_, least_, most_;
  bool given_up_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t wanted_ = 0;
  bool in_step_ = false, ending_ = false;
  std::chrono::steady_clock::time_point last_step_{};
  std::thread thread_;
};

}  // namespace pagoda
