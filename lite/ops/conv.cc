// Convolutions of one to three axes, as products with the windows of the input, and depthwise ones
// and pooling plane by plane.
#include <math.h>

#include "product.h"

namespace lite {

constexpr int64_t kFar = 1 << 20;  // the most that a stride, padding or dilation may be

// attrs: function, groups, then for each axis of space: stride, padding before, dilation of the
// window, dilation of the input. x[n, c, ...], weight[o, c/groups, ...], bias[o], added.
const char* check_conv(Node& n, int) {
  TRY(arity(n, 2, 4, 1));
  TRY(all_float(n));
  TRY(check_after(n, 0));
  const Tensor &x = *n.input(0), &w = *n.input(1), &y = *n.output();
  int space = x.rank - 2;
  NEED(space >= 1 && space <= 3 && w.rank == x.rank && y.rank == x.rank, "ranks do not fit");
  NEED(n.attrs.size == 2 + 4 * space && within(n, 1, 1, larger(x.dims[1], 1)), "attributes");
  int64_t groups = n.attrs[1];
  NEED(x.dims[0] == y.dims[0] && y.dims[1] == w.dims[0] && x.dims[1] == w.dims[1] * groups &&
           w.dims[0] % groups == 0,
       "shapes do not fit");
  for (int i = 0; i < space; i++) {
    NEED(within(n, 2 + 4 * i, 1, kFar) && within(n, 3 + 4 * i, -kFar, kFar) &&
             within(n, 4 + 4 * i, 1, kFar) && within(n, 5 + 4 * i, 1, kFar),
         "attributes");
    NEED(w.dims[2 + i] >= 1 && w.dims[2 + i] <= kFar && x.dims[2 + i] <= (int64_t{1} << 31),
         "sizes");
  }
  NEED(!n.has(2) || n.input(2)->count == y.dims[1], "the bias does not fit");
  NEED(!n.has(3) || same_shape(*n.input(3), y), "what is added does not fit");
  n.scratch = panel_bytes(n, w.product(1, w.rank));
  return nullptr;
}

namespace {

struct Windows {
  int64_t size[3], out[3], kernel[3], stride[3], pad[3], step[3], gap[3];

  explicit Windows(const Node& n) {
    const Tensor &x = *n.input(0), &w = *n.input(1), &y = *n.output();
    int space = x.rank - 2;
    for (int i = 0; i < 3; i++) {
      int own = i - (3 - space);
      bool there = own >= 0;
      size[i] = there ? x.dims[2 + own] : 1;
      out[i] = there ? y.dims[2 + own] : 1;
      kernel[i] = there ? w.dims[2 + own] : 1;
      stride[i] = there ? n.attrs[2 + 4 * own] : 1;
      pad[i] = there ? n.attrs[3 + 4 * own] : 0;
      step[i] = there ? n.attrs[4 + 4 * own] : 1;
      gap[i] = there ? n.attrs[5 + 4 * own] : 1;
    }
  }
  bool plain() const {  // a window of one position, each position once
    for (int i = 0; i < 3; i++)
      if (kernel[i] != 1 || stride[i] != 1 || pad[i] != 0 || gap[i] != 1 || size[i] != out[i])
        return false;
    return true;
  }
  // Where in axis i the position `at`, which counts gaps, is; -1 if there is nothing.
  int64_t inside(int i, int64_t at) const {
    if (at < 0) return -1;
    if (gap[i] != 1) {
      if (at % gap[i]) return -1;
      at /= gap[i];
    }
    return at < size[i] ? at : -1;
  }

  // Places of the result that lie side by side, and where their windows begin.
  struct Run {
    int64_t at, count, z, y, x;
  };

  int runs_of(int64_t j, int64_t count, Run* runs) const {
    int made = 0;
    int64_t ox = j % out[2], oy = j / out[2] % out[1], oz = j / out[2] / out[1];
    for (int64_t at = 0; at < count; made++) {
      int64_t run = smaller(count - at, out[2] - ox);
      runs[made] = {at, run, oz * stride[0] - pad[0], oy * stride[1] - pad[1],
                    ox * stride[2] - pad[2]};
      at += run;
      ox = 0;
      if (++oy == out[1]) oy = 0, oz++;
    }
    return made;
  }

