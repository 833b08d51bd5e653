// Register-sized float vectors, by the widest instruction set the compiler was given.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace bireme {

#if defined(__AVX512F__)
constexpr int kLanes = 16;  // floats in a register
constexpr int kWide = 4;    // registers side by side in a tile of outputs
constexpr int kTall = 6;    // rows of a tile: kWide * kTall accumulators fill the register file
#else
constexpr int kLanes = 8;
constexpr int kWide = 2;
constexpr int kTall = 6;
#endif

typedef float Vec __attribute__((vector_size(kLanes * sizeof(float)), aligned(4), may_alias));

inline Vec Load(const float* p) { return *reinterpret_cast<const Vec*>(p); }
inline void Store(float* p, Vec v) { *reinterpret_cast<Vec*>(p) = v; }
inline Vec Splat(float x) { return x - Vec{}; }

inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct FreeDeleter {
  void operator()(float* p) const { std::free(p); }
};
using Buffer = std::unique_ptr<float, FreeDeleter>;

inline Buffer Allocate(int64_t floats) {
  const size_t bytes = static_cast<size_t>(CeilDiv(floats * 4 + 64, 64) * 64);
  return Buffer(static_cast<float*>(std::aligned_alloc(64, bytes)));
}

}  // namespace bireme
