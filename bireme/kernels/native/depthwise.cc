// Float32 depthwise convolution (one kernel per channel) of channels-last images, and its two
// gradients, as XLA FFI handlers.
//
// A row of results is a set of "lines": results x = phase + phases * j that sum the same kernel
// elements at source columns first + step * j. Where all elements are inside the image a stretch
// of results is computed together; at the edges each result asks which elements it has. Channels
// are walked in registers; the last register starts early enough to end with the last channel.

#include <algorithm>
#include <vector>

#include "handlers.h"
#include "parallel.h"
#include "vectors.h"

namespace bireme {
namespace {

constexpr int kStretch = 8;   // results computed together
constexpr int kColumns = 5;   // kernel columns whose weight gradients are summed together

struct Element {
  const float* source;  // for j = 0, channel 0
  int64_t weight;       // offset of its row of weights
  int64_t first, last;  // the j for which it is inside the image
};

struct Window {
  int64_t stride_h, stride_w, top, left, dil_h, dil_w;
};

struct Image {
  int64_t batch, channels, height, width;
  template <typename Dims>
  explicit Image(const Dims& d) : batch(d[0]), channels(d[1]), height(d[2]), width(d[3]) {}
  int64_t row() const { return width * channels; }
  int64_t size() const { return height * row(); }
};

int64_t FloorDiv(int64_t a, int64_t b) { return a >= 0 ? a / b : -CeilDiv(-a, b); }
int64_t UpDiv(int64_t a, int64_t b) { return -FloorDiv(-a, b); }

// The j with 0 <= first + step * j < limit, cut to [0, count).
void Inside(int64_t first, int64_t step, int64_t limit, int64_t count, Element& e) {
  e.first = std::min(count, std::max<int64_t>(0, UpDiv(-first, step)));
  e.last = std::max(e.first, std::min(count, FloorDiv(limit - 1 - first, step) + 1));
}

// Calls body(channel) for registers that cover all channels, the last one overlapping.
template <typename Body>
void OverChannels(int64_t channels, const Body& body) {
  for (int64_t c = 0; c < channels; c += kLanes) body(std::min(c, channels - kLanes));
}

template <int R>
void Stretch(const std::vector<Element>& elements, const float* weights, int64_t c, int64_t j,
             int64_t step, float* out, int64_t out_step) {
  Vec acc[R];
  for (int r = 0; r < R; ++r) acc[r] = Vec{};
  for (const Element& e : elements) {
    const Vec w = Load(weights + e.weight + c);
    const float* from = e.source + c + j * step;
    for (int r = 0; r < R; ++r) acc[r] += w * Load(from + r * step);
  }
  for (int r = 0; r < R; ++r) Store(out + c + (j + r) * out_step, acc[r]);
}

// One line of results; step and out_step are in floats per j.
void Line(const std::vector<Element>& elements, const float* weights, int64_t channels,
          int64_t count, int64_t step, float* out, int64_t out_step) {
  int64_t first = 0, last = count;
  for (const Element& e : elements) {
    first = std::max(first, e.first);
    last = std::min(last, e.last);
  }
  last = std::max(first, last);
  auto edge = [&](int64_t j) {
    float* to = out + j * out_step;
    std::memset(to, 0, sizeof(float) * channels);
    for (const Element& e : elements) {
      if (j < e.first || j >= e.last) continue;
      const float *w = weights + e.weight, *from = e.source + j * step;
      for (int64_t c = 0; c < channels; ++c) to[c] += w[c] * from[c];
    }
  };
  for (int64_t j = 0; j < std::min(first, count); ++j) edge(j);
  for (int64_t j = last; j < count; ++j) edge(j);
  if (channels < kLanes) {
    for (int64_t j = first; j < last; ++j) edge(j);
    return;
  }
  int64_t j = first;
  for (; j + kStretch <= last; j += kStretch)
    OverChannels(channels, [&](int64_t c) { Stretch<kStretch>(elements, weights, c, j, step, out, out_step); });
  for (; j + 2 <= last; j += 2)
    OverChannels(channels, [&](int64_t c) { Stretch<2>(elements, weights, c, j, step, out, out_step); });
  for (; j < last; ++j)
    OverChannels(channels, [&](int64_t c) { Stretch<1>(elements, weights, c, j, step, out, out_step); });
}

// [channels, 1, kh, kw] to [kh * kw, channels].
Buffer Rows(const float* w, int64_t channels, int64_t taps) {
  Buffer rows = Allocate(channels * taps);
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t t = 0; t < taps; ++t) rows.get()[t * channels + c] = w[c * taps + t];
  return rows;
}

ffi::Error Forward(ffi::ThreadPool pool, ffi::Buffer<ffi::F32> x, ffi::Buffer<ffi::F32> w,
                   ffi::ResultBuffer<ffi::F32> y, int64_t stride_h, int64_t stride_w, int64_t top,
                   int64_t left, int64_t dil_h, int64_t dil_w) {
  const Image in(x.dimensions()), out(y->dimensions());
  const int64_t kh = w.dimensions()[2], kw = w.dimensions()[3], channels = in.channels;
  Buffer rows = Rows(w.typed_data(), channels, kh * kw);
  ParallelFor(pool, out.batch * out.height, [&](int64_t job) {
    const int64_t n = job / out.height, oy = job % out.height;
    std::vector<Element> elements;
    for (int64_t ky = 0; ky < kh; ++ky) {
      const int64_t iy = oy * stride_h + ky * dil_h - top;
      if (iy < 0 || iy >= in.height) continue;
      for (int64_t kx = 0; kx < kw; ++kx) {
        const int64_t ix = kx * dil_w - left;
        Element e{x.typed_data() + n * in.size() + iy * in.row() + ix * channels,
                  (ky * kw + kx) * channels, 0, 0};
        Inside(ix, stride_w, in.width, out.width, e);
        if (e.first < e.last) elements.push_back(e);
      }
    }
    Line(elements, rows.get(), channels, out.width, stride_w * channels,
         y->typed_data() + n * out.size() + oy * out.row(), channels);
  });
  return ffi::Error::Success();
}

ffi::Error InputGradient(ffi::ThreadPool pool, ffi::Buffer<ffi::F32> g, ffi::Buffer<ffi::F32> w,
                         ffi::ResultBuffer<ffi::F32> dx, int64_t stride_h, int64_t stride_w,
                         int64_t top, int64_t left, int64_t dil_h, int64_t dil_w) {
  const Image grad(g.dimensions()), in(dx->dimensions());
  const int64_t kh = w.dimensions()[2], kw = w.dimensions()[3], channels = in.channels;
  Buffer rows = Rows(w.typed_data(), channels, kh * kw);
  ParallelFor(pool, in.batch * in.height, [&](int64_t job) {
    const int64_t n = job / in.height, iy = job % in.height;
    float* to = dx->typed_data() + n * in.size() + iy * in.row();
    std::vector<Element> elements;
    for (int64_t phase = 0; phase < std::min(stride_w, in.width); ++phase) {
      elements.clear();
      const int64_t count = CeilDiv(in.width - phase, stride_w);
      for (int64_t ky = 0; ky < kh; ++ky) {
        const int64_t y = iy + top - ky * dil_h;
        if (y < 0 || y % stride_h != 0 || y / stride_h >= grad.height) continue;
        for (int64_t kx = 0; kx < kw; ++kx) {
          const int64_t x = phase + left - kx * dil_w, ox = FloorDiv(x, stride_w);
          if (ox * stride_w != x) continue;
          Element e{g.typed_data() + n * grad.size() + y / stride_h * grad.row() + ox * channels,
                    (ky * kw + kx) * channels, 0, 0};
          Inside(ox, 1, grad.width, count, e);
          if (e.first < e.last) elements.push_back(e);
        }
      }
      Line(elements, rows.get(), channels, count, channels, to + phase * channels,
           stride_w * channels);
    }
  });
  return ffi::Error::Success();
}

// sums[k][c..] += sum over j of source[k][j] * grad[j], for K neighbouring kernel columns.
template <int K>
void Dots(const float* const* source, int64_t step, const float* grad, int64_t channels,
          int64_t first, int64_t last, int64_t c, float* const* sums) {
  Vec acc[K];
  for (int k = 0; k < K; ++k) acc[k] = Load(sums[k] + c);
  for (int64_t j = first; j < last; ++j) {
    const Vec g = Load(grad + j * channels + c);
    for (int k = 0; k < K; ++k) acc[k] += g * Load(source[k] + j * step + c);
  }
  for (int k = 0; k < K; ++k) Store(sums[k] + c, acc[k]);
}

void DotsOf(int columns, const float* const* source, int64_t step, const float* grad,
            int64_t channels, int64_t first, int64_t last, int64_t c, float* const* sums) {
  switch (columns) {
    case 1: return Dots<1>(source, step, grad, channels, first, last, c, sums);
    case 2: return Dots<2>(source, step, grad, channels, first, last, c, sums);
    case 3: return Dots<3>(source, step, grad, channels, first, last, c, sums);
    case 4: return Dots<4>(source, step, grad, channels, first, last, c, sums);
    default: return Dots<kColumns>(source, step, grad, channels, first, last, c, sums);
  }
}

// The j of one kernel element outside [first, last): sums[c] += source * grad.
void Remaining(const float* source, int64_t step, const float* grad, int64_t channels,
               int64_t first, int64_t last, float* sums) {
  for (int64_t j = first; j < last; ++j)
    for (int64_t c = 0; c < channels; ++c) sums[c] += source[j * step + c] * grad[j * channels + c];
}

ffi::Error WeightGradient(ffi::ThreadPool pool, ffi::Buffer<ffi::F32> x, ffi::Buffer<ffi::F32> g,
                          ffi::ResultBuffer<ffi::F32> dw, int64_t stride_h, int64_t stride_w,
                          int64_t top, int64_t left, int64_t dil_h, int64_t dil_w) {
  const Image in(x.dimensions()), grad(g.dimensions());
  const int64_t kh = dw->dimensions()[2], kw = dw->dimensions()[3], channels = in.channels;
  const int64_t taps = kh * kw, step = stride_w * channels;
  const int64_t lines = grad.batch * grad.height, jobs = std::min<int64_t>(lines, 16);
  Buffer sums = Allocate(jobs * taps * channels);
  ParallelFor(pool, jobs, [&](int64_t job) {
    float* mine = sums.get() + job * taps * channels;
    std::memset(mine, 0, sizeof(float) * taps * channels);
    for (int64_t line = lines * job / jobs; line < lines * (job + 1) / jobs; ++line) {
      const int64_t n = line / grad.height, oy = line % grad.height;
      const float* grads = g.typed_data() + n * grad.size() + oy * grad.row();
      for (int64_t ky = 0; ky < kh; ++ky) {
        const int64_t iy = oy * stride_h + ky * dil_h - top;
        if (iy < 0 || iy >= in.height) continue;
        const float* row = x.typed_data() + n * in.size() + iy * in.row();
        for (int64_t k0 = 0; k0 < kw; k0 += kColumns) {
          const int columns = static_cast<int>(std::min<int64_t>(kColumns, kw - k0));
          const float* source[kColumns];
          float* to[kColumns];
          Element own[kColumns];
          int64_t first = 0, last = grad.width;
          for (int k = 0; k < columns; ++k) {
            const int64_t ix = (k0 + k) * dil_w - left;
            source[k] = row + ix * channels;
            to[k] = mine + (ky * kw + k0 + k) * channels;
            Inside(ix, stride_w, in.width, grad.width, own[k]);
            first = std::max(first, own[k].first);
            last = std::min(last, own[k].last);
          }
          if (channels < kLanes || first >= last) first = last = grad.width;
          for (int k = 0; k < columns; ++k) {
            Remaining(source[k], step, grads, channels, own[k].first, std::min(first, own[k].last), to[k]);
            Remaining(source[k], step, grads, channels, std::max(last, own[k].first), own[k].last, to[k]);
          }
          if (first >= last) continue;
          int64_t c = 0;
          for (; c + kLanes <= channels; c += kLanes)
            DotsOf(columns, source, step, grads, channels, first, last, c, to);
          if (c < channels) {
            // Lanes below c are summed twice; the scratch row keeps only the new ones.
            float scratch[kColumns][kLanes] = {};
            const int64_t from = channels - kLanes;
            float* places[kColumns];
            for (int k = 0; k < columns; ++k) places[k] = scratch[k] - from;
            DotsOf(columns, source, step, grads, channels, first, last, from, places);
            for (int k = 0; k < columns; ++k)
              for (int64_t i = c; i < channels; ++i) to[k][i] += scratch[k][i - from];
          }
        }
      }
    }
  });
  float* out = dw->typed_data();
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t t = 0; t < taps; ++t) {
      float total = 0;
      for (int64_t job = 0; job < jobs; ++job) total += sums.get()[(job * taps + t) * channels + c];
      out[c * taps + t] = total;
    }
  return ffi::Error::Success();
}

}  // namespace

BIREME_CONV_HANDLER(bireme_depthwise_forward, Forward);
BIREME_CONV_HANDLER(bireme_depthwise_input_grad, InputGradient);
BIREME_CONV_HANDLER(bireme_depthwise_weight_grad, WeightGradient);
BIREME_CONV_GRADS_HANDLER(bireme_depthwise_grads, InputGradient, WeightGradient);

}  // namespace bireme
