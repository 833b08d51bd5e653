// Linear layers and products of matrices.
#include "product.h"

namespace lite {

// B[k, n] by strides as the rows of a panel.
static void pack_matrix(const float* b, int64_t row, int64_t column, int64_t width, int64_t k0,
                        int64_t k1, int64_t j, int64_t count, float* to) {
  for (int64_t k = k0; k < k1; k++, to += width) {
    const float* from = b + k * row + j * column;
    if (column == 1) memcpy(to, from, count * sizeof(float));
    else
      for (int64_t i = 0; i < count; i++) to[i] = from[i * column];
    for (int64_t i = count; i < width; i++) to[i] = 0;
  }
}

// x[..., k], weight[k, n], bias[n] or none, added (as the result) or none; attrs: function.
const char* check_linear(Node& n, int) {
  TRY(arity(n, 2, 4, 1));
  TRY(all_float(n));
  TRY(check_after(n, 0));
  const Tensor &x = *n.input(0), &w = *n.input(1), &y = *n.output();
  NEED(x.rank >= 1 && w.rank == 2 && y.rank == x.rank && x.dims[x.rank - 1] == w.dims[0] &&
           y.dims[y.rank - 1] == w.dims[1],
       "shapes do not fit");
  for (int i = 0; i < x.rank - 1; i++) NEED(x.dims[i] == y.dims[i], "shapes do not fit");
  NEED(!n.has(2) || n.input(2)->count == w.dims[1], "the bias does not fit");
  NEED(!n.has(3) || same_shape(*n.input(3), y), "what is added does not fit");
  n.scratch = panel_bytes(n, w.dims[0]);
  return nullptr;
}

void run_linear(Node& n, int) {
  const Tensor &x = *n.input(0), &w = *n.input(1), &y = *n.output();
  int64_t k = w.dims[0], columns = w.dims[1], rows = x.product(0, x.rank - 1);
  After after = after_of(n, 0);
  if (n.has(2)) after.column_bias = n.input(2)->as<float>();
  if (n.has(3)) after.added = n.input(3)->as<float>();
  after.added_stride = columns;
  const float* b = w.as<float>();
  int64_t width = kernels_of(n).columns;
  multiply(n, rows, columns, k, x.as<float>(), k, 1, b, columns, y.as<float>(), columns, after,
           [=](int64_t k0, int64_t k1, int64_t j, int64_t count, float* to) {
             pack_matrix(b, columns, 1, width, k0, k1, j, count, to);
           });
}

// a[batch..., m, k] b[batch..., k, n] of one rank; attrs: whether a and b are given transposed.
// Axes of the batch that are 1 are repeated.
const char* check_matmul(Node& n, int) {
  TRY(arity(n, 2, 2, 1));
  const Tensor &a = *n.input(0), &b = *n.input(1), &y = *n.output();
  NEED(within(n, 0, 0, 1) && within(n, 1, 0, 1), "attributes");
  NEED(a.rank >= 2 && a.rank == b.rank && a.rank == y.rank, "ranks do not fit");
  NEED(a.type == b.type && a.type == y.type && (a.type >= BL_INT32 && a.type != BL_UINT32),
       "types do not fit");
  int r = a.rank;
  bool ta = n.attrs[0], tb = n.attrs[1];
  NEED(a.dims[r - (ta ? 2 : 1)] == b.dims[r - (tb ? 1 : 2)] &&
           a.dims[r - (ta ? 1 : 2)] == y.dims[r - 2] && b.dims[r - (tb ? 2 : 1)] == y.dims[r - 1],
       "shapes do not fit");
  for (int i = 0; i < r - 2; i++)
    NEED((a.dims[i] == y.dims[i] || a.dims[i] == 1) && (b.dims[i] == y.dims[i] || b.dims[i] == 1),
         "batches do not fit");
  n.scratch = panel_bytes(n, a.dims[r - (ta ? 2 : 1)]);
  return nullptr;
}

template <class T>
static void plain_product(int64_t m, int64_t n, int64_t k, const T* a, int64_t ar, int64_t ac,
                          const T* b, int64_t br, int64_t bc, T* c) {
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++) {
      T sum = 0;
      for (int64_t p = 0; p < k; p++) sum += a[i * ar + p * ac] * b[p * br + j * bc];
      c[i * n + j] = sum;
    }
}

void run_matmul(Node& n, int) {
  const Tensor &a = *n.input(0), &b = *n.input(1), &y = *n.output();
  int r = a.rank;
  bool ta = n.attrs[0], tb = n.attrs[1];
  int64_t m = y.dims[r - 2], columns = y.dims[r - 1], k = a.dims[r - (ta ? 2 : 1)];
  int64_t ar = ta ? 1 : k, ac = ta ? m : 1, br = tb ? 1 : columns, bc = tb ? k : 1;
  int64_t batches = y.product(0, r - 2), width = kernels_of(n).columns;
  for (int64_t at = 0; at < batches; at++) {
    int64_t rest = at, ia = 0, ib = 0, sa = 1, sb = 1;
    for (int i = r - 3; i >= 0; i--) {
      int64_t here = rest % y.dims[i];
      rest /= y.dims[i];
      if (a.dims[i] != 1) ia += here * sa;
      if (b.dims[i] != 1) ib += here * sb;
      sa *= a.dims[i];
      sb *= b.dims[i];
    }
    ia *= m * k;
    ib *= k * columns;
    int64_t iy = at * m * columns;
    if (y.type == BL_FLOAT32) {
      const float* right = b.as<float>() + ib;
      multiply(n, m, columns, k, a.as<float>() + ia, ar, ac, tb ? nullptr : right, br,
               y.as<float>() + iy, columns, After{},
               [=](int64_t k0, int64_t k1, int64_t j, int64_t count, float* to) {
                 pack_matrix(right, br, bc, width, k0, k1, j, count, to);
               });
    } else if (y.type == BL_FLOAT64) {
      plain_product(m, columns, k, a.as<double>() + ia, ar, ac, b.as<double>() + ib, br, bc,
                    y.as<double>() + iy);
    } else if (y.type == BL_INT32) {  // unsigned: sums may wrap around
      plain_product(m, columns, k, a.as<uint32_t>() + ia, ar, ac, b.as<uint32_t>() + ib, br, bc,
                    y.as<uint32_t>() + iy);
    } else {
      plain_product(m, columns, k, a.as<uint64_t>() + ia, ar, ac, b.as<uint64_t>() + ib, br, bc,
                    y.as<uint64_t>() + iy);
    }
  }
}

}  // namespace lite
