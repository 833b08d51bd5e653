// The gradients of x @ w + bias, as XLA FFI handlers: matrices x [M, K], g [M, N], w [K, N].
//
// All of them come from one call: whoever updates the weight from its gradient then comes after the
// last reader of the weight, so XLA has no reason to copy it. XLA's own product with a transposed
// first factor, the weight's gradient, runs at two thirds of what the machine can do.

#include "handlers.h"
#include "parallel.h"
#include "tiles.h"
#include "vectors.h"

namespace bireme {
namespace {

constexpr int64_t kDepth = 1024;       // rows of a panel that stay in the second-level cache
constexpr int64_t kChunk = 16 * kTall;  // output rows of a job
constexpr int64_t kAlone = 1 << 18;     // multiplications that are not worth another thread
constexpr int64_t kNear = 4096;         // floats that fit on the stack

// Working memory of a call. Small layers take nothing from the heap: they would wait there for the
// thread that prepares the next call.
class Room {
 public:
  explicit Room(int64_t floats) {
    if (floats > kNear) far_ = Allocate(floats);
  }
  float* get() { return far_ ? far_.get() : near_; }

 private:
  alignas(64) float near_[kNear];
  Buffer far_;
};

// Calls work(i) for i in [0, count); alone where all of it is little.
template <typename Work>
void Share(ffi::ThreadPool& pool, int64_t multiplications, int64_t count, const Work& work) {
  if (multiplications > kAlone) return ParallelFor(pool, count, work);
  for (int64_t i = 0; i < count; ++i) work(i);
}

using In = ffi::Buffer<ffi::F32>;
using Out = ffi::ResultBuffer<ffi::F32>;

// Up to kTall rows of outputs; of the panel's columns only `live` are there.
template <bool kTransposed>
void Rows(const float* a, int64_t stride, int64_t rows, const float* panel, int64_t depth,
          int64_t width, int64_t live, float* out, int64_t out_stride, bool add) {
  float spill[kTall * kPanel];
  float* to = live == width ? out : spill;
  const int64_t to_stride = live == width ? out_stride : width;
  if (add && live == width) {
    Product<kTransposed, true>(a, stride, rows, panel, depth, 0, depth, width, to, to_stride);
  } else {
    Product<kTransposed, false>(a, stride, rows, panel, depth, 0, depth, width, to, to_stride);
  }
  if (live == width) return;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < live; ++c) {
      const float sum = spill[r * width + c];
      out[r * out_stride + c] = add ? out[r * out_stride + c] + sum : sum;
    }
}

// dx [M, K] = g [M, N] times w's transpose.
void InputGrad(ffi::ThreadPool& pool, In g, In w, float* dx) {
  const int64_t m = g.dimensions()[0], n = g.dimensions()[1], k = w.dimensions()[0];
  Room packed_room(n * Padded(k));
  float* packed = packed_room.get();
  const int64_t panels = CeilDiv(k, kPanel), chunks = CeilDiv(m, kChunk);
  Share(pool, m * n * k, panels, [&](int64_t p) {
    const int64_t c = p * kPanel;
    PackTransposed(w.typed_data() + c * n, n, n, std::min(kPanel, k - c), packed + c * n);
  });
  Share(pool, m * n * k, panels * chunks, [&](int64_t job) {
    const int64_t c = job / chunks * kPanel, first = job % chunks * kChunk;
    const int64_t width = PanelWidth(k, c), live = std::min(width, k - c);
    const int64_t end = std::min(m, first + kChunk);
    for (int64_t d = 0; d < n; d += kDepth)
      for (int64_t r = first; r < end; r += kTall)
        Rows<false>(g.typed_data() + r * n + d, n, std::min<int64_t>(kTall, end - r),
                    packed + c * n + d * width, std::min(kDepth, n - d), width, live,
                    dx + r * k + c, k, d > 0);
  });
}

// dw [K, N] = x's transpose times g, and db [N], the sum of g's rows.
void WeightGrad(ffi::ThreadPool& pool, In x, In g, float* dw, float* db) {
  const int64_t m = g.dimensions()[0], n = g.dimensions()[1], k = x.dimensions()[1];
  // x goes into strips of kTall columns: read in order by the products, one cache line after the
  // other, where a column of x would touch a line for every row.
  Room strips_room(m * CeilDiv(k, kTall) * kTall), packed_room(m * Padded(n));
  float *strips = strips_room.get(), *packed = packed_room.get();
  const int64_t panels = CeilDiv(n, kPanel), chunks = CeilDiv(k, kChunk);
  Share(pool, m * n * k, panels + chunks, [&](int64_t job) {
    if (job < panels) {
      const int64_t c = job * kPanel, width = PanelWidth(n, c), live = std::min(width, n - c);
      float* to = packed + c * m;
      Pack(g.typed_data() + c, n, m, live, to);
      Vec sums[kWide] = {};
      for (int64_t r = 0; r < m; ++r)
        for (int64_t i = 0; i < width / kLanes; ++i) sums[i] += Load(to + r * width + i * kLanes);
      for (int64_t i = 0; i < live; ++i) db[c + i] = sums[i / kLanes][i % kLanes];
      return;
    }
    const int64_t first = (job - panels) * kChunk, end = std::min(k, first + kChunk);
    for (int64_t r = 0; r < m; ++r) {
      const float* from = x.typed_data() + r * k;
      int64_t c = first;
      for (; c + kTall <= end; c += kTall)
        std::memcpy(strips + c * m + r * kTall, from + c, sizeof(float) * kTall);
      for (int64_t i = c; i < end; ++i) strips[c * m + r * kTall + i - c] = from[i];
    }
  });
  Share(pool, m * n * k, panels * chunks, [&](int64_t job) {
    const int64_t c = job / chunks * kPanel, first = job % chunks * kChunk;
    const int64_t width = PanelWidth(n, c), live = std::min(width, n - c);
    const int64_t end = std::min(k, first + kChunk);
    for (int64_t d = 0; d < m; d += kDepth)
      for (int64_t r = first; r < end; r += kTall)
        Rows<true>(strips + r * m + d * kTall, kTall, std::min<int64_t>(kTall, end - r),
                   packed + c * m + d * width, std::min(kDepth, m - d), width, live,
                   dw + r * n + c, n, d > 0);
  });
}

ffi::Error Grads(ffi::ThreadPool pool, In x, In g, In w, Out dx, Out dw, Out db) {
  InputGrad(pool, g, w, dx->typed_data());
  WeightGrad(pool, x, g, dw->typed_data(), db->typed_data());
  return ffi::Error::Success();
}

ffi::Error WeightGrads(ffi::ThreadPool pool, In x, In g, Out dw, Out db) {
  WeightGrad(pool, x, g, dw->typed_data(), db->typed_data());
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(bireme_linear_grads, Grads,
                              FloatRets<3>(BindFloats<3>()));
XLA_FFI_DEFINE_HANDLER_SYMBOL(bireme_linear_weight_grads, WeightGrads,
                              FloatRets<2>(BindFloats<2>()));

}  // namespace bireme
