// Resizing along one axis. Places are computed in float32: their rounding decides which elements
// are taken, and exporters and other engines do the same.
#include <math.h>

#include "common.h"

namespace lite {

enum { kNearest, kLinear, kCubic };

// attrs: axis, mode, align_corners, whether centres of elements are aligned; numbers: how many
// times larger the result is, or 0 for the ratio of sizes.
const char* check_resize(Node& n, int) {
  TRY(arity(n, 1, 1, 1));
  TRY(all_float(n));
  const Tensor &x = *n.input(0), &y = *n.output();
  NEED(x.rank == y.rank && within(n, 0, 0, x.rank - 1) && within(n, 1, kNearest, kCubic) &&
           within(n, 2, 0, 1) && within(n, 3, 0, 1) && n.numbers.size == 1,
       "attributes");
  for (int i = 0; i < x.rank; i++)
    NEED(i == n.attrs[0] || x.dims[i] == y.dims[i], "shapes do not fit");
  NEED(x.dims[n.attrs[0]] > 0 && x.dims[n.attrs[0]] < (1 << 24) &&
           y.dims[n.attrs[0]] < (1 << 24),
       "sizes");
  n.shared = y.dims[n.attrs[0]] * (4 * 8 + 4 * 4);
  return nullptr;
}

static double cubic(double x) {
  constexpr double a = -0.75;
  x = fabs(x);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

static int64_t inside(double place, int64_t n) {
  if (!(place > 0)) return 0;
  return place < static_cast<double>(n - 1) ? static_cast<int64_t>(place) : n - 1;
}

// Up to four places and weights for each element of the result; returns how many.
static int plan_taps(const Node& n, int64_t size, int64_t made, int64_t* places, float* weights) {
  int64_t mode = n.attrs[1];
  bool corners = n.attrs[2], centres = n.attrs[3];
  double scale = n.numbers[0];
  float ratio = corners ? made > 1 ? static_cast<float>(static_cast<double>(size - 1) /
                                                        static_cast<double>(made - 1))
                                   : 0
                : scale > 0
                    ? static_cast<float>(1 / scale)
                    : static_cast<float>(static_cast<double>(size) / static_cast<double>(made));
  int count = mode == kNearest ? 1 : mode == kLinear ? 2 : 4;
  for (int64_t i = 0; i < made; i++) {
    auto step = static_cast<float>(i);
    int64_t* p = places + i * count;
    float* w = weights + i * count;
    if (mode == kNearest) {
      p[0] = inside(ratio * step, size);
      w[0] = 1;
    } else if (mode == kLinear) {
      float place = centres && !corners ? ratio * (step + 0.5f) - 0.5f : ratio * step;
      if (!(place > 0)) place = 0;
      p[0] = inside(place, size);
      p[1] = smaller(p[0] + 1, size - 1);
      w[1] = place - static_cast<float>(p[0]);
      w[0] = 1 - w[1];
    } else {
      float place = corners ? ratio * step : ratio * (step + 0.5f) - 0.5f;
      float low = floorf(place);
      auto part = static_cast<double>(place - low);
      for (int t = 0; t < 4; t++) {
        p[t] = inside(static_cast<double>(low) + t - 1, size);
        w[t] = static_cast<float>(cubic(part - (t - 1)));
      }
    }
  }
  return count;
}

void run_resize(Node& n, int) {
  const Tensor &x = *n.input(0), &y = *n.output();
  auto axis = static_cast<int>(n.attrs[0]);
  int64_t size = x.dims[axis], made = y.dims[axis], inner = y.product(axis + 1, y.rank);
  if (!y.count) return;
  auto* places = reinterpret_cast<int64_t*>(n.model->scratch);
  auto* weights = reinterpret_cast<float*>(places + made * 4);
  int count = plan_taps(n, size, made, places, weights);
  if (inner == 1) {
    parallel(*n.model, y.count / made, larger(1, 4096 / made), [&](int64_t from, int64_t to, int) {
      for (int64_t line = from; line < to; line++) {
        const float* source = x.as<float>() + line * size;
        float* out = y.as<float>() + line * made;
        if (count == 1) {
          for (int64_t i = 0; i < made; i++) out[i] = source[places[i]];
          continue;
        }
        for (int64_t i = 0; i < made; i++) {
          float sum = 0;
          for (int t = 0; t < count; t++)
            sum += source[places[i * count + t]] * weights[i * count + t];
          out[i] = sum;
        }
      }
    });
    return;
  }
  parallel(*n.model, y.product(0, axis + 1), larger(1, 4096 / inner),
           [&](int64_t from, int64_t to, int) {
    for (int64_t o = from; o < to; o++) {
      const float* source = x.as<float>() + o / made * size * inner;
      float* out = y.as<float>() + o * inner;
      const int64_t* p = places + o % made * count;
      const float* w = weights + o % made * count;
      if (count == 1) {
        memcpy(out, source + p[0] * inner, inner * sizeof(float));
      } else if (count == 2) {
        const float *a = source + p[0] * inner, *b = source + p[1] * inner;
        for (int64_t i = 0; i < inner; i++) out[i] = a[i] * w[0] + b[i] * w[1];
      } else {
        for (int64_t i = 0; i < inner; i++) {
          float sum = 0;
          for (int t = 0; t < 4; t++) sum += source[p[t] * inner + i] * w[t];
          out[i] = sum;
        }
      }
    }
  });
}

}  // namespace lite
