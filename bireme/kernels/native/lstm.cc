// The recurrence of an LSTM layer, forward and backward, as XLA FFI handlers.
//
// What can be one large product over all time steps (the input projection, the weights'
// gradients) stays outside; here is only what must go step by step. The batch is split over
// threads, so that a thread walks through time without meeting another one.
// Gate order: input, forget, cell, output.

#include <algorithm>
#include <cmath>

#include "parallel.h"
#include "vectors.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace bireme {
namespace {

typedef int32_t IntVec __attribute__((vector_size(kLanes * sizeof(int32_t)), aligned(4), may_alias));

inline Vec Clamp(Vec x, float low, float high) {
  const Vec lo = Splat(low), hi = Splat(high);
  x = x < lo ? lo : x;
  return x > hi ? hi : x;
}

// e^x for |x| <= 87: 2^n times a polynomial on the remainder, about 2 units in the last place.
inline Vec Exp(Vec x) {
  x = Clamp(x, -87.0f, 87.0f);
  const Vec scaled = x * 1.44269504f;
  const Vec half = scaled < Vec{} ? Splat(-0.5f) : Splat(0.5f);
  const IntVec n = __builtin_convertvector(scaled + half, IntVec);
  const Vec whole = __builtin_convertvector(n, Vec);
  const Vec r = x - whole * 0.693359375f + whole * 2.12194440e-4f;
  Vec p = Splat(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const IntVec bits = (n + 127) << 23;
  return p * reinterpret_cast<const Vec&>(bits);
}

inline Vec Sigmoid(Vec x) { return 1.0f / (1.0f + Exp(-x)); }

inline Vec Tanh(Vec x) {
  // Near zero the quotient loses digits; an odd polynomial does not.
  const Vec square = x * x;
  Vec near = Splat(-5.70498872745e-3f);
  near = near * square + 2.06390887954e-2f;
  near = near * square - 5.37397155531e-2f;
  near = near * square + 1.33314422036e-1f;
  near = near * square - 3.33332819422e-1f;
  near = near * square * x + x;
  const Vec far = 1.0f - 2.0f / (Exp(2.0f * x) + 1.0f);
  return square < Splat(0.390625f) ? near : far;
}

// out[r][0..W*kLanes) = start[r] + sum_k a[r][k] * panel[k]
template <int R, int W>
void Product(const float* a, int64_t a_stride, const float* panel, int64_t depth, const float* start,
             int64_t start_stride, float* out, int64_t out_stride) {
  Vec acc[R][W];
  for (int r = 0; r < R; ++r)
    for (int w = 0; w < W; ++w)
      acc[r][w] = start == nullptr ? Vec{} : Load(start + r * start_stride + w * kLanes);
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
    Product<4, W>(a + r * a_stride, a_stride, panel, depth, start ? start + r * start_stride : nullptr,
                  start_stride, out + r * out_stride, out_stride);
  for (; r < rows; ++r)
    Product<1, W>(a + r * a_stride, a_stride, panel, depth, start ? start + r * start_stride : nullptr,
                  start_stride, out + r * out_stride, out_stride);
}

// A row-major [depth, width] matrix in panels of kWide * kLanes columns.
void PackPanels(const float* m, int64_t depth, int64_t width, bool transposed, float* out) {
  constexpr int64_t kBlock = kWide * kLanes;
  for (int64_t p = 0; p < width / kBlock; ++p)
    for (int64_t k = 0; k < depth; ++k)
      for (int64_t c = 0; c < kBlock; ++c)
        out[(p * depth + k) * kBlock + c] =
            transposed ? m[(p * kBlock + c) * depth + k] : m[k * width + p * kBlock + c];
}

void Multiply(int64_t rows, const float* a, int64_t a_stride, const float* panels, int64_t depth,
              int64_t width, const float* start, int64_t start_stride, float* out, int64_t out_stride) {
  constexpr int64_t kBlock = kWide * kLanes;
  for (int64_t p = 0; p < width / kBlock; ++p)
    ProductRows<kWide>(rows, a, a_stride, panels + p * depth * kBlock, depth,
                       start ? start + p * kBlock : nullptr, start_stride, out + p * kBlock, out_stride);
}

// projected [T, B, 4H] (input projection with both biases), w_hh [4H, H], h0, c0 [B, H] ->
// y [T, B, H], cells [T, B, H], gates [T, B, 4H] (after their activations).
ffi::Error Forward(ffi::ThreadPool pool, ffi::Buffer<ffi::F32> projected, ffi::Buffer<ffi::F32> w_hh,
                   ffi::Buffer<ffi::F32> h0, ffi::Buffer<ffi::F32> c0, ffi::ResultBuffer<ffi::F32> y,
                   ffi::ResultBuffer<ffi::F32> cells, ffi::ResultBuffer<ffi::F32> gates,
                   bool reverse) {
  auto d = projected.dimensions();
  const int64_t steps = d[0], batch = d[1], width = d[2], hidden = width / 4;
  Buffer panels = Allocate(hidden * width);
  PackPanels(w_hh.typed_data(), hidden, width, true, panels.get());
  const int64_t threads = std::max<int64_t>(1, pool.num_threads());
  const int64_t share = std::max<int64_t>(4, CeilDiv(CeilDiv(batch, threads), 4) * 4);
  ParallelFor(pool, CeilDiv(batch, share), [&](int64_t job) {
    const int64_t first = job * share, rows = std::min(share, batch - first);
    const float* h = h0.typed_data() + first * hidden;
    const float* c = c0.typed_data() + first * hidden;
    for (int64_t s = 0; s < steps; ++s) {
      const int64_t t = reverse ? steps - 1 - s : s, at = t * batch + first;
      float* g = gates->typed_data() + at * width;
      float* new_h = y->typed_data() + at * hidden;
      float* new_c = cells->typed_data() + at * hidden;
      Multiply(rows, h, hidden, panels.get(), hidden, width, projected.typed_data() + at * width, width, g,
               width);
      for (int64_t r = 0; r < rows; ++r) {
        float* gr = g + r * width;
        for (int64_t j = 0; j < hidden; j += kLanes) {
          const Vec i = Sigmoid(Load(gr + j)), f = Sigmoid(Load(gr + hidden + j));
          const Vec u = Tanh(Load(gr + 2 * hidden + j)), o = Sigmoid(Load(gr + 3 * hidden + j));
          const Vec cell = f * Load(c + r * hidden + j) + i * u;
          Store(gr + j, i);
          Store(gr + hidden + j, f);
          Store(gr + 2 * hidden + j, u);
          Store(gr + 3 * hidden + j, o);
          Store(new_c + r * hidden + j, cell);
          Store(new_h + r * hidden + j, o * Tanh(cell));
        }
      }
      h = new_h;
      c = new_c;
    }
  });
  return ffi::Error::Success();
}

// dy [T, B, H], dh, dc [B, H] (of the last state), gates, cells, c0, w_hh ->
// d_projected [T, B, 4H], dh0, dc0.
ffi::Error Backward(ffi::ThreadPool pool, ffi::Buffer<ffi::F32> dy, ffi::Buffer<ffi::F32> dh_last,
                    ffi::Buffer<ffi::F32> dc_last, ffi::Buffer<ffi::F32> gates,
                    ffi::Buffer<ffi::F32> cells, ffi::Buffer<ffi::F32> c0, ffi::Buffer<ffi::F32> w_hh,
                    ffi::ResultBuffer<ffi::F32> d_projected, ffi::ResultBuffer<ffi::F32> dh0,
                    ffi::ResultBuffer<ffi::F32> dc0, bool reverse) {
  auto d = gates.dimensions();
  const int64_t steps = d[0], batch = d[1], width = d[2], hidden = width / 4;
  Buffer panels = Allocate(hidden * width);
  PackPanels(w_hh.typed_data(), width, hidden, false, panels.get());
  const int64_t threads = std::max<int64_t>(1, pool.num_threads());
  const int64_t share = std::max<int64_t>(4, CeilDiv(CeilDiv(batch, threads), 4) * 4);
  ParallelFor(pool, CeilDiv(batch, share), [&](int64_t job) {
    const int64_t first = job * share, rows = std::min(share, batch - first);
    float* dh = dh0->typed_data() + first * hidden;  // also the running gradients
    float* dc = dc0->typed_data() + first * hidden;
    std::memcpy(dh, dh_last.typed_data() + first * hidden, sizeof(float) * rows * hidden);
    std::memcpy(dc, dc_last.typed_data() + first * hidden, sizeof(float) * rows * hidden);
    for (int64_t s = steps - 1; s >= 0; --s) {
      const int64_t t = reverse ? steps - 1 - s : s, at = t * batch + first;
      const int64_t before = ((reverse ? t + 1 : t - 1) * batch) + first;
      const float* old_c = s == 0 ? c0.typed_data() + first * hidden : cells.typed_data() + before * hidden;
      const float* g = gates.typed_data() + at * width;
      float* dg = d_projected->typed_data() + at * width;
      for (int64_t r = 0; r < rows; ++r) {
        const float* gr = g + r * width;
        float* dr = dg + r * width;
        for (int64_t j = 0; j < hidden; j += kLanes) {
          const Vec i = Load(gr + j), f = Load(gr + hidden + j);
          const Vec u = Load(gr + 2 * hidden + j), o = Load(gr + 3 * hidden + j);
          const Vec squashed = Tanh(Load(cells.typed_data() + (at + r) * hidden + j));
          const Vec h = Load(dh + r * hidden + j) + Load(dy.typed_data() + (at + r) * hidden + j);
          const Vec c = Load(dc + r * hidden + j) + h * o * (1.0f - squashed * squashed);
          Store(dr + j, c * u * i * (1.0f - i));
          Store(dr + hidden + j, c * Load(old_c + r * hidden + j) * f * (1.0f - f));
          Store(dr + 2 * hidden + j, c * i * (1.0f - u * u));
          Store(dr + 3 * hidden + j, h * squashed * o * (1.0f - o));
          Store(dc + r * hidden + j, c * f);
        }
      }
      Multiply(rows, dg, width, panels.get(), width, hidden, nullptr, 0, dh, hidden);
    }
  });
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(bireme_lstm_forward, Forward,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>()
                                  .Attr<bool>("reverse"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(bireme_lstm_backward, Backward,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>()
                                  .Attr<bool>("reverse"));

}  // namespace bireme
