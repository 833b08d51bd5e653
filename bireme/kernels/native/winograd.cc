// A tile is 2x2 results, made from 4x4 pixels. With the matrices B, G and A of F(2, 3)
//
//   results = A' [(G kernel G') * (B' pixels B)] A
//   kernel's gradient = G' [(A gradients A') * (B' pixels B)] G
//
// where * is element by element; summed over channels (or over tiles, for the gradient) it is 16
// matrix products, one for each "position" of a 4x4 square.

#include "winograd.h"

#include <cstring>
#include <vector>

#include "parallel.h"
#include "tiles.h"

namespace bireme {
namespace {

constexpr int64_t kPositions = 16;
constexpr int64_t kTaps = 9;
constexpr int64_t kSlice = 64;  // products that are added one after the other
constexpr int64_t kCached = 96 * 1024;  // floats that stay in the second-level cache

// Between the positions of a square: a line more, so that they do not fall into one cache set.
int64_t Plane(int64_t floats) { return floats + 16; }

struct Tiles {
  int64_t rows, columns, count;
  explicit Tiles(const Shape& results)
      : rows(CeilDiv(results.height, 2)), columns(CeilDiv(results.width, 2)),
        count(results.batch * rows * columns) {}
  int64_t image(int64_t tile) const { return tile / (rows * columns); }
  int64_t y(int64_t tile) const { return tile / columns % rows * 2; }
  int64_t x(int64_t tile) const { return tile % columns * 2; }
};

// Where the pixels of a square of `Size` start; those outside the image are zeros.
template <int Size>
struct Square {
  const float* at[Size * Size];
  Square(const float* images, const Shape& s, int64_t n, int64_t y, int64_t x, const float* zeros) {
    for (int i = 0; i < Size; ++i)
      for (int j = 0; j < Size; ++j) {
        const bool inside = y + i >= 0 && y + i < s.height && x + j >= 0 && x + j < s.width;
        at[i * Size + j] =
            inside ? images + n * s.image() + ((y + i) * s.width + x + j) * s.pitch : zeros;
      }
  }
};

// B' pixels B of the channels; position p goes to out + p * plane.
void TransformPixels(const Square<4>& pixels, int64_t channels, float* out, int64_t plane) {
  for (int64_t c = 0; c < channels; c += kLanes) {
    Vec d[16], t[16];
    if (c + kLanes <= channels)
      for (int i = 0; i < 16; ++i) d[i] = Load(pixels.at[i] + c);
    else
      for (int i = 0; i < 16; ++i) d[i] = LoadSome(pixels.at[i] + c, channels - c);
    for (int j = 0; j < 4; ++j) {
      t[j] = d[j] - d[8 + j];
      t[4 + j] = d[4 + j] + d[8 + j];
      t[8 + j] = d[8 + j] - d[4 + j];
      t[12 + j] = d[4 + j] - d[12 + j];
    }
    for (int i = 0; i < 4; ++i) {
      float* to = out + 4 * i * plane + c;
      Store(to, t[4 * i] - t[4 * i + 2]);
      Store(to + plane, t[4 * i + 1] + t[4 * i + 2]);
      Store(to + 2 * plane, t[4 * i + 2] - t[4 * i + 1]);
      Store(to + 3 * plane, t[4 * i + 1] - t[4 * i + 3]);
    }
  }
}

// A gradients A' of the channels; block b of position p goes to out + p * plane + b * panel.
void TransformGradients(const Square<2>& gradients, int64_t channels, int64_t block, float* out,
                        int64_t plane, int64_t panel) {
  for (int64_t c = 0; c < channels; c += kLanes) {
    Vec d[4];
    for (int i = 0; i < 4; ++i) d[i] = LoadSome(gradients.at[i] + c, channels - c);
    const Vec rows[8] = {d[0], d[1], d[0] + d[2], d[1] + d[3], d[0] - d[2], d[1] - d[3], -d[2], -d[3]};
    for (int i = 0; i < 4; ++i) {
      float* to = out + 4 * i * plane + c / block * panel + c % block;
      Store(to, rows[2 * i]);
      Store(to + plane, rows[2 * i] + rows[2 * i + 1]);
      Store(to + 2 * plane, rows[2 * i] - rows[2 * i + 1]);
      Store(to + 3 * plane, -rows[2 * i + 1]);
    }
  }
}

// A' products A: 2x2 results for each of `block` channels, of which `live` exist.
void TransformProducts(const float* products, int64_t plane, int64_t block, int64_t live,
                       float* result, const Shape& s, int64_t n, int64_t y, int64_t x) {
  float* first = result + n * s.image() + (y * s.width + x) * s.pitch;
  const bool below = y + 1 < s.height, beside = x + 1 < s.width;
  for (int64_t c = 0; c < live; c += kLanes) {
    Vec t[8];
    for (int j = 0; j < 4; ++j) {
      const float* p = products + j * plane + c;
      const Vec m0 = Load(p), m1 = Load(p + 4 * plane), m2 = Load(p + 8 * plane), m3 = Load(p + 12 * plane);
      t[j] = m0 + m1 + m2;
      t[4 + j] = m1 - m2 - m3;
    }
    const int64_t lanes = live - c;
    float* to = first + c;
    StoreSome(to, t[0] + t[1] + t[2], lanes);
    if (beside) StoreSome(to + s.pitch, t[1] - t[2] - t[3], lanes);
    if (!below) continue;
    to += s.width * s.pitch;
    StoreSome(to, t[4] + t[5] + t[6], lanes);
    if (beside) StoreSome(to + s.pitch, t[5] - t[6] - t[7], lanes);
  }
}

// G kernel G' of channels [first, last) of the reduction for one block of targets:
// out[p * plane + (r - first) * block].
void TransformKernels(const Weights& weights, int64_t target, int64_t block, int64_t first,
                      int64_t last, float* out, int64_t plane) {
  float rows[16 * kTaps * kLanes];
  for (int64_t r0 = first; r0 < last; r0 += 16)
    for (int64_t c = 0; c < block; c += kLanes) {
      const int64_t r1 = std::min(last, r0 + 16);
      if (target + c < weights.targets())
        weights.Columns(target + c, r0, r1, rows);
      else
        std::memset(rows, 0, sizeof(rows));
      for (int64_t r = r0; r < r1; ++r) {
        Vec g[kTaps], t[12];
        for (int k = 0; k < kTaps; ++k)
          g[k] = Load(rows + ((r - r0) * kTaps + (weights.forward ? k : 8 - k)) * kLanes);
        for (int j = 0; j < 3; ++j) {
          const Vec ends = (g[j] + g[6 + j]) * 0.5f, middle = g[3 + j] * 0.5f;
          t[j] = g[j];
          t[3 + j] = ends + middle;
          t[6 + j] = ends - middle;
          t[9 + j] = g[6 + j];
        }
        float* to = out + (r - first) * block + c;
        for (int i = 0; i < 4; ++i, to += 4 * plane) {
          const Vec ends = (t[3 * i] + t[3 * i + 2]) * 0.5f, middle = t[3 * i + 1] * 0.5f;
          Store(to, t[3 * i]);
          Store(to + plane, ends + middle);
          Store(to + 2 * plane, ends - middle);
          Store(to + 3 * plane, t[3 * i + 2]);
        }
      }
    }
}

// G' sums G: the 9 elements of a kernel from the 16 positions at sums + p * plane.
void TransformSums(const Vec (&m)[kPositions], float* columns) {
  Vec t[12];
  for (int j = 0; j < 4; ++j) {
    const Vec half = (m[4 + j] + m[8 + j]) * 0.5f;
    t[j] = m[j] + half;
    t[4 + j] = (m[4 + j] - m[8 + j]) * 0.5f;
    t[8 + j] = half + m[12 + j];
  }
  for (int i = 0; i < 3; ++i, columns += 3 * kLanes) {
    const Vec half = (t[4 * i + 1] + t[4 * i + 2]) * 0.5f;
    Store(columns, t[4 * i] + half);
    Store(columns + kLanes, (t[4 * i + 1] - t[4 * i + 2]) * 0.5f);
    Store(columns + 2 * kLanes, half + t[4 * i + 3]);
  }
}

// Products of `rows` rows, in equal parts of at most kTall.
template <int W, bool kTransposed, bool kAdd>
void EvenRows(const float* a, int64_t stride, int64_t rows, const float* panel, int64_t depth,
              float* out) {
  constexpr int64_t kBlock = W * kLanes;
  const int64_t parts = CeilDiv(rows, kTall);
  for (int64_t i = 0; i < parts; ++i) {
    const int64_t from = rows * i / parts, until = rows * (i + 1) / parts;
    ProductRows<W, kTransposed, kAdd>(a + from * (kTransposed ? 1 : stride), stride, until - from,
                                      panel, depth, out + from * kBlock, kBlock);
  }
}

// In slices: sums of short sums round less than one long sum.
template <bool kTransposed>
void Rows(int wide, bool add, const float* a, int64_t stride, int64_t rows, const float* panel,
          int64_t depth, float* out) {
  WithWidth(wide, [&](auto w) {
    for (int64_t k = 0; k < depth; k += kSlice) {
      const int64_t some = std::min(kSlice, depth - k);
      const float* from = a + k * (kTransposed ? stride : 1);
      const float* with = panel + k * w.value * kLanes;
      if (add || k > 0)
        EvenRows<w.value, kTransposed, true>(from, stride, rows, with, some, out);
      else
        EvenRows<w.value, kTransposed, false>(from, stride, rows, with, some, out);
    }
  });
}

struct Results {
  const float* source;
  const Shape& in;
  int64_t top, left;
  const Weights& weights;
  float* result;
  const Shape& shape;
  Tiles tiles;
  int wide;
  int64_t block, blocks, pitch;  // of the transformed pixels, whole registers
  std::vector<float> zeros;

