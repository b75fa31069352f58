// Pages that a thread asks for ahead of their use: the right ones, and without touching what others write there meanwhile.
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <thread>
#include <vector>

#include "checks.h"
#include "runtime/memory.h"
#include "runtime/pages-ahead.h"

using namespace pagoda;
using namespace pagoda::test;

namespace {

constexpr size_t kMega = size_t{1} << 20, kPage = 4096;
constexpr size_t kLeast = 8 * kMega, kMost = 16 * kMega, kBytes = 64 * kMega;

bool has_pages(const AlignedBuffer& buffer, size_t from, size_t to) {
  std::vector<unsigned char> resident((to - from) / kPage);
  if (mincore(buffer.data() + from, to - from, resident.data()) != 0) return false;
  for (unsigned char page : resident) if ((page & 1) == 0) return false;
  return true;
}

// Gives up after a time that no machine needs.
bool get_pages(const AlignedBuffer& buffer, size_t end) {
  for (int i = 0; i < 60000; i++) {
    if (has_pages(buffer, 0, end)) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

bool is_supported() {
#if defined(__linux__)
  AlignedBuffer page(kPage);
  return madvise(page.data(), kPage, 23 /* MADV_POPULATE_WRITE */) == 0;
#else
  return false;
#endif
}

void test_extent() {
  AlignedBuffer buffer(kBytes);
  PagesAhead pages(buffer.data(), buffer.bytes(), kLeast, kMost);
  pages.reach(0);
  check(get_pages(buffer, kLeast), "the least is there from the start");
  pages.reach(10 * kMega);
  check(get_pages(buffer, 20 * kMega), "as much again as is used");
  pages.reach(5 * kMega);  // nothing is taken back
  pages.reach(24 * kMega);
  check(get_pages(buffer, 40 * kMega), "at most the most");
  check(!has_pages(buffer, 44 * kMega, kBytes), "what nobody comes near has no pages");
  pages.reach(2 * kBytes);
  check(get_pages(buffer, kBytes), "never beyond the end");
}

void test_contents() {
  AlignedBuffer buffer(kBytes);
  PagesAhead pages(buffer.data(), buffer.bytes(), kBytes, kBytes);
  uint64_t* words = reinterpret_cast<uint64_t*>(buffer.data());
  pages.reach(0);
  for (size_t i = 0; i < kBytes / 8; i += 100) words[i] = i + 1;  // meanwhile
  check(get_pages(buffer, kBytes), "all of it");
  bool same = true;
  for (size_t i = 0; i < kBytes / 8; i++) same = same && words[i] == (i % 100 == 0 ? i + 1 : 0);
  check(same, "what was written stays, the rest is 0");
}

void test_steps() {
  AlignedBuffer buffer(kBytes);
  PagesAhead pages(buffer.data(), buffer.bytes(), kLeast, kMost);
  pages.begin_step();
  pages.reach(0);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  check(!has_pages(buffer, 0, kPage), "nothing while a step runs");
  pages.end_step();
  check(get_pages(buffer, kLeast), "all of it after the step");
}

void test_end() {
  for (int i = 0; i < 20; i++) {
    AlignedBuffer buffer(kBytes);
    PagesAhead pages(buffer.data(), buffer.bytes(), kBytes, kBytes);
    if (i % 2 == 0) pages.reach(0);  // and ends in the middle of it
  }
  check(true, "ends at any time");
}

}  // namespace

int main() {
  if (is_supported()) {
    test_extent();
    test_contents();
    test_steps();
  } else {
    std::printf("no MADV_POPULATE_WRITE here: pages come when they are written\n");
  }
  test_end();
  return end_checks();
}
