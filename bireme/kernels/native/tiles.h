// Products of matrices that stay in the cache: tiles of outputs in registers over packed panels.
//
// A panel is kWide registers of columns (the last one may be narrower), all rows one after the
// other, so that the innermost loop reads it in order.
#pragma once

#include <algorithm>
#include <cstring>

#include "vectors.h"

namespace bireme {

constexpr int64_t kPanel = kWide * kLanes;

inline int64_t Padded(int64_t columns) { return CeilDiv(columns, kLanes) * kLanes; }

// Columns of the panel that starts at `column`, in a matrix of `columns` columns.
inline int64_t PanelWidth(int64_t columns, int64_t column) {
  return std::min(kPanel, Padded(columns - column));
}

// The row-major [rows, columns] matrix `from` as panels; missing columns are zero.
inline void Pack(const float* from, int64_t stride, int64_t rows, int64_t columns, float* to) {
  for (int64_t c = 0; c < columns; c += kPanel) {
    const int64_t width = PanelWidth(columns, c), live = std::min(width, columns - c);
    for (int64_t r = 0; r < rows; ++r, to += width) {
      std::memcpy(to, from + r * stride + c, sizeof(float) * live);
      if (live < width) std::memset(to + live, 0, sizeof(float) * (width - live));
    }
  }
}

// A square of kLanes rows that are `stride` apart, transposed into rows that are `width` apart.
inline void TransposeSquare(const float* from, int64_t stride, float* to, int64_t width) {
#if defined(__clang__)
  for (int64_t r = 0; r < kLanes; ++r)
    for (int64_t i = 0; i < kLanes; ++i) to[r * width + i] = from[i * stride + r];
#else
  typedef int32_t Places __attribute__((vector_size(kLanes * sizeof(int32_t))));
  Vec rows[kLanes];
  for (int i = 0; i < kLanes; ++i) rows[i] = Load(from + i * stride);
  // Blocks of `size` change places with their mirror images, for every power of two.
#pragma GCC unroll 4
  for (int size = 1; size < kLanes; size *= 2) {
    Places upper, lower;
    for (int i = 0; i < kLanes; ++i) {
      upper[i] = i & size ? kLanes + i - size : i;
      lower[i] = i & size ? kLanes + i : i + size;
    }
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) {
      if (i & size) continue;
      const Vec a = rows[i], b = rows[i + size];
      rows[i] = __builtin_shuffle(a, b, upper);
      rows[i + size] = __builtin_shuffle(a, b, lower);
    }
  }
  for (int i = 0; i < kLanes; ++i) Store(to + i * width, rows[i]);
#endif
}

// The transpose of the row-major [columns, rows] matrix `from` as panels.
inline void PackTransposed(const float* from, int64_t stride, int64_t rows, int64_t columns,
                           float* to) {
  for (int64_t c = 0; c < columns; c += kPanel) {
    const int64_t width = PanelWidth(columns, c), live = std::min(width, columns - c);
    if (live < width) std::memset(to, 0, sizeof(float) * rows * width);
    for (int64_t first = 0; first < live; first += kLanes) {
      const int64_t last = std::min(live, first + kLanes);
      int64_t r = 0;
      if (last - first == kLanes)
        for (; r + kLanes <= rows; r += kLanes)
          TransposeSquare(from + (c + first) * stride + r, stride, to + r * width + first, width);
      for (; r < rows; ++r)
        for (int64_t i = first; i < last; ++i) to[r * width + i] = from[(c + i) * stride + r];
    }
    to += rows * width;
  }
}

// out[r][0 .. W * kLanes) (+)= sum over k of A(r, k) * panel[k]. A(r, k) is a[r * stride + k], or
// a[k * stride + r] for a transposed A.
template <int R, int W, bool kTransposed, bool kAdd>
inline void ProductTile(const float* a, int64_t stride, const float* panel, int64_t depth,
                        float* out, int64_t out_stride) {
  Vec sums[R][W];
  for (int r = 0; r < R; ++r)
    for (int w = 0; w < W; ++w) sums[r][w] = Vec{};
  for (int64_t k = 0; k < depth; ++k, panel += W * kLanes) {
    Vec b[W];
    for (int w = 0; w < W; ++w) b[w] = Load(panel + w * kLanes);
    for (int r = 0; r < R; ++r) {
      const Vec s = Splat(kTransposed ? a[k * stride + r] : a[r * stride + k]);
      for (int w = 0; w < W; ++w) sums[r][w] += s * b[w];
    }
  }
  for (int r = 0; r < R; ++r)
    for (int w = 0; w < W; ++w) {
      float* to = out + r * out_stride + w * kLanes;
      Store(to, kAdd ? Load(to) + sums[r][w] : sums[r][w]);
    }
}

template <int W, bool kTransposed, bool kAdd>
inline void ProductRows(const float* a, int64_t stride, int64_t rows, const float* panel,
                        int64_t depth, float* out, int64_t out_stride) {
  const int64_t step = kTransposed ? 1 : stride;
  int64_t r = 0;
  for (; r + kTall <= rows; r += kTall)
    ProductTile<kTall, W, kTransposed, kAdd>(a + r * step, stride, panel, depth,
                                             out + r * out_stride, out_stride);
  a += r * step;
  out += r * out_stride;
  switch (rows - r) {
    case 1: return ProductTile<1, W, kTransposed, kAdd>(a, stride, panel, depth, out, out_stride);
    case 2: return ProductTile<2, W, kTransposed, kAdd>(a, stride, panel, depth, out, out_stride);
    case 3: return ProductTile<3, W, kTransposed, kAdd>(a, stride, panel, depth, out, out_stride);
    case 4: return ProductTile<4, W, kTransposed, kAdd>(a, stride, panel, depth, out, out_stride);
    case 5: return ProductTile<5, W, kTransposed, kAdd>(a, stride, panel, depth, out, out_stride);
  }
}

// out [rows, Padded(columns)] (+)= A [rows, depth] times rows [first, first + depth) of the matrix
// of `panel_rows` rows and `columns` columns in `panels`.
template <bool kTransposed, bool kAdd>
inline void Product(const float* a, int64_t stride, int64_t rows, const float* panels,
                    int64_t panel_rows, int64_t first, int64_t depth, int64_t columns, float* out,
                    int64_t out_stride) {
  for (int64_t c = 0; c < columns; c += kPanel) {
    const int64_t width = PanelWidth(columns, c);
    const float* panel = panels + c * panel_rows + first * width;
    switch (width / kLanes) {
      case 1:
        ProductRows<1, kTransposed, kAdd>(a, stride, rows, panel, depth, out + c, out_stride);
        break;
      case 2:
        ProductRows<2, kTransposed, kAdd>(a, stride, rows, panel, depth, out + c, out_stride);
        break;
      case 3:
        ProductRows<3, kTransposed, kAdd>(a, stride, rows, panel, depth, out + c, out_stride);
        break;
      default:
        ProductRows<kWide, kTransposed, kAdd>(a, stride, rows, panel, depth, out + c, out_stride);
    }
  }
}

}  // namespace bireme
