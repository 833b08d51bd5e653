// Layer norm of rows, as an XLA FFI handler for inference. (In training XLA fuses it with what is
// around it.)

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
  constexpr int64_t kShare = 1 << 13;  // elements that a thread takes at once
  const int64_t share = std::max<int64_t>(1, kShare / width);
  TeamFor(pool, CeilDiv(rows, share), [&](int64_t job) {
    work(job * share, std::min(rows, (job + 1) * share));
  });
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(bireme_layer_norm, LayerNorm,
                              FloatRets<1>(BindFloats<3>()).Attr<float>("epsilon"));

}  // namespace bireme
