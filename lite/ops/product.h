// Products of matrices in panels of columns that are packed for the tiles.
#pragma once

#include "common.h"

namespace lite {

constexpr int64_t kDepth = 512;  // rows of a panel that are packed at once

inline int64_t panel_bytes(const Node& n, int64_t k) {
  return smaller(k, kDepth) * kernels_of(n).columns * 4;
}

// C[m, n] = A[m, k] B[k, n]. `pack(k0, k1, column, count, to)` writes those rows of B, each as
// `columns` numbers. If `direct` is not NULL B lies there, in rows of `ldb`.
template <class Pack>
void multiply(Node& node, int64_t m, int64_t n, int64_t k, const float* a, int64_t row,
              int64_t column, const float* direct, int64_t ldb, float* c, int64_t ldc,
              const After& after, Pack&& pack) {
  const Kernels& kernels = kernels_of(node);
  int64_t width = kernels.columns, panels = (n + width - 1) / width;
  bool by_rows = panels < node.model->threads && m > kernels.rows;
  int64_t groups = by_rows ? (m + kernels.rows - 1) / kernels.rows : 1;
  parallel(*node.model, panels * groups, by_rows ? 4 : 1, [&](int64_t from, int64_t to, int thread) {
    auto* panel = reinterpret_cast<float*>(node.model->scratch_of(thread));
    while (from < to) {
      int64_t p = from / groups, j = p * width, count = smaller(width, n - j);
      int64_t first = from % groups * kernels.rows;
      int64_t last = by_rows ? smaller(m, first + (smaller(to, (p + 1) * groups) - from) * kernels.rows) : m;
      from = by_rows ? smaller(to, (p + 1) * groups) : from + 1;
      After mine = after;
      if (mine.column_bias) mine.column_bias += j;
      if (mine.row_bias) mine.row_bias += first;
      if (mine.added) mine.added += first * mine.added_stride + j;
      float* out = c + first * ldc + j;
      bool here = direct && count == width && last - first <= 2 * kernels.rows;
      int64_t step = here ? larger(k, 1) : kDepth;
      for (int64_t k0 = 0; k0 < larger(k, 1); k0 += step) {
        int64_t depth = smaller(step, k - k0);
        if (!here) pack(k0, k0 + depth, j, count, panel);
        kernels.product(last - first, count, depth, a + first * row + k0 * column, row, column,
                        here ? direct + k0 * ldb + j : panel, here ? ldb : width, out, ldc, k0 > 0,
                        k0 + step >= k ? &mine : nullptr);
      }
    }
  });
}

}  // namespace lite
