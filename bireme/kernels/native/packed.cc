// Inference: products of images or rows with weights that were packed once, when the model was
// loaded, with everything that follows element by element done on the way to memory.
//
// A tile of output pixels by output channels stays in registers. For each of its pixels a table
// says where the input of each kernel position ("tap") starts; positions outside the image point
// at zeros, so nothing is padded. Images of few channels (a net's first layer) are the exception:
// they are copied into a padded buffer, where one kernel row is one run of memory.

#include <algorithm>
#include <vector>

#include "epilogue.h"
#include "handlers.h"
#include "parallel.h"
#include "vectors.h"

namespace bireme {
namespace {

// What a kernel needs to know about its window: the order of the attribute "window".
struct Window {
  int64_t kernel_h, kernel_w, stride_h, stride_w, top, left, dil_h, dil_w, planar;
  explicit Window(ffi::Span<const int64_t> a)
      : kernel_h(a[0]), kernel_w(a[1]), stride_h(a[2]), stride_w(a[3]), top(a[4]), left(a[5]),
        dil_h(a[6]), dil_w(a[7]), planar(a[8]) {}
  int64_t taps() const { return kernel_h * kernel_w; }
  bool pointwise() const {
    return taps() == 1 && stride_h == 1 && stride_w == 1 && top == 0 && left == 0;
  }
};

// Channels-last images; rows of a matrix are the pixels of one line.
struct Images {
  int64_t batch, height, width, channels;
  template <typename Dims>
  explicit Images(const Dims& d) {
    if (d.size() == 4) {
      batch = d[0], channels = d[1], height = d[2], width = d[3];
    } else {
      batch = 1, height = 1, width = d[0], channels = d[1];
    }
  }
  int64_t pixels() const { return batch * height * width; }
};

// Where the taps of output pixels start.
struct Taps {
  const float* data;
  int64_t height, width, pixel;  // of the images that are read; floats from pixel to pixel
  int64_t out_h, out_w;
  int64_t rows, columns, stride_h, stride_w, top, left, dil_h, dil_w;
  bool pointwise;
  const float* zeros;
  int64_t count() const { return rows * columns; }

  // Whether so many output pixels lie in one line, with all of their taps in the image.
  bool Inside(int64_t ox, int64_t oy, int size) const {
    const int64_t y = oy * stride_h - top, x = ox * stride_w - left;
    return ox + size <= out_w && y >= 0 && y + (rows - 1) * dil_h < height && x >= 0 &&
           x + (size - 1) * stride_w + (columns - 1) * dil_w < width;
  }

