// Squeeze and excitation: channels scaled by a small net of their means, as one XLA FFI handler.

#include <algorithm>

#include "epilogue.h"
#include "handlers.h"
#include "parallel.h"
#include "vectors.h"

namespace bireme {
namespace {

int64_t Padded(int64_t count) { return CeilDiv(count, kLanes) * kLanes; }

// out[j] = activation(bias[j] + sum over i: in[i] * weights[i][j]); both have room for whole
// registers.
void Dense(const float* in, int64_t count, const float* weights, const float* bias, int64_t width,
           const float* how, float* out) {
  std::memcpy(out, bias, sizeof(float) * width);
  std::memset(out + width, 0, sizeof(float) * (Padded(width) - width));
  for (int64_t i = 0; i < count; ++i)
    for (int64_t j = 0; j < width; ++j) out[j] += in[i] * weights[i * width + j];
  for (int64_t j = 0; j < width; j += kLanes)
    Store(out + j, Activate(Load(out + j), static_cast<int>(how[0]), how[1], how[2]));
}

// Operands: channels-last images, two matrices [in, out] with their biases. `numbers`: two
// activations, each with its two parameters, then what is added to the factors.
ffi::Error Excite(ffi::ThreadPool pool, ffi::Buffer<ffi::F32> x, ffi::Buffer<ffi::F32> first,
                  ffi::Buffer<ffi::F32> first_bias, ffi::Buffer<ffi::F32> second,
                  ffi::Buffer<ffi::F32> second_bias, ffi::ResultBuffer<ffi::F32> y,
                  ffi::Span<const float> numbers) {
  auto d = x.dimensions();
  const int64_t batch = d[0], channels = d[1], pixels = d[2] * d[3];
  const int64_t middle = first.dimensions()[1], room = Padded(channels);
  const bool small = batch * pixels * channels < (1 << 15);
  const int64_t threads = small ? 1 : std::max<int64_t>(pool.num_threads(), 1);
  const int64_t parts = std::min<int64_t>(pixels, 2 * threads);
  Buffer sums = Allocate(batch * parts * channels), factors = Allocate(batch * room);
  const auto all = [&](int64_t count, const auto& work) {
    if (small) {
      for (int64_t i = 0; i < count; ++i) work(i);
    } else {
      ParallelFor(pool, count, work);
    }
  };
  all(batch * parts, [&](int64_t job) {
    const int64_t n = job / parts, part = job % parts;
    float* sum = sums.get() + job * channels;
    std::memset(sum, 0, sizeof(float) * channels);
    for (int64_t p = pixels * part / parts; p < pixels * (part + 1) / parts; ++p) {
      const float* from = x.typed_data() + (n * pixels + p) * channels;
      for (int64_t c = 0; c < channels; ++c) sum[c] += from[c];
    }
  });
  for (int64_t n = 0; n < batch; ++n) {
    float* mean = sums.get() + n * parts * channels;
    for (int64_t part = 1; part < parts; ++part)
      for (int64_t c = 0; c < channels; ++c) mean[c] += mean[part * channels + c];
    for (int64_t c = 0; c < channels; ++c) mean[c] /= static_cast<float>(pixels);
    Buffer inner = Allocate(Padded(middle));
    Dense(mean, channels, first.typed_data(), first_bias.typed_data(), middle, numbers.begin(), inner.get());
    float* factor = factors.get() + n * room;
    Dense(inner.get(), middle, second.typed_data(), second_bias.typed_data(), channels, numbers.begin() + 3, factor);
    for (int64_t c = 0; c < channels; ++c) factor[c] += numbers[6];
  }
  all(batch * parts, [&](int64_t job) {
    const int64_t n = job / parts, part = job % parts;
    const float* factor = factors.get() + n * room;
    for (int64_t p = pixels * part / parts; p < pixels * (part + 1) / parts; ++p) {
      const float* from = x.typed_data() + (n * pixels + p) * channels;
      float* to = y->typed_data() + (n * pixels + p) * channels;
      for (int64_t c = 0; c < channels; ++c) to[c] = from[c] * factor[c];
    }
  });
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(bireme_squeeze_excite, Excite,
                              FloatRets<1>(BindFloats<5>()).Attr<ffi::Span<const float>>("numbers"));

}  // namespace bireme
