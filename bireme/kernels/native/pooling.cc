// Max pooling of channels-last float32 images and its gradient, as XLA FFI handlers.

#include <algorithm>
#include <limits>

#include "handlers.h"
#include "parallel.h"
#include "vectors.h"

namespace bireme {
namespace {

struct Windows {
  int64_t batch, channels, height, width;          // of the images
  int64_t rows, columns;                           // of windows
  int64_t size_h, size_w, step_h, step_w, top, left;

  // Calls body(offset of a pixel in its image) for the pixels of a window, in reading order.
  template <typename Body>
  void Pixels(int64_t row, int64_t column, const Body& body) const {
    const int64_t y0 = row * step_h - top, x0 = column * step_w - left;
    const int64_t y1 = std::min(height, y0 + size_h), x1 = std::min(width, x0 + size_w);
    for (int64_t y = std::max<int64_t>(0, y0); y < y1; ++y)
      for (int64_t x = std::max<int64_t>(0, x0); x < x1; ++x) body((y * width + x) * channels);
  }
  int64_t image() const { return height * width * channels; }
  int64_t result() const { return rows * columns * channels; }
};

template <typename X, typename Y>
Windows Describe(const X& x, const Y& y, int64_t size_h, int64_t size_w, int64_t step_h,
                 int64_t step_w, int64_t top, int64_t left) {
  return {x[0], x[1], x[2], x[3], y[2], y[3], size_h, size_w, step_h, step_w, top, left};
}

ffi::Error Forward(ffi::ThreadPool pool, ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> y,
                   int64_t size_h, int64_t size_w, int64_t step_h, int64_t step_w, int64_t top,
                   int64_t left) {
  const Windows w = Describe(x.dimensions(), y->dimensions(), size_h, size_w, step_h, step_w, top, left);
  ParallelFor(pool, w.batch * w.rows, [&](int64_t job) {
    const float* image = x.typed_data() + job / w.rows * w.image();
    for (int64_t column = 0; column < w.columns; ++column) {
      float* out = y->typed_data() + (job * w.columns + column) * w.channels;
      std::fill(out, out + w.channels, -std::numeric_limits<float>::infinity());
      w.Pixels(job % w.rows, column, [&](int64_t at) {
        const float* from = image + at;
        // A NaN is taken, and stays.
        for (int64_t c = 0; c < w.channels; ++c)
          out[c] = (from[c] > out[c]) | (from[c] != from[c]) ? from[c] : out[c];
      });
    }
  });
  return ffi::Error::Success();
}

// Each window's gradient goes to the first of its largest pixels.
ffi::Error Gradient(ffi::ThreadPool pool, ffi::Buffer<ffi::F32> g, ffi::Buffer<ffi::F32> x,
                    ffi::Buffer<ffi::F32> y, ffi::ResultBuffer<ffi::F32> dx, int64_t size_h,
                    int64_t size_w, int64_t step_h, int64_t step_w, int64_t top, int64_t left) {
  const Windows w = Describe(x.dimensions(), g.dimensions(), size_h, size_w, step_h, step_w, top, left);
  // Windows overlap within an image, so an image's pixels are one job for each run of channels.
  const int64_t runs = CeilDiv(w.channels, kLanes);
  ParallelFor(pool, w.batch, [&](int64_t n) {
    std::memset(dx->typed_data() + n * w.image(), 0, sizeof(float) * w.image());
  });
  ParallelFor(pool, w.batch * runs, [&](int64_t job) {
    const int64_t n = job / runs, c0 = job % runs * kLanes;
    const int64_t lanes = std::min<int64_t>(kLanes, w.channels - c0);
    const float* image = x.typed_data() + n * w.image() + c0;
    float* to = dx->typed_data() + n * w.image() + c0;
    for (int64_t row = 0; row < w.rows; ++row)
      for (int64_t column = 0; column < w.columns; ++column) {
        const int64_t out = n * w.result() + (row * w.columns + column) * w.channels + c0;
        if (lanes == kLanes) {
          const Vec best = Load(y.typed_data() + out), none{};
          Vec rest = Load(g.typed_data() + out);
          w.Pixels(row, column, [&](int64_t at) {
            const auto hit = Load(image + at) == best;
            Store(to + at, Load(to + at) + (hit ? rest : none));
            rest = hit ? none : rest;
          });
          continue;
        }
        for (int64_t c = 0; c < lanes; ++c) {
          const float best = y.typed_data()[out + c];
          float rest = g.typed_data()[out + c];
          w.Pixels(row, column, [&](int64_t at) {
            if (image[at + c] != best) return;
            to[at + c] += rest;
            rest = 0;
          });
        }
      }
  });
  return ffi::Error::Success();
}

}  // namespace

#define BIREME_WINDOW(Bound)       \
  Bound.Attr<int64_t>("size_h")    \
      .Attr<int64_t>("size_w")     \
      .Attr<int64_t>("step_h")     \
      .Attr<int64_t>("step_w")     \
      .Attr<int64_t>("top")        \
      .Attr<int64_t>("left")

XLA_FFI_DEFINE_HANDLER_SYMBOL(bireme_max_pool_forward, Forward,
                              BIREME_WINDOW(ffi::Ffi::Bind()
                                                .Ctx<ffi::ThreadPool>()
                                                .Arg<ffi::Buffer<ffi::F32>>()
                                                .Ret<ffi::Buffer<ffi::F32>>()));
XLA_FFI_DEFINE_HANDLER_SYMBOL(bireme_max_pool_grad, Gradient,
                              BIREME_WINDOW(ffi::Ffi::Bind()
                                                .Ctx<ffi::ThreadPool>()
                                                .Arg<ffi::Buffer<ffi::F32>>()
                                                .Arg<ffi::Buffer<ffi::F32>>()
                                                .Arg<ffi::Buffer<ffi::F32>>()
                                                .Ret<ffi::Buffer<ffi::F32>>()));

}  // namespace bireme