  // Part of a line of the input; nothing lies beside it.
  void line(const float* from, int64_t first, int64_t count, float* to) const {
    if (stride[2] == 1 && gap[2] == 1) {
      int64_t before = smaller(count, larger(0, -first));
      int64_t end = larger(before, smaller(count, size[2] - first));
      for (int64_t i = 0; i < before; i++) to[i] = 0;
      for (int64_t i = before; i < end; i++) to[i] = from[first + i];
      for (int64_t i = end; i < count; i++) to[i] = 0;
      return;
    }
    int64_t last = first + (count - 1) * stride[2];
    if (gap[2] == 1 && first >= 0 && last < size[2]) {
      for (int64_t i = 0; i < count; i++) to[i] = from[first + i * stride[2]];
      return;
    }
    for (int64_t i = 0; i < count; i++) {
      int64_t spot = inside(2, first + i * stride[2]);
      to[i] = spot < 0 ? 0 : from[spot];
    }
  }

  // Rows k0 to k1 (channel and place in the window) of columns (places of the result).
  void pack(const float* x, int64_t width, int64_t k0, int64_t k1, int64_t j, int64_t count,
            float* to) const {
    Run runs[64];
    int made = runs_of(j, count, runs);
    int64_t plane = size[0] * size[1] * size[2], volume = kernel[0] * kernel[1] * kernel[2];
    int64_t kx = k0 % kernel[2], ky = k0 / kernel[2] % kernel[1];
    int64_t kz = k0 / kernel[2] / kernel[1] % kernel[0];
    const float* from = x + k0 / volume * plane;
    for (int64_t k = k0; k < k1; k++, to += width) {
      for (int r = 0; r < made; r++) {
        const Run& run = runs[r];
        int64_t y = inside(1, run.y + ky * step[1]), z = inside(0, run.z + kz * step[0]);
        float* row = to + run.at;
        if (y < 0 || z < 0)
          for (int64_t i = 0; i < run.count; i++) row[i] = 0;
        else
          line(from + (z * size[1] + y) * size[2], run.x + kx * step[2], run.count, row);
      }
      for (int64_t i = count; i < width; i++) to[i] = 0;
      if (++kx < kernel[2]) continue;
      kx = 0;
      if (++ky < kernel[1]) continue;
      ky = 0;
      if (++kz < kernel[0]) continue;
      kz = 0;
      from += plane;
    }
  }
  // The same for windows of one position.
  void copy(const float* x, int64_t width, int64_t k0, int64_t k1, int64_t j, int64_t count,
            float* to) const {
    int64_t plane = size[0] * size[1] * size[2];
    for (int64_t k = k0; k < k1; k++, to += width) {
      memcpy(to, x + k * plane + j, count * sizeof(float));
      for (int64_t i = count; i < width; i++) to[i] = 0;
    }
  }
};

}  // namespace

void run_conv(Node& n, int) {
  const Tensor &x = *n.input(0), &w = *n.input(1), &y = *n.output();
  Windows windows(n);
  int64_t groups = n.attrs[1], images = x.dims[0], channels = w.dims[1], rows = w.dims[0] / groups;
  int64_t plane = x.product(2, x.rank), places = y.product(2, y.rank);
  int64_t depth = w.product(1, w.rank), width = kernels_of(n).columns;
  bool plain = windows.plain();
  for (int64_t image = 0; image < images; image++) {
    for (int64_t group = 0; group < groups; group++) {
      const float* from = x.as<float>() + (image * groups + group) * channels * plane;
      int64_t first = group * rows, at = (image * groups * rows + first) * places;
      After after = after_of(n, 0);
      if (n.has(2)) after.row_bias = n.input(2)->as<float>() + first;
      if (n.has(3)) after.added = n.input(3)->as<float>() + at;
      after.added_stride = places;
      multiply(n, rows, places, depth, w.as<float>() + first * depth, depth, 1,
               plain ? from : nullptr, places, y.as<float>() + at, places, after,
               [&](int64_t k0, int64_t k1, int64_t j, int64_t count, float* to) {
                 if (plain) windows.copy(from, width, k0, k1, j, count, to);
                 else windows.pack(from, width, k0, k1, j, count, to);
               });
    }
  }
}

namespace {

// A plane of the input around which there is padding, cut into the parts that windows of a stride
// read: in each, what one tap reads for all places of the result lies side by side.
struct Plane {
  int64_t h, w, oh, ow, kh, kw, sh, sw, ph, pw, dh, dw, rows, width, part;

