// The largest values of a row, kept while the row is made piece by piece. Their order is total, so what is kept in the end does not
// depend on the order of the pieces.
#pragma once
#include <cstdint>

namespace pagoda {

constexpr int32_t kMaxTopValues = 80;

// The `capacity` best values seen so far, best first, of equal ones the lower id first.
struct TopValues {
  int32_t capacity, count;
  bool finite;  // no value was NaN or infinite
  float values[kMaxTopValues];
  int32_t ids[kMaxTopValues];
};

// Internal linkage: these are compiled for several instruction sets.
static inline void clear_top(TopValues* top, int32_t capacity) {
  top->capacity = capacity;
  top->count = 0;
  top->finite = true;
}
static inline bool is_full(const TopValues& top) { return top.count == top.capacity; }
static inline void offer_value(TopValues* top, float value, int32_t id) {
  const auto is_after = [&](int32_t i) { return value > top->values[i] || (value == top->values[i] && id < top->ids[i]); };
  if (is_full(*top) && !is_after(top->count - 1)) return;
  int32_t at = is_full(*top) ? top->count - 1 : top->count++;
  for (; at > 0 && is_after(at - 1); at--) {
    top->values[at] = top->values[at - 1];
    top->ids[at] = top->ids[at - 1];
  }
  top->values[at] = value;
  top->ids[at] = id;
}

}  // namespace pagoda
