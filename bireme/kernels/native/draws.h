// The counter-based random bits of bireme/ops/random_bits.py, a register at a time.
#pragma once

#include "vectors.h"

namespace bireme {

typedef uint32_t Bits __attribute__((vector_size(kLanes * sizeof(uint32_t)), aligned(4), may_alias));

inline Bits LaneNumbers() {
  Bits lanes;
  for (int i = 0; i < kLanes; ++i) lanes[i] = static_cast<uint32_t>(i);
  return lanes;
}

// The bits at `position` and the places after it, by a key of three words.
inline Bits Drawn(const uint32_t* key, uint32_t position) {
  Bits x = (LaneNumbers() + position) ^ key[0];
  x = (x ^ (x >> 16)) * 0x7FEB352Du;
  x = (x ^ (x >> 15)) * 0x846CA68Bu;
  const Bits middle = x ^ (x >> 16);
  x = middle + key[1];
  x = (x ^ (x >> 17)) * 0xED5AD4BBu;
  x = (x ^ (x >> 11)) * 0xAC4C1B51u;
  x = (x ^ (x >> 15)) * 0x31848BABu;
  x = x ^ (x >> 14);
  return x ^ (middle + key[2]);
}

// Which elements of an array stay, as `kept` in bireme/ops/dropout.py says it: a function of the
// key, which three words stand for, and of the position.
struct Draws {
  uint32_t key[3];
  uint32_t threshold;

  // v where the draws at `position` and the places after it keep it, zero elsewhere.
  Vec Keep(uint32_t position, Vec v) const {
    return Drawn(key, position) >= threshold ? v : Vec{};
  }
};

}  // namespace bireme
