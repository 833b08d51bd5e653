// Layer norm and RMS norm of rows, as XLA FFI handlers for inference. (In training XLA fuses
// them with what is around them.)

#include <algorithm>
#include <cmath>

#include "handlers.h"
#include "parallel.h"
#include "vectors.h"

namespace bireme {
namespace {

// The sum of each(x) over a row.
template <typename Each>
float SumOf(const float* row, int64_t width, const Each& each) {
  Vec sums{};
  int64_t c = 0;
  for (; c + kLanes <= width; c += kLanes) sums += each(Load(row + c));
  float total = 0.0f;
  for (; c < width; ++c) total += each(row[c]);
  for (int i = 0; i < kLanes; ++i) total += sums[i];
  return total;
}

// Calls work(first, last) for shares of the rows.
template <typename Work>
void ByShares(ffi::ThreadPool& pool, int64_t rows, int64_t width, const Work& work) {
  constexpr int64_t kShare = 1 << 13;  // elements that a thread takes at once
  const int64_t share = std::max<int64_t>(1, kShare / width);
  TeamFor(pool, CeilDiv(rows, share), [&](int64_t job) {
    work(job * share, std::min(rows, (job + 1) * share));
  });
}

// Operands: x [rows, width], weight and bias [width].
ffi::Error LayerNorm(ffi::ThreadPool pool, ffi::Buffer<ffi::F32> x, ffi::Buffer<ffi::F32> weight,
                     ffi::Buffer<ffi::F32> bias, ffi::ResultBuffer<ffi::F32> y, float epsilon) {
  const int64_t rows = x.dimensions()[0], width = x.dimensions()[1];
  const float *scale = weight.typed_data(), *shift = bias.typed_data();
  const auto work = [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) {
      const float* from = x.typed_data() + r * width;
      float* to = y->typed_data() + r * width;
      const float mean = SumOf(from, width, [](auto v) { return v; }) / width;
      const float variance = SumOf(from, width, [mean](auto v) { return (v - mean) * (v - mean); }) / width;
      const float factor = 1.0f / std::sqrt(variance + epsilon);
      int64_t c = 0;
      for (; c + kLanes <= width; c += kLanes)
        Store(to + c, (Load(from + c) - mean) * factor * Load(scale + c) + Load(shift + c));
      for (; c < width; ++c) to[c] = (from[c] - mean) * factor * scale[c] + shift[c];
    }
  };
  ByShares(pool, rows, width, work);
  return ffi::Error::Success();
}

// Operands: x [rows, width], weight [width] or empty.
ffi::Error RmsNorm(ffi::ThreadPool pool, ffi::Buffer<ffi::F32> x, ffi::Buffer<ffi::F32> weight,
                   ffi::ResultBuffer<ffi::F32> y, float epsilon) {
  const int64_t rows = x.dimensions()[0], width = x.dimensions()[1];
  const float* scale = weight.element_count() ? weight.typed_data() : nullptr;
  ByShares(pool, rows, width, [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) {
      const float* from = x.typed_data() + r * width;
      float* to = y->typed_data() + r * width;
      const float mean = SumOf(from, width, [](auto v) { return v * v; }) / width;
      const float factor = 1.0f / std::sqrt(mean + epsilon);
      int64_t c = 0;
      for (; c + kLanes <= width; c += kLanes) {
        const Vec unit = Load(from + c) * factor;
        Store(to + c, scale == nullptr ? unit : unit * Load(scale + c));
      }
      for (; c < width; ++c) to[c] = from[c] * factor * (scale == nullptr ? 1 : scale[c]);
    }
  });
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(bireme_layer_norm, LayerNorm,
                              FloatRets<1>(BindFloats<3>()).Attr<float>("epsilon"));
XLA_FFI_DEFINE_HANDLER_SYMBOL(bireme_rms_norm, RmsNorm,
                              FloatRets<1>(BindFloats<2>()).Attr<float>("epsilon"));

}  // namespace bireme
