// Working memory of a job that the next job on the same thread finds again: memory fresh from the
// system costs a page fault for every 4 KiB, which small jobs would feel.
#pragma once

#include "vectors.h"

namespace bireme {

class Scratch {
 public:
  // Room for arrays of these many floats, each on a cache line of its own.
  template <size_t kCount>
  explicit Scratch(const int64_t (&sizes)[kCount]) {
    static_assert(kCount <= kArrays);
    int64_t total = 0;
    for (size_t i = 0; i < kCount; ++i) total += Aligned(sizes_[i] = sizes[i]);
    Kept& kept = Mine();
    if (total > kept.floats) {
      kept.memory = Allocate(total);
      kept.floats = total;
    }
    next_ = kept.memory.get();
  }
  ~Scratch() {
    if (Mine().floats > kMost) Mine() = Kept();
  }

  // The next array, in the order of the sizes.
  float* Take() {
    float* taken = next_;
    next_ += Aligned(sizes_[at_++]);
    return taken;
  }

 private:
  static constexpr size_t kArrays = 16;
  static constexpr int64_t kMost = 2 << 20;  // floats that a thread keeps
  struct Kept {
    Buffer memory;
    int64_t floats = 0;
  };
  static int64_t Aligned(int64_t floats) { return CeilDiv(floats, 16) * 16; }
  static Kept& Mine() {
    thread_local Kept kept;
    return kept;
  }

  int64_t sizes_[kArrays];  // a copy: what a caller writes between braces is gone by now
  int at_ = 0;
  float* next_;
};

}  // namespace bireme