  // table[tap * size + r] for the pixels first, first + 1, ...
  void Fill(int64_t first, int size, const float** table) const {
    if (pointwise) {
      for (int r = 0; r < size; ++r) table[r] = data + (first + r) * pixel;
      return;
    }
    int64_t ox = first % out_w, oy = first / out_w % out_h, n = first / (out_w * out_h);
    if (Inside(ox, oy, size)) {  // all taps are equally far from each other
      const int64_t y = oy * stride_h - top, x = ox * stride_w - left, next = stride_w * pixel;
      const float* corner = data + ((n * height + y) * width + x) * pixel;
      for (int64_t ky = 0; ky < rows; ++ky)
        for (int64_t kx = 0; kx < columns; ++kx, table += size) {
          const float* start = corner + (ky * dil_h * width + kx * dil_w) * pixel;
          for (int r = 0; r < size; ++r) table[r] = start + r * next;
        }
      return;
    }
    for (int r = 0; r < size; ++r) {
      const float* image = data + n * height * width * pixel;
      const float** entry = table + r;
      for (int64_t ky = 0; ky < rows; ++ky) {
        const int64_t y = oy * stride_h + ky * dil_h - top;
        const bool inside = y >= 0 && y < height;
        int64_t x = ox * stride_w - left;
        for (int64_t kx = 0; kx < columns; ++kx, x += dil_w, entry += size)
          *entry = inside && x >= 0 && x < width ? image + (y * width + x) * pixel : zeros;
      }
      if (++ox == out_w) {
        ox = 0;
        if (++oy == out_h) oy = 0, ++n;
      }
    }
  }
};

// A panel is W registers wide and, where H is 1, half a register more.
template <int W, int H>
constexpr int kPanel = W * kLanes + H * kHalf;

// How tall a tile of so many registers is: as many accumulators as the register file takes.
constexpr int Tall(int registers) {
#if defined(__AVX512F__)
  return registers == 1 ? 16 : registers == 2 ? 12 : registers == 3 ? 8 : 6;
#else
  return registers == 1 ? 8 : registers == 2 ? 6 : 4;
#endif
}

// out[r * stride][0..panel) = sum over taps and run: table[t][r][i] * panel[t * run + i], for the part
// [begin, end) of every run.
template <int R, int W, int H>
void Tile(const float* const* table, int64_t taps, int64_t run, int64_t begin, int64_t end,
          const float* panel, float* out, int64_t stride, int64_t channel, int64_t live, bool more,
          const Epilogue* after) {
  constexpr int kBlock = kPanel<W, H>, kFull = W * kLanes;
  Vec acc[R][W + 1];  // W may be 0; what is not used takes no register
  HalfVec half[R];
  for (int r = 0; r < R; ++r) {
    for (int w = 0; w < W; ++w) acc[r][w] = Vec{};
    half[r] = HalfVec{};
  }
  for (int64_t t = 0; t < taps; ++t) {
    const float* rows[R];
    for (int r = 0; r < R; ++r) rows[r] = table[t * R + r];
    const float* weights = panel + (t * run + begin) * kBlock;
    for (int64_t i = begin; i < end; ++i, weights += kBlock) {
      Vec b[W + 1];
      HalfVec last{};
      for (int w = 0; w < W; ++w) b[w] = Load(weights + w * kLanes);
      if constexpr (H) last = LoadAs<HalfVec>(weights + kFull);
      for (int r = 0; r < R; ++r) {
        const Vec a = Splat(rows[r][i]);
        for (int w = 0; w < W; ++w) acc[r][w] += a * b[w];
        if constexpr (H) half[r] += (rows[r][i] - HalfVec{}) * last;
      }
    }
  }
  const auto put = [&](auto v, float* to, int64_t at) {
    using V = decltype(v);
    if (more) v += LoadAs<V>(to);
    StoreAs(to, after ? after->Sum(v, to, at) : v);
  };
  if (live == kBlock) {
    for (int r = 0; r < R; ++r) {
      float* to = out + r * stride;
      for (int w = 0; w < W; ++w) put(acc[r][w], to + w * kLanes, channel + w * kLanes);
      if constexpr (H) put(half[r], to + kFull, channel + kFull);
    }
  } else {
    for (int r = 0; r < R; ++r) {
      float spill[kBlock];
      for (int w = 0; w < W; ++w) Store(spill + w * kLanes, acc[r][w]);
      if constexpr (H) StoreAs(spill + kFull, half[r]);
      float* to = out + r * stride;
      int64_t c = 0;
      for (; c + kHalf <= live; c += kHalf)
        put(LoadAs<HalfVec>(spill + c), to + c, channel + c);
      if (c == live) continue;
      if (more)
        for (int64_t i = c; i < live; ++i) spill[i] += to[i];
      if (after) after->SumSome(spill + c, to + c, channel + c, live - c);
      std::memcpy(to + c, spill + c, sizeof(float) * (live - c));
    }
  }
  if (after) after->Finish(out, stride, R, live);
}

struct Product {
  Taps taps;
  int64_t run;  // floats read at each tap
  const float* packed;
  int64_t block, out_channels, pixels;
  float* out;
  const Epilogue* after;
};

template <int R, int W, int H>
void TileAt(const Product& p, int64_t first, int64_t b, int64_t begin, int64_t end,
            std::vector<const float*>& table) {
  const int64_t taps = p.taps.count();
  p.taps.Fill(first, R, table.data());
  const int64_t channel = b * p.block, live = std::min(p.block, p.out_channels - channel);
  Tile<R, W, H>(table.data(), taps, p.run, begin, end, p.packed + b * taps * p.run * p.block,
                p.out + first * p.out_channels + channel, p.out_channels, channel, live, begin > 0,
                end == p.run ? p.after : nullptr);
}

// Pixels [first, last) of a block of channels, in tiles of R and then of smaller ones.
template <int R, int W, int H>
void Stretch(const Product& p, int64_t first, int64_t last, int64_t b, int64_t begin, int64_t end,
             std::vector<const float*>& table) {
  for (; first + R <= last; first += R) TileAt<R, W, H>(p, first, b, begin, end, table);
  if constexpr (R > 1) {
    if (first < last) Stretch<R / 2, W, H>(p, first, last, b, begin, end, table);
  }
}

constexpr int64_t kSmall = 1 << 17;  // products for which nobody else is woken

template <int W, int H>
void Run(ffi::ThreadPool& pool, const Product& p) {
  const int64_t blocks = CeilDiv(p.out_channels, p.block), taps = p.taps.count();
  // Within a job the sum is walked in slices whose weights stay in the second-level cache.
  const int64_t slice = std::max<int64_t>(1, 128 * 1024 / p.block);
  const int64_t step = std::max<int64_t>(1, std::min(p.run, slice / taps));
  const bool small = p.pixels * p.out_channels * taps * p.run < kSmall;
  // Pixels are cut so that every thread has several jobs, in whole tiles where there are many.
  constexpr int64_t tall = Tall(W + H);
  const int64_t wanted = CeilDiv(4 * std::max<int64_t>(pool.num_threads(), 1), blocks);
  int64_t stretch = CeilDiv(CeilDiv(p.pixels, wanted), tall) * tall;
  stretch = std::min(stretch, tall * 32);
  const int64_t stretches = CeilDiv(p.pixels, stretch), jobs = blocks * stretches;
  // In the order of pixels, as all kernels are shared out: a thread reads what it has written.
  const auto work = [&](int64_t job) {
    const int64_t b = job % blocks, first = job / blocks * stretch;
    const int64_t last = std::min(p.pixels, first + stretch);
    std::vector<const float*> table(taps * tall);
    for (int64_t begin = 0; begin < p.run; begin += step)
      Stretch<tall, W, H>(p, first, last, b, begin, std::min(p.run, begin + step), table);
  };
  if (small) {
    for (int64_t job = 0; job < jobs; ++job) work(job);
  } else {
    TeamFor(pool, jobs, work);
  }
}

// Few channels: images with zeros around them, channels-last, from either order of memory.
Buffer Padded(ffi::ThreadPool& pool, const float* x, const Images& in, const Window& w,
              int64_t height, int64_t width) {
  const int64_t channels = in.channels, line = width * channels;
  Buffer padded = Allocate(in.batch * height * line);
  TeamFor(pool, CeilDiv(in.batch * height, 16), [&](int64_t job) {
    const int64_t end = std::min(in.batch * height, job * 16 + 16);
    for (int64_t row = job * 16; row < end; ++row) {
      float* to = padded.get() + row * line;
      const int64_t n = row / height, y = row % height - w.top;
      std::memset(to, 0, sizeof(float) * line);
      if (y < 0 || y >= in.height) continue;
      to += w.left * channels;
      const int64_t count = std::min(in.width, width - w.left);
      if (!w.planar) {
        const float* from = x + (n * in.height + y) * in.width * channels;
        std::memcpy(to, from, sizeof(float) * count * channels);
        continue;
      }
      const int64_t plane = in.height * in.width;
      const float* from = x + n * channels * plane + y * in.width;
      if (channels == 3) {  // colours, in one go
        for (int64_t i = 0; i < count; ++i)
          for (int64_t c = 0; c < 3; ++c) to[i * 3 + c] = from[c * plane + i];
        continue;
      }
      for (int64_t c = 0; c < channels; ++c)
        for (int64_t i = 0; i < count; ++i) to[i * channels + c] = from[c * plane + i];
    }
  });
  return padded;
}

Taps TapsOf(const float* x, const Images& in, const Images& out, const Window& w,
            const float* zeros) {
  return {x, in.height, in.width, in.channels, out.height, out.width, w.kernel_h, w.kernel_w,
          w.stride_h, w.stride_w, w.top, w.left, w.dil_h, w.dil_w, w.pointwise(), zeros};
}

// Operands: x, packed weights [blocks, taps * channels, block], bias, and perhaps what is added.
ffi::Error Convolve(ffi::ThreadPool pool, ffi::Buffer<ffi::F32> x, ffi::Buffer<ffi::F32> packed,
                    ffi::Buffer<ffi::F32> bias, ffi::RemainingArgs rest,
                    ffi::ResultBuffer<ffi::F32> y, ffi::Span<const int64_t> window,
                    ffi::Span<const float> numbers) {
  const Images in(x.dimensions()), out(y->dimensions());
  const Window w(window);
  const Epilogue after(bias.typed_data(), Added(rest), y->typed_data(), numbers);
  Buffer own;
  std::vector<float> zeros;
  Product p{};
  p.run = in.channels;
  if (in.channels < kLanes && w.taps() > 1 && w.dil_w == 1) {
    const int64_t height = std::max((out.height - 1) * w.stride_h + (w.kernel_h - 1) * w.dil_h + 1, in.height + w.top);
    const int64_t width = std::max((out.width - 1) * w.stride_w + w.kernel_w, in.width + w.left);
    own = Padded(pool, x.typed_data(), in, w, height, width);
    p.taps = {own.get(), height, width, in.channels, out.height, out.width, w.kernel_h, 1,
              w.stride_h, w.stride_w, 0, 0, w.dil_h, 1, false, nullptr};
    p.run = w.kernel_w * in.channels;
  } else {
    zeros.resize(in.channels);
    p.taps = TapsOf(x.typed_data(), in, out, w, zeros.data());
  }
  p.packed = packed.typed_data();
  p.block = packed.dimensions()[2];
  p.out_channels = out.channels;
  p.pixels = out.pixels();
  p.out = y->typed_data();
  p.after = &after;
  switch (p.block / kHalf) {
    case 1: Run<0, 1>(pool, p); break;
    case 2: Run<1, 0>(pool, p); break;
    case 3: Run<1, 1>(pool, p); break;
    case 4: Run<2, 0>(pool, p); break;
#if defined(__AVX512F__)
    case 5: Run<2, 1>(pool, p); break;
    case 6: Run<3, 0>(pool, p); break;
    case 7: Run<3, 1>(pool, p); break;
    case 8: Run<4, 0>(pool, p); break;
#endif
    default: return ffi::Error::InvalidArgument("weights packed for another machine");
  }
  return ffi::Error::Success();
}

// P pixels by V registers of channels of a convolution with one kernel per channel.
template <int P, int V>
inline void ChannelTile(const float* const* table, int64_t taps, const float* weights,
                        int64_t channels, int64_t c, float* out, const Epilogue& after) {
  Vec acc[P][V];
  for (int p = 0; p < P; ++p)
    for (int v = 0; v < V; ++v) acc[p][v] = Vec{};
  for (int64_t t = 0; t < taps; ++t) {
    Vec b[V];
    for (int v = 0; v < V; ++v) b[v] = Load(weights + t * channels + c + v * kLanes);
    for (int p = 0; p < P; ++p)
      for (int v = 0; v < V; ++v) acc[p][v] += Load(table[t * P + p] + c + v * kLanes) * b[v];
  }
  for (int p = 0; p < P; ++p)
    for (int v = 0; v < V; ++v) {
      float* to = out + p * channels + c + v * kLanes;
      Store(to, after.Sum(acc[p][v], to, c + v * kLanes));
    }
}

template <int P>
void ChannelPixels(const Taps& taps, const float* weights, int64_t channels, int64_t first,
                   float* result, const Epilogue& after, std::vector<const float*>& table) {
  taps.Fill(first, P, table.data());
  const int64_t count = taps.count();
  float* out = result + first * channels;
  int64_t c = 0;
  for (; c + 2 * kLanes <= channels; c += 2 * kLanes)
    ChannelTile<P, 2>(table.data(), count, weights, channels, c, out, after);
  for (; c + kLanes <= channels; c += kLanes)
    ChannelTile<P, 1>(table.data(), count, weights, channels, c, out, after);
  if (c < channels && channels >= kLanes) {  // the last register overlaps the one before it
    ChannelTile<P, 1>(table.data(), count, weights, channels, channels - kLanes, out, after);
  } else if (c < channels) {
    for (int p = 0; p < P; ++p) {
      float sums[kLanes] = {};
      for (int64_t t = 0; t < count; ++t)
        for (int64_t i = 0; i < channels; ++i) sums[i] += table[t * P + p][i] * weights[t * channels + i];
      after.SumSome(sums, out + p * channels, 0, channels);
      std::memcpy(out + p * channels, sums, sizeof(float) * channels);
    }
  }
  after.Finish(out, channels, P, channels);
}

// One kernel per channel; weights [taps, channels].
ffi::Error ConvolveChannels(ffi::ThreadPool pool, ffi::Buffer<ffi::F32> x,
                            ffi::Buffer<ffi::F32> weights, ffi::Buffer<ffi::F32> bias,
                            ffi::RemainingArgs rest, ffi::ResultBuffer<ffi::F32> y,
                            ffi::Span<const int64_t> window, ffi::Span<const float> numbers) {
  const Images in(x.dimensions()), out(y->dimensions());
  const Window w(window);
  const Epilogue after(bias.typed_data(), Added(rest), y->typed_data(), numbers);
  const std::vector<float> zeros(in.channels);
  const Taps taps = TapsOf(x.typed_data(), in, out, w, zeros.data());
  constexpr int kPixels = 4;
  const int64_t pixels = out.pixels(), threads = std::max<int64_t>(pool.num_threads(), 1);
  const int64_t stretch = CeilDiv(CeilDiv(pixels, 4 * threads), kPixels) * kPixels;
  const auto work = [&](int64_t job) {
    int64_t p = job * stretch;
    const int64_t last = std::min(pixels, p + stretch);
    std::vector<const float*> table(taps.count() * kPixels);
    for (; p + kPixels <= last; p += kPixels)
      ChannelPixels<kPixels>(taps, weights.typed_data(), in.channels, p, y->typed_data(), after, table);
    for (; p < last; ++p)
      ChannelPixels<1>(taps, weights.typed_data(), in.channels, p, y->typed_data(), after, table);
  };
  const int64_t jobs = CeilDiv(pixels, stretch);
  if (pixels * in.channels * taps.count() < kSmall) {
    for (int64_t job = 0; job < jobs; ++job) work(job);
  } else {
    TeamFor(pool, jobs, work);
  }
  return ffi::Error::Success();
}

}  // namespace

#define BIREME_PACKED_HANDLER(Name, Function)                                 \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(Name, Function,                               \
                                ffi::Ffi::Bind()                              \
                                    .Ctx<ffi::ThreadPool>()                   \
                                    .Arg<ffi::Buffer<ffi::F32>>()             \
                                    .Arg<ffi::Buffer<ffi::F32>>()             \
                                    .Arg<ffi::Buffer<ffi::F32>>()             \
                                    .RemainingArgs()                          \
                                    .Ret<ffi::Buffer<ffi::F32>>()             \
                                    .Attr<ffi::Span<const int64_t>>("window") \
                                    .Attr<ffi::Span<const float>>("numbers"))

BIREME_PACKED_HANDLER(bireme_packed_conv, Convolve);
BIREME_PACKED_HANDLER(bireme_packed_depthwise, ConvolveChannels);

}  // namespace bireme

// How wide blocks of packed weights may be: floats in a register, registers side by side.
extern "C" int64_t bireme_lanes() { return bireme::kLanes; }
extern "C" int64_t bireme_registers() { return bireme::kWide; }
