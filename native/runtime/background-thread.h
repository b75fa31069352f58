// For threads that work beside the steps.
#pragma once

#include <pthread.h>

#if defined(__linux__)
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace pagoda {

// Each of the calling thread alone.
// Threads of the device are called pagoda-…, so that tools can tell them from JavaScript's.
inline void set_thread_name(const char* name) {
#if defined(__APPLE__)
  pthread_setname_np(name);
#else
  pthread_setname_np(pthread_self(), name);
#endif
}

inline void lower_priority() {
#if defined(__linux__)
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), 19);
#endif
}

}  // namespace pagoda