  Plane(const Tensor& x, const Tensor& y, const int64_t* a)
      : h(x.dims[x.rank - 2]), w(x.dims[x.rank - 1]), oh(y.dims[y.rank - 2]),
        ow(y.dims[y.rank - 1]), kh(a[0]), kw(a[1]), sh(a[2]), sw(a[3]), ph(a[4]), pw(a[5]),
        dh(a[6]), dw(a[7]) {
    rows = oh + (kh - 1) * dh / sh;
    width = ow + (kw - 1) * dw / sw;
    part = rounded((rows * width + width + 64) * 4) / 4;
  }
  int64_t bytes() const { return (sh * sw * part + oh * width + 128) * 4; }
  bool too_large() const { return rows > kFar || width > kFar || sh * sw > 64 || kh * kw > 4096; }

  void fill(const float* from, float* to, float edge) const {
    for (int64_t py = 0; py < sh; py++)
      for (int64_t px = 0; px < sw; px++, to += part)
        for (int64_t r = 0; r < rows; r++) {
          int64_t y = r * sh + py - ph;
          float* row = to + r * width;
          if (y < 0 || y >= h) {
            for (int64_t i = 0; i < width; i++) row[i] = edge;
            continue;
          }
          const float* line = from + y * w;
          int64_t first = px - pw, i = 0;
          for (; i < width && first + i * sw < 0; i++) row[i] = edge;
          int64_t end = smaller(width, w > first ? (w - first + sw - 1) / sw : 0);
          if (sw == 1 && end > i) memcpy(row + i, line + first + i, (end - i) * 4), i = end;
          for (; i < end; i++) row[i] = line[first + i * sw];
          for (; i < width; i++) row[i] = edge;
        }
  }
  void taps(const float* parts, const float** from) const {
    for (int64_t y = 0; y < kh; y++)
      for (int64_t x = 0; x < kw; x++)
        *from++ = parts + (y * dh % sh * sw + x * dw % sw) * part + y * dh / sh * width +
                  x * dw / sw;
  }
  int64_t places() const { return oh > 0 ? (oh - 1) * width + ow : 0; }
  void take(const float* from, float* to) const {
    for (int64_t y = 0; y < oh; y++) memcpy(to + y * ow, from + y * width, ow * 4);
  }
};

const char* check_planes(Node& n, int64_t first, int64_t kh, int64_t kw, int64_t* a) {
  const Tensor &x = *n.input(0), &y = *n.output();
  a[0] = kh, a[1] = kw;
  for (int i = 0; i < 6; i++) {
    NEED(within(n, first + i, i == 2 || i == 3 ? 0 : 1, 4096), "attributes");
    a[2 + i] = n.attrs[first + i];
  }
  NEED(kh >= 1 && kw >= 1 && kh <= 4096 && kw <= 4096, "the window is empty or too large");
  NEED(y.dims[y.rank - 2] <= kFar && y.dims[y.rank - 1] <= kFar, "sizes");
  Plane p(x, y, a);
  NEED(!p.too_large(), "the window, stride or size is too large");
  n.scratch = p.bytes() + p.kh * p.kw * 12 + 256;
  return nullptr;
}

}  // namespace

// attrs: function, stride y, x, padding y, x, dilation y, x. x[n, c, h, w], weight[c, 1, kh, kw],
// bias, added.
const char* check_depthwise(Node& n, int) {
  TRY(arity(n, 2, 3, 1));
  TRY(all_float(n));
  TRY(check_after(n, 0));
  const Tensor &x = *n.input(0), &w = *n.input(1), &y = *n.output();
  NEED(x.rank == 4 && w.rank == 4 && y.rank == 4 && n.attrs.size == 7, "ranks do not fit");
  NEED(x.dims[0] == y.dims[0] && x.dims[1] == y.dims[1] && w.dims[0] == x.dims[1] &&
           w.dims[1] == 1,
       "shapes do not fit");
  NEED(!n.has(2) || n.input(2)->count == y.dims[1], "the bias does not fit");
  int64_t a[8];
  return check_planes(n, 1, w.dims[2], w.dims[3], a);
}

void run_depthwise(Node& n, int) {
  const Tensor &x = *n.input(0), &w = *n.input(1), &y = *n.output();
  int64_t a[8] = {w.dims[2], w.dims[3]};
  for (int i = 0; i < 6; i++) a[2 + i] = n.attrs[1 + i];
  Plane p(x, y, a);
  After after = after_of(n, 0);
  parallel(*n.model, x.dims[0] * x.dims[1], 1, [&](int64_t from, int64_t to, int thread) {
    auto* parts = reinterpret_cast<float*>(n.model->scratch_of(thread));
    float* result = parts + p.sh * p.sw * p.part;
    auto** taps = reinterpret_cast<const float**>(
        n.model->scratch_of(thread) + rounded(p.bytes()));
    p.taps(parts, taps);
    for (int64_t at = from; at < to; at++) {
      int64_t channel = at % x.dims[1];
      p.fill(x.as<float>() + at * p.h * p.w, parts, 0);
      Taps all = {taps, w.as<float>() + channel * p.kh * p.kw, static_cast<int>(p.kh * p.kw)};
      float bias = n.has(2) ? n.input(2)->as<float>()[channel] : 0;
      kernels_of(n).weighted(all, bias, result, p.places(), after);
      p.take(result, y.as<float>() + at * p.oh * p.ow);
    }
  });
}

// attrs: 0 largest, 1 mean over the whole window, 2 mean without padding; window y, x, stride y, x,
// padding y, x, dilation y, x. Over the last two axes.
const char* check_pool(Node& n, int) {
  TRY(arity(n, 1, 1, 1));
  TRY(all_float(n));
  const Tensor &x = *n.input(0), &y = *n.output();
  NEED(x.rank >= 2 && y.rank == x.rank && n.attrs.size == 9 && within(n, 0, 0, 2), "attributes");
  for (int i = 0; i < x.rank - 2; i++) NEED(x.dims[i] == y.dims[i], "shapes do not fit");
  int64_t a[8];
  return check_planes(n, 3, n.attrs[1], n.attrs[2], a);
}

void run_pool(Node& n, int) {
  const Tensor &x = *n.input(0), &y = *n.output();
  Plane p(x, y, n.attrs.data + 1);
  int64_t kind = n.attrs[0], window = p.kh * p.kw;
  parallel(*n.model, x.product(0, x.rank - 2), 1, [&](int64_t from, int64_t to, int thread) {
    auto* parts = reinterpret_cast<float*>(n.model->scratch_of(thread));
    float* result = parts + p.sh * p.sw * p.part;
    auto** taps = reinterpret_cast<const float**>(
        n.model->scratch_of(thread) + rounded(p.bytes()));
    auto* weights = reinterpret_cast<float*>(taps + window);
    for (int64_t i = 0; i < window; i++) weights[i] = kind == 1 ? 1.0f / window : 1;
    p.taps(parts, taps);
    Taps all = {taps, weights, static_cast<int>(window)};
    for (int64_t at = from; at < to; at++) {
      p.fill(x.as<float>() + at * p.h * p.w, parts, kind ? 0 : -INFINITY);
      if (kind) kernels_of(n).weighted(all, 0, result, p.places(), After{});
      else kernels_of(n).largest(all, result, p.places());
      float* out = y.as<float>() + at * p.oh * p.ow;
      p.take(result, out);
      if (kind != 2) continue;
      for (int64_t oy = 0; oy < p.oh; oy++)
        for (int64_t ox = 0; ox < p.ow; ox++) {
          int64_t rows = 0, columns = 0;
          for (int64_t k = 0; k < p.kh; k++) {
            int64_t spot = oy * p.sh - p.ph + k * p.dh;
            rows += spot >= 0 && spot < p.h;
          }
          for (int64_t k = 0; k < p.kw; k++) {
            int64_t spot = ox * p.sw - p.pw + k * p.dw;
            columns += spot >= 0 && spot < p.w;
          }
          out[oy * p.ow + ox] /= static_cast<float>(rows * columns);
        }
    }
  });
}

}  // namespace lite
