// Channels-last images, and convolution weights (OIHW) on their way into and out of registers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "transpose.h"

namespace bireme {

// Images, or one group's channels of them: then `pitch`, the floats from pixel to pixel, is more
// than `channels`.
struct Shape {
  int64_t batch, height, width, channels, pitch;
  int64_t pixels() const { return height * width; }
  int64_t image() const { return height * width * pitch; }
};

// The shape of one of `groups` equal parts of a logical NCHW buffer with channels-last memory.
template <typename Dims>
Shape Part(const Dims& d, int64_t groups) {
  return {d[0], d[2], d[3], d[1] / groups, d[1]};
}

// Weights as a product sees them: `forward` reduces over input channels and makes output channels,
// otherwise it is the other way round.
struct Weights {
  const float* data;
  int64_t out_c, in_c, taps;
  bool forward;
  int64_t targets() const { return forward ? out_c : in_c; }
  int64_t reduced() const { return forward ? in_c : out_c; }

  // rows[(r - first) * taps + k][0..kLanes): kernel element k of the targets from `target` on.
  void Columns(int64_t target, int64_t first, int64_t last, float* rows) const {
    const int64_t live = std::min<int64_t>(kLanes, targets() - target);
    const float* end = data + out_c * in_c * taps;
    Vec turned[kLanes];
    if (forward) {  // a target's kernels lie side by side
      const float* from = data + target * in_c * taps;
      for (int64_t j = first * taps; j < last * taps; j += kLanes) {
        LoadTurned(from + j, in_c * taps, live, end, turned);
        Keep(turned, last * taps - j, rows + (j - first * taps) * kLanes);
      }
      return;
    }
    for (int64_t r = first; r < last; ++r, rows += taps * kLanes) {
      const float* from = data + (r * in_c + target) * taps;
      if (taps == 1) {
        Store(rows, LoadSome(from, live));
        continue;
      }
      for (int64_t k = 0; k < taps; k += kLanes) {
        LoadTurned(from + k, taps, live, end, turned);
        Keep(turned, taps - k, rows + k * kLanes);
      }
    }
  }

  // How many reduced channels at a time keep `rows` in the first-level cache, in whole registers.
  int64_t chunk() const { return taps <= 16 ? 16 : 2; }

 private:
  static void Keep(const Vec (&turned)[kLanes], int64_t count, float* rows) {
    for (int64_t i = 0; i < std::min<int64_t>(kLanes, count); ++i) Store(rows + i * kLanes, turned[i]);
  }
};

// Elements [begin, end) of the rows of weights of `live` output channels, `row` floats each, from
// columns[j - begin][0..kLanes).
inline void PutColumns(const float* columns, int64_t begin, int64_t end, float* weights,
                       int64_t live, int64_t row) {
  for (int64_t j = begin; j < end; j += kLanes, columns += kLanes * kLanes) {
    const int64_t count = std::min<int64_t>(kLanes, end - j);
    Vec turned[kLanes];
    for (int64_t i = 0; i < kLanes; ++i) turned[i] = i < count ? Load(columns + i * kLanes) : Vec{};
    Turn(turned);
    for (int64_t o = 0; o < std::min<int64_t>(kLanes, live); ++o)
      StoreSome(weights + o * row + j, turned[o], count);
  }
}

// Registers side by side: few unused lanes first, then few blocks, each of which reads the source.
inline int ChooseWidth(int64_t channels) {
  const int64_t registers = CeilDiv(channels, kLanes);
  int best = kWide;
  double least = 1e30;
  for (int wide = kWide; wide >= 1; --wide) {
    const double blocks = static_cast<double>(CeilDiv(registers, wide));
    const double cost = blocks * wide + 0.5 * blocks;
    if (cost < least) least = cost, best = wide;
  }
  return best;
}

// Calls body(std::integral_constant<int, wide>): a width known to the compiler.
template <typename Body>
void WithWidth(int wide, const Body& body) {
  switch (wide) {
    case 1: return body(std::integral_constant<int, 1>());
    case 2: return body(std::integral_constant<int, 2>());
#if defined(__AVX512F__)
    case 3: return body(std::integral_constant<int, 3>());
#endif
    default: return body(std::integral_constant<int, kWide>());
  }
}

}  // namespace bireme