  Results(const float* source, const Shape& in, int64_t top, int64_t left, const Weights& weights,
          float* result, const Shape& shape)
      : source(source), in(in), top(top), left(left), weights(weights), result(result),
        shape(shape), tiles(shape), wide(ChooseWidth(shape.channels)), block(wide * kLanes),
        blocks(CeilDiv(shape.channels, block)), pitch(Padded(in.channels)), zeros(in.channels) {}

  void Pixels(int64_t tile, float* to, int64_t plane) const {
    const Square<4> square(source, in, tiles.image(tile), tiles.y(tile) - top, tiles.x(tile) - left,
                           zeros.data());
    TransformPixels(square, in.channels, to, plane);
  }
  void Finish(int64_t tile, int64_t b, const float* products, int64_t plane) const {
    TransformProducts(products, plane, block, std::min(block, shape.channels - b * block),
                      result + b * block, shape, tiles.image(tile), tiles.y(tile), tiles.x(tile));
  }
};

// Many tiles: the kernels are transformed once, and jobs are stretches of tiles.
void ByTiles(xla::ffi::ThreadPool& pool, const Results& p) {
  const int64_t depth = p.in.channels, plane_u = Plane(depth * p.block), chunk = 16;
  Buffer kernels = Allocate(p.blocks * kPositions * plane_u);
  const int64_t chunks = CeilDiv(depth, chunk);
  ParallelFor(pool, p.blocks * chunks, [&](int64_t job) {
    const int64_t b = job / chunks, first = job % chunks * chunk;
    TransformKernels(p.weights, b * p.block, p.block, first, std::min(depth, first + chunk),
                     kernels.get() + b * kPositions * plane_u + first * p.block, plane_u);
  });
  const int64_t most = std::max<int64_t>(kTall, kCached / (kPositions * (p.pitch + p.block)));
  const int64_t jobs = std::min(p.tiles.count, CeilDiv(CeilDiv(p.tiles.count, most), 8) * 8);
  ParallelFor(pool, jobs, [&](int64_t job) {
    const int64_t first = p.tiles.count * job / jobs;
    const int64_t count = p.tiles.count * (job + 1) / jobs - first;
    const int64_t plane_v = Plane(count * p.pitch), plane_m = Plane(count * p.block);
    Buffer space = Allocate(kPositions * (plane_v + plane_m));
    float *pixels = space.get(), *products = space.get() + kPositions * plane_v;
    for (int64_t t = 0; t < count; ++t) p.Pixels(first + t, pixels + t * p.pitch, plane_v);
    for (int64_t b = 0; b < p.blocks; ++b) {
      for (int64_t i = 0; i < kPositions; ++i)
        Rows<false>(p.wide, false, pixels + i * plane_v, p.pitch, count,
                    kernels.get() + (b * kPositions + i) * plane_u, depth, products + i * plane_m);
      for (int64_t t = 0; t < count; ++t) p.Finish(first + t, b, products + t * p.block, plane_m);
    }
  });
}

// Few tiles, as in the last layers of a net, where the kernels are what there is much of: jobs are
// blocks of results, and the kernels are transformed a few channels at a time where they are used.
void ByBlocks(xla::ffi::ThreadPool& pool, const Results& p) {
  const int64_t count = p.tiles.count, depth = p.in.channels;
  const int64_t plane_v = Plane(count * p.pitch), plane_m = Plane(count * p.block);
  Buffer pixels = Allocate(kPositions * plane_v);
  ParallelFor(pool, CeilDiv(count, 4), [&](int64_t job) {
    for (int64_t t = job * 4; t < std::min(count, job * 4 + 4); ++t)
      p.Pixels(t, pixels.get() + t * p.pitch, plane_v);
  });
  ParallelFor(pool, p.blocks, [&](int64_t b) {
    const int64_t plane_u = Plane(kSlice * p.block);
    Buffer space = Allocate(kPositions * (plane_u + plane_m));
    float *kernels = space.get(), *products = space.get() + kPositions * plane_u;
    for (int64_t first = 0; first < depth; first += kSlice) {
      const int64_t last = std::min(depth, first + kSlice);
      TransformKernels(p.weights, b * p.block, p.block, first, last, kernels, plane_u);
      for (int64_t i = 0; i < kPositions; ++i)
        Rows<false>(p.wide, first > 0, pixels.get() + i * plane_v + first, p.pitch, count,
                    kernels + i * plane_u, last - first, products + i * plane_m);
    }
    for (int64_t t = 0; t < count; ++t) p.Finish(t, b, products + t * p.block, plane_m);
  });
}

struct Gradient {
  const float* source;
  const Shape& in;
  const float* gradient;
  const Shape& grad;
  int64_t top, left;
  float* result;
  Tiles tiles;
  int wide;
  int64_t block, blocks, pitch;
  std::vector<float> zeros;

