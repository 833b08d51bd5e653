// Float32 convolution of channels-last images, and its two gradients, as XLA FFI handlers.
//
// All three are sums over "taps". A tap is an offset into the (zero-padded) source image together
// with the run of consecutive floats read there; for a plain convolution one kernel row is one
// tap, because columns and channels lie side by side. A tile of kTall output pixels by
// kWide * kLanes output channels stays in registers while the taps are walked. Kernels of 3x3 with
// steps of one go another way: winograd.h.

#include <algorithm>
#include <type_traits>
#include <vector>

#include "handlers.h"
#include "parallel.h"
#include "vectors.h"
#include "winograd.h"

namespace bireme {
namespace {

struct Tap {
  int64_t source;  // offset of the run in the padded image, from a pixel's base
  int64_t weight;  // row of the packed weights at which the run starts
};

// out[r][0..kWide*kLanes) (+)= sum over taps, run: source[base[r] + tap + i] * weights[row + i].
template <int R, int W>
void Tile(const float* source, const int64_t* base, const Tap* taps, int64_t tap_count,
          int64_t run_begin, int64_t run_end, const float* weights, float* const* out,
          int64_t live, bool accumulate) {
  constexpr int kBlock = W * kLanes;
  Vec acc[R][W];
  for (int r = 0; r < R; ++r)
    for (int w = 0; w < W; ++w) acc[r][w] = Vec{};
  for (int64_t t = 0; t < tap_count; ++t) {
    const float* rows[R];
    for (int r = 0; r < R; ++r) rows[r] = source + base[r] + taps[t].source;
    const float* panel = weights + (taps[t].weight + run_begin) * kBlock;
    for (int64_t i = run_begin; i < run_end; ++i, panel += kBlock) {
      Vec b[W];
      for (int w = 0; w < W; ++w) b[w] = Load(panel + w * kLanes);
      for (int r = 0; r < R; ++r) {
        const Vec a = Splat(rows[r][i]);
        for (int w = 0; w < W; ++w) acc[r][w] += a * b[w];
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    if (live == kBlock) {
      for (int w = 0; w < W; ++w) {
        float* p = out[r] + w * kLanes;
        Store(p, accumulate ? Load(p) + acc[r][w] : acc[r][w]);
      }
    } else {
      float spill[kBlock];
      for (int w = 0; w < W; ++w) Store(spill + w * kLanes, acc[r][w]);
      for (int64_t c = 0; c < live; ++c) out[r][c] = accumulate ? out[r][c] + spill[c] : spill[c];
    }
  }
}

template <int W>
void TileRows(int rows, const float* source, const int64_t* base, const Tap* taps,
              int64_t tap_count, int64_t begin, int64_t end, const float* weights,
              float* const* out, int64_t live, bool accumulate) {
  switch (rows) {
    case 1: return Tile<1, W>(source, base, taps, tap_count, begin, end, weights, out, live, accumulate);
    case 2: return Tile<2, W>(source, base, taps, tap_count, begin, end, weights, out, live, accumulate);
    case 3: return Tile<3, W>(source, base, taps, tap_count, begin, end, weights, out, live, accumulate);
    case 4: return Tile<4, W>(source, base, taps, tap_count, begin, end, weights, out, live, accumulate);
    case 5: return Tile<5, W>(source, base, taps, tap_count, begin, end, weights, out, live, accumulate);
    default: return Tile<6, W>(source, base, taps, tap_count, begin, end, weights, out, live, accumulate);
  }
}

// Products that are added one after the other before their sum is put away.
constexpr int64_t kChain = 128;
// Floats of a tap that a slice of the reduction has at least: fewer cost time.
constexpr int64_t kLeastRun = 32;

// Where the pixels of a class of output pixels are, and which taps they sum.
struct PixelClass {
  std::vector<int64_t> base;    // offset of each pixel in the padded source
  std::vector<int64_t> target;  // offset of each pixel in the output image
  std::vector<Tap> taps;
};

// Channels of one image, with zeros around it (and, for a transposed step, nothing between).
void PadImage(const float* image, Shape s, int64_t top, int64_t left, int64_t padded_height,
              int64_t padded_width, float* out) {
  std::memset(out, 0, sizeof(float) * padded_height * padded_width * s.channels);
  for (int64_t y = 0; y < s.height; ++y) {
    const int64_t to = y + top;
    if (to < 0 || to >= padded_height) continue;
    const int64_t from_x = std::max<int64_t>(0, -left);
    const int64_t until_x = std::min(s.width, padded_width - left);
    if (until_x <= from_x) continue;
    float* row = out + (to * padded_width + left) * s.channels;
    const float* from = image + y * s.width * s.pitch;
    if (s.pitch == s.channels) {
      std::memcpy(row + from_x * s.channels, from + from_x * s.channels,
                  sizeof(float) * (until_x - from_x) * s.channels);
      continue;
    }
    for (int64_t x = from_x; x < until_x; ++x)
      std::memcpy(row + x * s.channels, from + x * s.pitch, sizeof(float) * s.channels);
  }
}

// Images with zeros around them, or the images themselves where nothing is to be added.
struct Padded {
  Buffer own;
  const float* data;
  int64_t image;  // floats from image to image
};

Padded Pad(ffi::ThreadPool& pool, const float* source, Shape in, int64_t top, int64_t left,
           int64_t height, int64_t width) {
  const int64_t image = height * width * in.channels;
  if (top == 0 && left == 0 && height == in.height && width == in.width && in.pitch == in.channels)
    return {Buffer(), source, image};
  Buffer padded = Allocate(in.batch * image);
  ParallelFor(pool, in.batch, [&](int64_t n) {
    PadImage(source + n * in.image(), in, top, left, height, width, padded.get() + n * image);
  });
  const float* data = padded.get();
  return {std::move(padded), data, image};
}

// The shared driver: every image of the batch, every block of output channels.
void RunClasses(ffi::ThreadPool& pool, const float* source, Shape in, int64_t top, int64_t left,
                int64_t padded_height, int64_t padded_width, const std::vector<PixelClass>& classes,
                int64_t run, const float* packed, int64_t packed_rows, int wide, float* out,
                Shape result) {
  const int64_t block = wide * kLanes;
  const int64_t blocks = CeilDiv(result.channels, block);
  const Padded padded = Pad(pool, source, in, top, left, padded_height, padded_width);
  // Work is cut into (block of channels) x (stretch of the whole batch's pixels). Within a job the
  // reduction is walked in slices: their weights stay in the cache, and sums of short sums round
  // less than one long sum.
  for (const PixelClass& c : classes) {
    const int64_t per_image = c.base.size(), taps = c.taps.size();
    const int64_t pixels = per_image * in.batch;
    const int64_t stretch = kTall * 32, stretches = CeilDiv(pixels, stretch);
    const int64_t step = taps == 0 ? run : std::min(run, std::max(kLeastRun, kChain / taps));
    ParallelFor(pool, blocks * stretches, [&](int64_t job) {
      const int64_t b = job / stretches, first = job % stretches * stretch;
      const int64_t last = std::min(pixels, first + stretch);
      const float* weights = packed + b * packed_rows * block;
      const int64_t live = std::min(block, result.channels - b * block);
      int64_t bases[kTall];
      float* targets[kTall];
      for (int64_t begin = 0; begin < run; begin += step) {
        const int64_t end = std::min(run, begin + step);
        for (int64_t p = first; p < last; p += kTall) {
          const int rows = static_cast<int>(std::min<int64_t>(kTall, last - p));
          for (int r = 0; r < rows; ++r) {
            const int64_t n = (p + r) / per_image, i = (p + r) % per_image;
            bases[r] = n * padded.image + c.base[i];
            targets[r] = out + n * result.image() + c.target[i] + b * block;
          }
          const bool more = begin > 0;
          WithWidth(wide, [&](auto w) {
            TileRows<w.value>(rows, padded.data, bases, c.taps.data(), taps, begin, end, weights,
                              targets, live, more);
          });
        }
      }
    });
  }
}

// Weights as panels [block of targets][row][block], rows ordered (ky, kx, reduced); flipped if they
// are not the forward ones.
Buffer Pack(ffi::ThreadPool& pool, const Weights& weights, int wide) {
  const int64_t block = wide * kLanes, taps = weights.taps, reduced = weights.reduced();
  const int64_t blocks = CeilDiv(weights.targets(), block);
  Buffer packed = Allocate(blocks * taps * reduced * block);
  const int64_t chunk = weights.chunk(), chunks = CeilDiv(reduced, chunk);
  ParallelFor(pool, blocks * chunks, [&](int64_t job) {
    const int64_t b = job / chunks, first = job % chunks * chunk;
    const int64_t last = std::min(reduced, first + chunk);
    std::vector<float> rows(chunk * taps * kLanes);
    for (int64_t c = 0; c < block; c += kLanes) {
      if (b * block + c < weights.targets())
        weights.Columns(b * block + c, first, last, rows.data());
      else
        std::fill(rows.begin(), rows.end(), 0.0f);
      float* panel = packed.get() + b * taps * reduced * block + c;
      for (int64_t k = 0; k < taps; ++k) {
        const int64_t at = weights.forward ? k : taps - 1 - k;
        for (int64_t r = first; r < last; ++r)
          Store(panel + (at * reduced + r) * block, Load(rows.data() + ((r - first) * taps + k) * kLanes));
      }
    }
  });
  return packed;
}

// One group's share of the weights.
Weights WeightsOf(const ffi::Buffer<ffi::F32>& w, int64_t groups, int64_t group, bool forward) {
  auto d = w.dimensions();
  const int64_t out_c = d[0] / groups, taps = d[2] * d[3];
  return {w.typed_data() + group * out_c * d[1] * taps, out_c, d[1], taps, forward};
}

ffi::Error Forward(ffi::ThreadPool pool, ffi::Buffer<ffi::F32> x, ffi::Buffer<ffi::F32> w,
                   ffi::ResultBuffer<ffi::F32> y, int64_t stride_h, int64_t stride_w, int64_t top,
                   int64_t left, int64_t dil_h, int64_t dil_w) {
  // Logical NCHW; the operands' layouts are channels-last.
  auto xd = x.dimensions(), wd = w.dimensions(), yd = y->dimensions();
  const int64_t groups = xd[1] / wd[1], kh = wd[2], kw = wd[3];
  const Shape in = Part(xd, groups), result = Part(yd, groups);
  if (SuitsWinograd(kh, kw, stride_h, stride_w, dil_h, dil_w, in, result)) {
    for (int64_t group = 0; group < groups; ++group)
      WinogradProducts(pool, x.typed_data() + group * in.channels, in, top, left,
                       WeightsOf(w, groups, group, true), y->typed_data() + group * result.channels,
                       result);
    return ffi::Error::Success();
  }
  const int wide = ChooseWidth(result.channels);
  const int64_t padded_h = std::max((result.height - 1) * stride_h + (kh - 1) * dil_h + 1, in.height + top);
  const int64_t padded_w = std::max((result.width - 1) * stride_w + (kw - 1) * dil_w + 1, in.width + left);
  PixelClass all;
  for (int64_t oy = 0; oy < result.height; ++oy)
    for (int64_t ox = 0; ox < result.width; ++ox) {
      all.base.push_back((oy * stride_h * padded_w + ox * stride_w) * in.channels);
      all.target.push_back((oy * result.width + ox) * result.pitch);
    }
  int64_t run = in.channels;
  if (dil_w == 1) {
    run = kw * in.channels;
    for (int64_t ky = 0; ky < kh; ++ky)
      all.taps.push_back({ky * dil_h * padded_w * in.channels, ky * kw * in.channels});
  } else {
    for (int64_t ky = 0; ky < kh; ++ky)
      for (int64_t kx = 0; kx < kw; ++kx)
        all.taps.push_back({(ky * dil_h * padded_w + kx * dil_w) * in.channels,
                            (ky * kw + kx) * in.channels});
  }
  const std::vector<PixelClass> classes{all};
  for (int64_t group = 0; group < groups; ++group) {
    Buffer packed = Pack(pool, WeightsOf(w, groups, group, true), wide);
    RunClasses(pool, x.typed_data() + group * in.channels, in, top, left, padded_h, padded_w,
               classes, run, packed.get(), kh * kw * in.channels, wide,
               y->typed_data() + group * result.channels, result);
  }
  return ffi::Error::Success();
}

// The input's gradient: output pixels are grouped by which kernel positions reach them.
ffi::Error InputGradient(ffi::ThreadPool pool, ffi::Buffer<ffi::F32> g, ffi::Buffer<ffi::F32> w,
                         ffi::ResultBuffer<ffi::F32> dx, int64_t stride_h, int64_t stride_w,
                         int64_t top, int64_t left, int64_t dil_h, int64_t dil_w) {
  auto gd = g.dimensions(), wd = w.dimensions(), xd = dx->dimensions();
  const int64_t groups = xd[1] / wd[1], kh = wd[2], kw = wd[3];
  const Shape in = Part(gd, groups), result = Part(xd, groups);
  if (SuitsWinograd(kh, kw, stride_h, stride_w, dil_h, dil_w, in, result)) {
    for (int64_t group = 0; group < groups; ++group)
      WinogradProducts(pool, g.typed_data() + group * in.channels, in, kh - 1 - top, kw - 1 - left,
                       WeightsOf(w, groups, group, false), dx->typed_data() + group * result.channels,
                       result);
    return ffi::Error::Success();
  }
  const int wide = ChooseWidth(result.channels);
  // Room for every position that a kernel element can ask for.
  const int64_t reach_h = (kh - 1) * dil_h, reach_w = (kw - 1) * dil_w;
  const int64_t pad_top = CeilDiv(reach_h, stride_h), pad_left = CeilDiv(reach_w, stride_w);
  const int64_t padded_h = std::max((result.height - 1 + top) / stride_h + pad_top + 1, in.height + pad_top);
  const int64_t padded_w = std::max((result.width - 1 + left) / stride_w + pad_left + 1, in.width + pad_left);
  std::vector<PixelClass> classes(stride_h * stride_w);
  for (int64_t iy = 0; iy < result.height; ++iy)
    for (int64_t ix = 0; ix < result.width; ++ix) {
      const int64_t py = iy + top, px = ix + left;
      PixelClass& c = classes[(py % stride_h) * stride_w + px % stride_w];
      c.base.push_back(((py / stride_h + pad_top) * padded_w + px / stride_w + pad_left) * in.channels);
      c.target.push_back((iy * result.width + ix) * result.pitch);
    }
  const bool plain = stride_w == 1 && dil_w == 1;
  for (int64_t cy = 0; cy < stride_h; ++cy)
    for (int64_t cx = 0; cx < stride_w; ++cx) {
      PixelClass& c = classes[cy * stride_w + cx];
      for (int64_t ky = kh - 1; ky >= 0; --ky) {
        const int64_t dy = cy - ky * dil_h;
        if (((dy % stride_h) + stride_h) % stride_h != 0) continue;
        const int64_t row = (kh - 1 - ky) * kw;  // the packed kernel is flipped
        if (plain) {
          c.taps.push_back({(dy / stride_h * padded_w - (kw - 1)) * in.channels, row * in.channels});
          continue;
        }
        for (int64_t kx = kw - 1; kx >= 0; --kx) {
          const int64_t dxo = cx - kx * dil_w;
          if (((dxo % stride_w) + stride_w) % stride_w != 0) continue;
          c.taps.push_back({(dy / stride_h * padded_w + dxo / stride_w) * in.channels,
                            (row + kw - 1 - kx) * in.channels});
        }
      }
    }
  const int64_t run = plain ? kw * in.channels : in.channels;
  for (int64_t group = 0; group < groups; ++group) {
    Buffer packed = Pack(pool, WeightsOf(w, groups, group, false), wide);
    RunClasses(pool, g.typed_data() + group * in.channels, in, pad_top, pad_left, padded_h,
               padded_w, classes, run, packed.get(), kh * kw * in.channels, wide,
               dx->typed_data() + group * result.channels, result);
  }
  return ffi::Error::Success();
}

// Adds to out[R rows of the reduced run][block of output channels] the sums over a chunk of pixels.
template <int R, int W>
void WeightTile(const float* source, const int64_t* base, const float* grad, const int64_t* at,
                int64_t pixels, float* out, int64_t ld) {
  Vec acc[R][W];
  for (int r = 0; r < R; ++r)
    for (int w = 0; w < W; ++w) acc[r][w] = Vec{};
  for (int64_t p = 0; p < pixels; ++p) {
    const float* a = source + base[p];
    const float* g = grad + at[p];
    Vec b[W];
    for (int w = 0; w < W; ++w) b[w] = Load(g + w * kLanes);
    for (int r = 0; r < R; ++r) {
      const Vec s = Splat(a[r]);
      for (int w = 0; w < W; ++w) acc[r][w] += s * b[w];
    }
  }
  for (int r = 0; r < R; ++r)
    for (int w = 0; w < W; ++w) {
      float* to = out + r * ld + w * kLanes;
      Store(to, Load(to) + acc[r][w]);
    }
}

template <int W>
void WeightRows(int rows, const float* source, const int64_t* base, const float* grad,
                const int64_t* at, int64_t pixels, float* out, int64_t ld) {
  switch (rows) {
    case 1: return WeightTile<1, W>(source, base, grad, at, pixels, out, ld);
    case 2: return WeightTile<2, W>(source, base, grad, at, pixels, out, ld);
    case 3: return WeightTile<3, W>(source, base, grad, at, pixels, out, ld);
    case 4: return WeightTile<4, W>(source, base, grad, at, pixels, out, ld);
    case 5: return WeightTile<5, W>(source, base, grad, at, pixels, out, ld);
    default: return WeightTile<6, W>(source, base, grad, at, pixels, out, ld);
  }
}

void WeightGradientOf(ffi::ThreadPool& pool, const float* x, Shape in, const float* g, Shape grad,
                      float* result, int64_t kh, int64_t kw, int64_t stride_h, int64_t stride_w,
                      int64_t top, int64_t left, int64_t dil_h, int64_t dil_w) {
  if (SuitsWinograd(kh, kw, stride_h, stride_w, dil_h, dil_w, in, grad))
    return WinogradWeightGradient(pool, x, in, g, grad, top, left, result);
  const int64_t out_c = grad.channels, in_c = in.channels;
  const int wide = ChooseWidth(out_c);
  const int64_t block = wide * kLanes, blocks = CeilDiv(out_c, block);
  const int64_t padded_h = std::max((grad.height - 1) * stride_h + (kh - 1) * dil_h + 1, in.height + top);
  const int64_t padded_w = std::max((grad.width - 1) * stride_w + (kw - 1) * dil_w + 1, in.width + left);
  const Padded padded = Pad(pool, x, in, top, left, padded_h, padded_w);
  // Gradients in panels of `block` channels, so that a pixel's block is one run of memory.
  const int64_t pixels = grad.batch * grad.pixels();
  const bool as_is = blocks == 1 && block == grad.pitch;
  Buffer panels = as_is ? Buffer() : Allocate(blocks * pixels * block);
  const float* grad_panels = as_is ? g : panels.get();
  if (!as_is) ParallelFor(pool, in.batch, [&](int64_t n) {
    for (int64_t p = n * grad.pixels(); p < (n + 1) * grad.pixels(); ++p)
      for (int64_t b = 0; b < blocks; ++b) {
        const int64_t live = std::min(block, out_c - b * block);
        float* to = panels.get() + (b * pixels + p) * block;
        std::memcpy(to, g + p * grad.pitch + b * block, sizeof(float) * live);
        if (live < block) std::memset(to + live, 0, sizeof(float) * (block - live));
      }
  });
  std::vector<int64_t> base(pixels), at(pixels);
  for (int64_t p = 0; p < pixels; ++p) {
    const int64_t n = p / grad.pixels(), oy = p % grad.pixels() / grad.width, ox = p % grad.width;
    base[p] = n * padded.image + (oy * stride_h * padded_w + ox * stride_w) * in.channels;
    at[p] = p * block;
  }
  const bool joined = dil_w == 1;
  const int64_t taps = joined ? kh : kh * kw, run = joined ? kw * in_c : in_c;
  const int64_t rows = kh * kw * in_c;
  Buffer sums = Allocate(blocks * rows * block);
  const int64_t strip = kTall * std::max<int64_t>(1, CeilDiv(run, kTall * 4));
  const int64_t strips = CeilDiv(run, strip);
  ParallelFor(pool, blocks * taps * strips, [&](int64_t job) {
    const int64_t b = job / (taps * strips), t = job / strips % taps, s = job % strips;
    const int64_t first = s * strip, last = std::min(run, first + strip);
    const int64_t ky = joined ? t : t / kw, kx = joined ? 0 : t % kw;
    const float* source = padded.data + (ky * dil_h * padded_w + kx * dil_w) * in.channels;
    float* out = sums.get() + (b * rows + t * run) * block;
    std::memset(out + first * block, 0, sizeof(float) * (last - first) * block);
    for (int64_t p = 0; p < pixels; p += kChain) {
      const int64_t count = std::min(kChain, pixels - p);
      for (int64_t i = first; i < last; i += kTall) {
        const int height = static_cast<int>(std::min<int64_t>(kTall, last - i));
        const float* grads = grad_panels + b * pixels * block;
        WithWidth(wide, [&](auto w) {
          WeightRows<w.value>(height, source + i, base.data() + p, grads, at.data() + p, count,
                              out + i * block, block);
        });
      }
    }
  });
  // Rows (ky, kx, in) of panels back to OIHW.
  const int64_t per_job = kh * kw <= 16 ? 16 : 2, parts = CeilDiv(in_c, per_job);
  ParallelFor(pool, parts * blocks, [&](int64_t job) {
    const int64_t b = job / parts, first = job % parts * per_job;
    const int64_t last = std::min(in_c, first + per_job), live = std::min(block, out_c - b * block);
    std::vector<float> columns(per_job * kh * kw * kLanes);
    for (int64_t c = 0; c < live; c += kLanes) {
      for (int64_t i = first; i < last; ++i)
        for (int64_t k = 0; k < kh * kw; ++k)
          Store(columns.data() + ((i - first) * kh * kw + k) * kLanes,
                Load(sums.get() + (b * rows + k * in_c + i) * block + c));
      PutColumns(columns.data(), first * kh * kw, last * kh * kw,
                 result + (b * block + c) * in_c * kh * kw, live - c, in_c * kh * kw);
    }
  });
}

ffi::Error WeightGradient(ffi::ThreadPool pool, ffi::Buffer<ffi::F32> x, ffi::Buffer<ffi::F32> g,
                          ffi::ResultBuffer<ffi::F32> dw, int64_t stride_h, int64_t stride_w,
                          int64_t top, int64_t left, int64_t dil_h, int64_t dil_w) {
  auto xd = x.dimensions(), gd = g.dimensions(), wd = dw->dimensions();
  const int64_t groups = xd[1] / wd[1], kh = wd[2], kw = wd[3];
  const Shape in = Part(xd, groups), grad = Part(gd, groups);
  for (int64_t group = 0; group < groups; ++group)
    WeightGradientOf(pool, x.typed_data() + group * in.channels, in,
                     g.typed_data() + group * grad.channels, grad,
                     dw->typed_data() + group * grad.channels * in.channels * kh * kw, kh, kw,
                     stride_h, stride_w, top, left, dil_h, dil_w);
  return ffi::Error::Success();
}

}  // namespace

BIREME_CONV_HANDLER(bireme_conv_forward, Forward);
BIREME_CONV_HANDLER(bireme_conv_input_grad, InputGradient);
BIREME_CONV_HANDLER(bireme_conv_weight_grad, WeightGradient);
BIREME_CONV_GRADS_HANDLER(bireme_conv_grads, InputGradient, WeightGradient);

}  // namespace bireme
