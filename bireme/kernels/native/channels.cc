// Sums over the pixels of channels-last images, one per channel: what batch norm needs, forward
// and backward. The elementwise rest stays XLA's, which fuses it with its neighbours.

#include <algorithm>
#include <vector>

#include "handlers.h"
#include "parallel.h"
#include "transpose.h"
#include "vectors.h"

namespace bireme {
namespace {

constexpr int64_t kRows = 32;  // pixels that are read twice while they are in the first-level cache

// Pixels are cut into equal jobs; the number does not depend on the threads, so results do not.
struct Jobs {
  int64_t pixels, count;
  explicit Jobs(int64_t all) : pixels(all), count(std::min<int64_t>(16, CeilDiv(all, kRows))) {}
  int64_t first(int64_t job) const { return pixels * job / count; }
};

// Calls body(channel, lanes) for runs of at most kLanes channels.
template <typename Body>
void OverChannels(int64_t channels, const Body& body) {
  for (int64_t c = 0; c < channels; c += kLanes) body(c, std::min<int64_t>(kLanes, channels - c));
}

// Mean and variance of every channel. A few pixels at a time get their own mean and squared
// distances, which are then joined (Chan, Golub and LeVeque): one pass over memory, and no
// difference of large squares.
ffi::Error Moments(ffi::ThreadPool pool, ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> mean,
                   ffi::ResultBuffer<ffi::F32> variance) {
  const int64_t channels = mean->element_count(), pixels = x.element_count() / channels;
  const Jobs jobs(pixels);
  Buffer found = Allocate(jobs.count * 2 * channels);  // per job: means, then squared distances
  ParallelFor(pool, jobs.count, [&](int64_t job) {
    float* means = found.get() + job * 2 * channels;
    float* spreads = means + channels;
    std::memset(means, 0, sizeof(float) * 2 * channels);
    const int64_t begin = jobs.first(job), end = jobs.first(job + 1);
    for (int64_t p = begin; p < end; p += kRows) {
      const int64_t rows = std::min(kRows, end - p), before = p - begin;
      const float part = static_cast<float>(rows) / static_cast<float>(before + rows);
      OverChannels(channels, [&](int64_t c, int64_t lanes) {
        const float* from = x.typed_data() + p * channels + c;
        Vec a{}, b{};
        int64_t r = 0;
        for (; r + 2 <= rows; r += 2) {
          a += LoadSome(from + r * channels, lanes);
          b += LoadSome(from + (r + 1) * channels, lanes);
        }
        if (r < rows) a += LoadSome(from + r * channels, lanes);
        const Vec centre = (a + b) / Splat(static_cast<float>(rows));
        Vec s{}, t{};
        for (r = 0; r + 2 <= rows; r += 2) {
          const Vec d = LoadSome(from + r * channels, lanes) - centre;
          const Vec e = LoadSome(from + (r + 1) * channels, lanes) - centre;
          s += d * d;
          t += e * e;
        }
        if (r < rows) {
          const Vec d = LoadSome(from + r * channels, lanes) - centre;
          s += d * d;
        }
        const Vec old = LoadSome(means + c, lanes), away = centre - old;
        StoreSome(means + c, old + away * Splat(part), lanes);
        StoreSome(spreads + c,
                  LoadSome(spreads + c, lanes) + s + t +
                      away * away * Splat(part * static_cast<float>(before)),
                  lanes);
      });
    }
  });
  for (int64_t c = 0; c < channels; ++c) {
    double centre = 0, spread = 0;
    for (int64_t job = 0; job < jobs.count; ++job) {
      const float* means = found.get() + job * 2 * channels;
      const double before = jobs.first(job), rows = jobs.first(job + 1) - before;
      const double away = means[c] - centre, part = rows / (before + rows);
      centre += away * part;
      spread += means[channels + c] + away * away * part * before;
    }
    mean->typed_data()[c] = static_cast<float>(centre);
    variance->typed_data()[c] = static_cast<float>(spread / static_cast<double>(pixels));
  }
  return ffi::Error::Success();
}

// Sums of the gradient, and of the gradient times the input's distance from `mean`.
ffi::Error Pulls(ffi::ThreadPool pool, ffi::Buffer<ffi::F32> g, ffi::Buffer<ffi::F32> x,
                 ffi::Buffer<ffi::F32> mean, ffi::ResultBuffer<ffi::F32> total,
                 ffi::ResultBuffer<ffi::F32> slope) {
  const int64_t channels = mean.element_count(), pixels = x.element_count() / channels;
  const Jobs jobs(pixels);
  Buffer found = Allocate(jobs.count * 2 * channels);
  ParallelFor(pool, jobs.count, [&](int64_t job) {
    float* sums = found.get() + job * 2 * channels;
    std::memset(sums, 0, sizeof(float) * 2 * channels);
    const int64_t begin = jobs.first(job), end = jobs.first(job + 1);
    for (int64_t p = begin; p < end; p += kRows) {
      const int64_t rows = std::min(kRows, end - p);
      OverChannels(channels, [&](int64_t c, int64_t lanes) {
        const float* grads = g.typed_data() + p * channels + c;
        const float* from = x.typed_data() + p * channels + c;
        const Vec centre = LoadSome(mean.typed_data() + c, lanes);
        Vec a{}, b{};
        for (int64_t r = 0; r < rows; ++r) {
          const Vec pull = LoadSome(grads + r * channels, lanes);
          a += pull;
          b += pull * (LoadSome(from + r * channels, lanes) - centre);
        }
        StoreSome(sums + c, LoadSome(sums + c, lanes) + a, lanes);
        float* slopes = sums + channels + c;
        StoreSome(slopes, LoadSome(slopes, lanes) + b, lanes);
      });
    }
  });
  for (int64_t c = 0; c < channels; ++c) {
    double a = 0, b = 0;
    for (int64_t job = 0; job < jobs.count; ++job) {
      a += found.get()[job * 2 * channels + c];
      b += found.get()[(job * 2 + 1) * channels + c];
    }
    total->typed_data()[c] = static_cast<float>(a);
    slope->typed_data()[c] = static_cast<float>(b);
  }
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(bireme_channel_moments, Moments,
                              FloatRets<2>(BindFloats<1>()));
XLA_FFI_DEFINE_HANDLER_SYMBOL(bireme_channel_pulls, Pulls,
                              FloatRets<2>(BindFloats<3>()));

}  // namespace bireme
