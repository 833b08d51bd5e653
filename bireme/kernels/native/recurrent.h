// What the recurrent layers share: activations, products with packed weights, the split of a batch.
//
// What can be one large product over all time steps (the input projection, the weights'
// gradients) stays outside; in a handler is only what must go step by step. The batch is split
// over threads, so that a thread walks through time without meeting another one.
//
// `lengths` [B] ends every sequence: from there on its state is held, its outputs are zero and its
// rows of the gradient pass by.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "exponential.h"
#include "handlers.h"
#include "parallel.h"
#include "tanh.h"
#include "vectors.h"

namespace bireme {

// out[r][0..W*kLanes) = start[r] + sum_k a[r][k] * panel[k]
template <int R, int W>
void Product(const float* a, int64_t a_stride, const float* panel, int64_t depth, const float* start,
             int64_t start_stride, float* out, int64_t out_stride) {
  Vec acc[R][W];
  for (int r = 0; r < R; ++r)
    for (int w = 0; w < W; ++w) acc[r][w] = Load(start + r * start_stride + w * kLanes);
  for (int64_t k = 0; k < depth; ++k, panel += W * kLanes) {
    Vec b[W];
    for (int w = 0; w < W; ++w) b[w] = Load(panel + w * kLanes);
    for (int r = 0; r < R; ++r) {
      const Vec s = Splat(a[r * a_stride + k]);
      for (int w = 0; w < W; ++w) acc[r][w] += s * b[w];
    }
  }
  for (int r = 0; r < R; ++r)
    for (int w = 0; w < W; ++w) Store(out + r * out_stride + w * kLanes, acc[r][w]);
}

template <int W>
void ProductRows(int64_t rows, const float* a, int64_t a_stride, const float* panel, int64_t depth,
                 const float* start, int64_t start_stride, float* out, int64_t out_stride) {
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4)
    Product<4, W>(a + r * a_stride, a_stride, panel, depth, start + r * start_stride, start_stride,
                  out + r * out_stride, out_stride);
  for (; r < rows; ++r)
    Product<1, W>(a + r * a_stride, a_stride, panel, depth, start + r * start_stride, start_stride,
                  out + r * out_stride, out_stride);
}

constexpr int64_t kBlock = kWide * kLanes;

// A row-major [depth, width] matrix (or the transpose of one) in panels of kBlock columns; the last
// one is as narrow as the width leaves it, which must be a multiple of kLanes.
inline void PackPanels(const float* m, int64_t depth, int64_t width, bool transposed, float* out) {
  for (int64_t first = 0; first < width; first += kBlock) {
    const int64_t columns = std::min(kBlock, width - first);
    for (int64_t k = 0; k < depth; ++k)
      for (int64_t c = 0; c < columns; ++c)
        *out++ = transposed ? m[(first + c) * depth + k] : m[k * width + first + c];
  }
}

// out = start + a * panels. `out` may be `start`: a tile is read before it is written.
inline void Multiply(int64_t rows, const float* a, int64_t a_stride, const float* panels, int64_t depth,
                     int64_t width, const float* start, int64_t start_stride, float* out,
                     int64_t out_stride) {
  for (int64_t first = 0; first < width; first += kBlock) {
    const float* panel = panels + first * depth;
    const auto run = [&](auto wide) {
      ProductRows<decltype(wide)::value>(rows, a, a_stride, panel, depth, start + first, start_stride,
                                         out + first, out_stride);
    };
    switch (std::min(kBlock, width - first) / kLanes) {
      case 1: run(std::integral_constant<int, 1>()); break;
      case 2: run(std::integral_constant<int, 2>()); break;
      case 3: run(std::integral_constant<int, 3>()); break;
      default: run(std::integral_constant<int, kWide>());
    }
  }
}

// Calls work(first, rows) for shares of the batch, in parallel.
template <typename Work>
void OverBatch(ffi::ThreadPool& pool, int64_t batch, const Work& work) {
  const int64_t threads = std::max<int64_t>(1, pool.num_threads());
  const int64_t share = std::max<int64_t>(4, CeilDiv(CeilDiv(batch, threads), 4) * 4);
  ParallelFor(pool, CeilDiv(batch, share), [&](int64_t job) {
    work(job * share, std::min(share, batch - job * share));
  });
}

using Lengths = ffi::Buffer<ffi::S32>;
using Result = ffi::ResultBuffer<ffi::F32>;

// The step that comes s-th.
inline int64_t StepAt(int64_t s, int64_t steps, bool reverse) { return reverse ? steps - 1 - s : s; }

inline void CopyRows(const float* from, float* to, int64_t rows, int64_t width) {
  std::memcpy(to, from, sizeof(float) * rows * width);
}

}  // namespace bireme