  Gradient(const float* source, const Shape& in, const float* gradient, const Shape& grad,
           int64_t top, int64_t left, float* result)
      : source(source), in(in), gradient(gradient), grad(grad), top(top), left(left),
        result(result), tiles(grad), wide(ChooseWidth(grad.channels)), block(wide * kLanes),
        blocks(CeilDiv(grad.channels, block)), pitch(Padded(in.channels)),
        zeros(std::max(in.channels, grad.channels)) {}

  // Tile t of a run of `size` tiles.
  void Transform(int64_t tile, int64_t t, int64_t size, float* pixels, int64_t plane_v,
                 float* gradients, int64_t plane_g) const {
    const int64_t n = tiles.image(tile), y = tiles.y(tile), x = tiles.x(tile);
    TransformPixels(Square<4>(source, in, n, y - top, x - left, zeros.data()), in.channels,
                    pixels + t * pitch, plane_v);
    TransformGradients(Square<2>(gradient, grad, n, y, x, zeros.data()), grad.channels, block,
                       gradients + t * block, plane_g, size * block);
  }

  // Kernels [first, last) of block b; load(p, i, c) is position p of input channel i, register c.
  template <typename Load>
  void Put(int64_t b, int64_t first, int64_t last, const Load& load) const {
    constexpr int64_t kAtOnce = 16;
    float columns[kAtOnce * kTaps * kLanes];
    const int64_t live = std::min(block, grad.channels - b * block), row = in.channels * kTaps;
    for (int64_t i0 = first; i0 < last; i0 += kAtOnce)
      for (int64_t c = 0; c < live; c += kLanes) {
        const int64_t i1 = std::min(last, i0 + kAtOnce);
        for (int64_t i = i0; i < i1; ++i) {
          Vec m[kPositions];
          for (int64_t p = 0; p < kPositions; ++p) m[p] = load(p, i, c);
          TransformSums(m, columns + (i - i0) * kTaps * kLanes);
        }
        PutColumns(columns, i0 * kTaps, i1 * kTaps, result + (b * block + c) * row, live - c, row);
      }
  }
};

// Few kernels, many tiles: each of a fixed number of jobs sums its own share of the tiles.
void SumByTiles(xla::ffi::ThreadPool& pool, const Gradient& g) {
  const int64_t jobs = std::min<int64_t>(8, CeilDiv(g.tiles.count, kTall));
  const int64_t width = g.blocks * g.block, channels = g.in.channels;
  const int64_t plane_m = Plane(channels * width);
  const int64_t run = std::max<int64_t>(24, kCached / (kPositions * (g.pitch + width)));
  Buffer sums = Allocate(jobs * kPositions * plane_m);
  ParallelFor(pool, jobs, [&](int64_t job) {
    float* mine = sums.get() + job * kPositions * plane_m;
    const int64_t plane_v = Plane(run * g.pitch), plane_g = Plane(run * width);
    Buffer space = Allocate(kPositions * (plane_v + plane_g));
    float *pixels = space.get(), *gradients = space.get() + kPositions * plane_v;
    const int64_t begin = g.tiles.count * job / jobs, end = g.tiles.count * (job + 1) / jobs;
    for (int64_t first = begin; first < end; first += run) {
      const int64_t count = std::min(run, end - first);
      for (int64_t t = 0; t < count; ++t)
        g.Transform(first + t, t, count, pixels, plane_v, gradients, plane_g);
      for (int64_t i = 0; i < kPositions; ++i)
        for (int64_t b = 0; b < g.blocks; ++b)
          Rows<true>(g.wide, first > begin, pixels + i * plane_v, g.pitch, channels,
                     gradients + i * plane_g + b * count * g.block, count,
                     mine + i * plane_m + b * channels * g.block);
    }
  });
  constexpr int64_t kChunk = 8;
  const int64_t chunks = CeilDiv(channels, kChunk);
  ParallelFor(pool, g.blocks * chunks, [&](int64_t job) {
    const int64_t b = job / chunks, first = job % chunks * kChunk;
    g.Put(b, first, std::min(channels, first + kChunk), [&](int64_t p, int64_t i, int64_t c) {
      const float* from = sums.get() + p * plane_m + (b * channels + i) * g.block + c;
      Vec total = Load(from);
      for (int64_t j = 1; j < jobs; ++j) total += Load(from + j * kPositions * plane_m);
      return total;
    });
  });
}

// Many kernels: everything is transformed first, and jobs are some kernels over all tiles.
void SumByKernels(xla::ffi::ThreadPool& pool, const Gradient& g) {
  const int64_t count = g.tiles.count, channels = g.in.channels;
  const int64_t plane_v = Plane(count * g.pitch), plane_g = Plane(count * g.blocks * g.block);
  Buffer pixels = Allocate(kPositions * plane_v), gradients = Allocate(kPositions * plane_g);
  ParallelFor(pool, CeilDiv(count, 8), [&](int64_t job) {
    for (int64_t t = job * 8; t < std::min(count, job * 8 + 8); ++t)
      g.Transform(t, t, count, pixels.get(), plane_v, gradients.get(), plane_g);
  });
  const int64_t strips = CeilDiv(channels, 4 * kTall);
  ParallelFor(pool, g.blocks * strips, [&](int64_t job) {
    const int64_t b = job / strips, first = channels * (job % strips) / strips;
    const int64_t last = channels * (job % strips + 1) / strips;
    const int64_t plane_m = Plane((last - first) * g.block);
    Buffer sums = Allocate(kPositions * plane_m);
    for (int64_t i = 0; i < kPositions; ++i)
      Rows<true>(g.wide, false, pixels.get() + i * plane_v + first, g.pitch, last - first,
                 gradients.get() + i * plane_g + b * count * g.block, count,
                 sums.get() + i * plane_m);
    g.Put(b, first, last, [&](int64_t p, int64_t i, int64_t c) {
      return Load(sums.get() + p * plane_m + (i - first) * g.block + c);
    });
  });
}

}  // namespace

bool SuitsWinograd(int64_t kh, int64_t kw, int64_t stride_h, int64_t stride_w, int64_t dil_h,
                   int64_t dil_w, const Shape& in, const Shape& result) {
  if (kh != 3 || kw != 3 || stride_h != 1 || stride_w != 1 || dil_h != 1 || dil_w != 1) return false;
  const int64_t computed = 4 * CeilDiv(result.height, 2) * CeilDiv(result.width, 2);
  return std::min(in.channels, result.channels) >= 16 && 2 * computed <= 3 * result.pixels();
}

void WinogradProducts(xla::ffi::ThreadPool& pool, const float* source, const Shape& in, int64_t top,
                      int64_t left, const Weights& weights, float* result, const Shape& shape) {
  const Results product(source, in, top, left, weights, result, shape);
  if (product.tiles.count <= 64 && product.blocks >= 4)
    ByBlocks(pool, product);
  else
    ByTiles(pool, product);
}

void WinogradWeightGradient(xla::ffi::ThreadPool& pool, const float* source, const Shape& in,
                            const float* gradient, const Shape& grad, int64_t top, int64_t left,
                            float* result) {
  const Gradient sums(source, in, gradient, grad, top, left, result);
  if (kPositions * in.channels * sums.blocks * sums.block <= kCached)
    SumByTiles(pool, sums);
  else
    SumByKernels(pool, sums);
}

}  // namespace bireme
