// Squares of floats turned around in registers.
#pragma once

#include "vectors.h"

namespace bireme {

typedef int32_t Lanes __attribute__((vector_size(kLanes * sizeof(int32_t))));

// a0 b0 a1 b1 ...: of the first halves of a and b, or of the second ones.
template <bool kSecond>
inline Vec Interleave(Vec a, Vec b) {
  constexpr int h = kSecond ? kLanes / 2 : 0;
#if defined(__clang__)
#if defined(__AVX512F__)
  return __builtin_shufflevector(a, b, h, 16 + h, h + 1, 17 + h, h + 2, 18 + h, h + 3, 19 + h, h + 4,
                                 20 + h, h + 5, 21 + h, h + 6, 22 + h, h + 7, 23 + h);
#else
  return __builtin_shufflevector(a, b, h, 8 + h, h + 1, 9 + h, h + 2, 10 + h, h + 3, 11 + h);
#endif
#else
  Lanes order;
  for (int i = 0; i < kLanes; ++i) order[i] = i % 2 * kLanes + i / 2 + h;
  return __builtin_shuffle(a, b, order);
#endif
}

// rows[i][j] becomes rows[j][i]: each round is a perfect shuffle of all elements.
inline void Turn(Vec (&rows)[kLanes]) {
  for (int round = 1; round < kLanes; round *= 2) {
    Vec next[kLanes];
    for (int i = 0; i < kLanes / 2; ++i) {
      next[2 * i] = Interleave<false>(rows[i], rows[i + kLanes / 2]);
      next[2 * i + 1] = Interleave<true>(rows[i], rows[i + kLanes / 2]);
    }
    for (int i = 0; i < kLanes; ++i) rows[i] = next[i];
  }
}

inline Vec LoadSome(const float* p, int64_t lanes) {
  if (lanes >= kLanes) return Load(p);
  float some[kLanes] = {};
  for (int64_t i = 0; i < lanes; ++i) some[i] = p[i];
  return Load(some);
}

inline void StoreSome(float* p, Vec v, int64_t lanes) {
  if (lanes >= kLanes) return Store(p, v);
  float some[kLanes];
  Store(some, v);
  for (int64_t i = 0; i < lanes; ++i) p[i] = some[i];
}

// The first columns of up to kLanes rows that lie `pitch` floats apart: turned[j] is column j, with
// zeros for rows that are not there. Columns past the last one hold anything; memory is read up to `end`.
inline void LoadTurned(const float* from, int64_t pitch, int64_t rows, const float* end,
                       Vec (&turned)[kLanes]) {
  if (rows >= kLanes && from + (kLanes - 1) * pitch + kLanes <= end) {
    for (int i = 0; i < kLanes; ++i) turned[i] = Load(from + i * pitch);
  } else {
    for (int i = 0; i < kLanes; ++i)
      turned[i] = i < rows ? LoadSome(from + i * pitch, end - (from + i * pitch)) : Vec{};
  }
  Turn(turned);
}

}  // namespace bireme
