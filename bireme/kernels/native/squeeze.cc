// Squeeze and excitation: channels scaled by a small net of their means; and the means alone. XLA
// FFI handlers for inference.

#include <algorithm>

#include "epilogue.h"
#include "handlers.h"
#include "parallel.h"
#include "vectors.h"

namespace bireme {
namespace {

constexpr int64_t kColumns = 4 * kLanes;  // of a tile of a matrix

// W registers of `out`; see Dense.
template <int W>
void DenseTile(const float* in, int64_t count, const float* weights, const float* bias,
               int64_t width, const float* how, float* out) {
  Vec sums[W];
  for (int w = 0; w < W; ++w) sums[w] = Load(bias + w * kLanes);
  for (int64_t i = 0; i < count; ++i)
    for (int w = 0; w < W; ++w) sums[w] += in[i] * Load(weights + i * width + w * kLanes);
  for (int w = 0; w < W; ++w)
    Store(out + w * kLanes, Activate(sums[w], static_cast<int>(how[0]), how[1], how[2]));
}

// The columns [j, end) of out[j] = activation(bias[j] + sum over i: in[i] * weights[i][j]).
void Dense(const float* in, int64_t count, const float* weights, const float* bias, int64_t width,
           int64_t j, int64_t end, const float* how, float* out) {
  for (; j + kColumns <= end; j += kColumns)
    DenseTile<kColumns / kLanes>(in, count, weights + j, bias + j, width, how, out + j);
  for (; j + kLanes <= end; j += kLanes)
    DenseTile<1>(in, count, weights + j, bias + j, width, how, out + j);
  if (j == end) return;
  float sums[kLanes] = {};
  std::memcpy(sums, bias + j, sizeof(float) * (end - j));
  for (int64_t i = 0; i < count; ++i)
    for (int64_t c = j; c < end; ++c) sums[c - j] += in[i] * weights[i * width + c];
  Store(sums, Activate(Load(sums), static_cast<int>(how[0]), how[1], how[2]));
  std::memcpy(out + j, sums, sizeof(float) * (end - j));
}

// Channels-last images, and how the work on their pixels is shared out.
struct Pictures {
  ffi::ThreadPool& pool;
  const float* data;
  int64_t batch, channels, pixels, parts;
  bool small;  // nobody else is called for them

  Pictures(ffi::ThreadPool& p, ffi::Buffer<ffi::F32> x) : pool(p), data(x.typed_data()) {
    auto d = x.dimensions();
    batch = d[0], channels = d[1], pixels = d[2] * d[3];
    small = batch * pixels * channels < (1 << 15);
    const int64_t threads = small ? 1 : std::max<int64_t>(pool.num_threads(), 1);
    parts = std::min<int64_t>(pixels, 2 * threads);
  }

  template <typename Work>
  void All(int64_t count, const Work& work) const {
    if (small) {
      for (int64_t i = 0; i < count; ++i) work(i);
    } else {
      TeamFor(pool, count, work);
    }
  }

  // each(start(job), offset) for all pixels; a job is a part of an image.
  template <typename Start, typename Each>
  void Pixels(const Start& start, const Each& each) const {
    All(batch * parts, [&](int64_t job) {
      const int64_t n = job / parts, part = job % parts;
      auto state = start(job);
      for (int64_t p = pixels * part / parts; p < pixels * (part + 1) / parts; ++p)
        each(state, (n * pixels + p) * channels);
    });
  }

  // then(image, means of its channels).
  template <typename Then>
  void Means(const Then& then) const {
    Buffer sums = Allocate(batch * parts * channels);
    const auto start = [&](int64_t job) {
      float* sum = sums.get() + job * channels;
      std::memset(sum, 0, sizeof(float) * channels);
      return sum;
    };
    Pixels(start, [&](float* sum, int64_t at) {
      for (int64_t c = 0; c < channels; ++c) sum[c] += data[at + c];
    });
    All(batch, [&](int64_t n) {
      float* mean = sums.get() + n * parts * channels;
      for (int64_t part = 1; part < parts; ++part)
        for (int64_t c = 0; c < channels; ++c) mean[c] += mean[part * channels + c];
      for (int64_t c = 0; c < channels; ++c) mean[c] /= static_cast<float>(pixels);
      then(n, mean);
    });
  }
};

// Operands: channels-last images, two matrices [in, out] with their biases. `numbers`: two
// activations, each with its two parameters, then what is added to the factors.
ffi::Error Excite(ffi::ThreadPool pool, ffi::Buffer<ffi::F32> x, ffi::Buffer<ffi::F32> first,
                  ffi::Buffer<ffi::F32> first_bias, ffi::Buffer<ffi::F32> second,
                  ffi::Buffer<ffi::F32> second_bias, ffi::ResultBuffer<ffi::F32> y,
                  ffi::Span<const float> numbers) {
  const Pictures images(pool, x);
  const int64_t channels = images.channels, middle = first.dimensions()[1];
  Buffer means = Allocate(images.batch * channels), inner = Allocate(images.batch * middle);
  Buffer factors = Allocate(images.batch * channels);
  images.Means([&](int64_t n, const float* found) {
    std::memcpy(means.get() + n * channels, found, sizeof(float) * channels);
  });
  // A matrix product whose weights are read from memory by all threads.
  const auto product = [&](const float* in, int64_t count, const Floats& weights,
                           const Floats& bias, int64_t width, const float* how, float* out) {
    const bool alone = images.small && count * width < (1 << 14);
    const int64_t columns = alone ? width : kColumns, tiles = CeilDiv(width, columns);
    const auto work = [&](int64_t job) {
      const int64_t n = job / tiles, j = job % tiles * columns;
      Dense(in + n * count, count, weights.typed_data(), bias.typed_data(), width, j,
            std::min(width, j + columns), how, out + n * width);
    };
    if (alone) {
      for (int64_t job = 0; job < images.batch; ++job) work(job);
    } else {
      TeamFor(pool, images.batch * tiles, work);
    }
  };
  product(means.get(), channels, first, first_bias, middle, numbers.begin(), inner.get());
  product(inner.get(), middle, second, second_bias, channels, numbers.begin() + 3, factors.get());
  const float plus = numbers[6];
  const auto start = [&](int64_t job) { return factors.get() + job / images.parts * channels; };
  images.Pixels(start, [&](const float* factor, int64_t at) {
    const float* from = images.data + at;
    float* to = y->typed_data() + at;
    for (int64_t c = 0; c < channels; ++c) to[c] = from[c] * (factor[c] + plus);
  });
  return ffi::Error::Success();
}

// The means of the channels of channels-last images: [N, C].
ffi::Error Means(ffi::ThreadPool pool, ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> y) {
  const Pictures images(pool, x);
  images.Means([&](int64_t n, const float* means) {
    std::memcpy(y->typed_data() + n * images.channels, means, sizeof(float) * images.channels);
  });
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(bireme_squeeze_excite, Excite,
                              FloatRets<1>(BindFloats<5>()).Attr<ffi::Span<const float>>("numbers"));
XLA_FFI_DEFINE_HANDLER_SYMBOL(bireme_channel_means, Means, FloatRets<1>(BindFloats<1>()));

}  // namespace bireme
