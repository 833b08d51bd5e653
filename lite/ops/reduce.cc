// Sums, extremes and their places, along axes, along windows, and running ones.
#include <math.h>

#include "common.h"

namespace lite {

enum { kSumOf, kMaxOf, kMinOf, kProductOf, kAndOf, kOrOf, kMeanOf, kLogSum };

// attrs: the axes; the result keeps them as 1 or leaves them out.
const char* check_reduce(Node& n, int kind) {
  TRY(arity(n, 1, 1, 1));
  const Tensor &x = *n.input(0), &y = *n.output();
  NEED(x.type == y.type, "types do not fit");
  NEED((kind == kAndOf || kind == kOrOf) == (x.type == BL_BOOL), "types do not fit");
  NEED(kind != kMeanOf || !is_whole(x), "types do not fit");
  unsigned axes = 0;
  for (int64_t i = 0; i < n.attrs.size; i++) {
    NEED(within(n, i, 0, x.rank - 1), "axes");
    axes |= 1u << n.attrs[i];
  }
  int64_t kept = 1;
  for (int i = 0; i < x.rank; i++)
    if (!(axes >> i & 1)) kept *= x.dims[i];
  NEED(kept == y.count, "shapes do not fit");
  return nullptr;
}

template <class T>
static T start_of(int kind) {
  constexpr bool floating = T(0.5) != T(0);
  if (kind == kProductOf || kind == kAndOf) return 1;
  if (kind == kMaxOf || kind == kMinOf) {
    if constexpr (floating) return kind == kMaxOf ? T(-INFINITY) : T(INFINITY);
    constexpr bool has_sign = T(-1) < T(0);
    constexpr int width = 8 * sizeof(T) - has_sign;
    constexpr auto high = static_cast<uint64_t>(((uint64_t{1} << (width - 1)) - 1) * 2 + 1);
    if (kind == kMinOf) return static_cast<T>(high);
    return has_sign ? static_cast<T>(~high) : T(0);
  }
  return 0;
}

template <class A, class T>
static inline A joined(int kind, A a, T b) {
  switch (kind) {
    case kMaxOf: return a > b || a != a ? a : b;
    case kMinOf: return a < b || a != a ? a : b;
    case kProductOf: return a * static_cast<A>(b);
    case kAndOf: return a && b;
    case kOrOf: return a || b;
    default: return a + static_cast<A>(b);
  }
}

// The axes that stay, then those that go; each with the step of the operand.
struct Split {
  int64_t dims[2][kMaxRank + 1], steps[2][kMaxRank + 1];
  int rank[2] = {0, 0};
  int64_t inner = 1, outer = 1;

  Split(const Tensor& x, unsigned axes) {
    int64_t own[kMaxRank];
    strides_of(x, own);
    for (int i = 0; i < x.rank; i++) {
      int side = axes >> i & 1, &r = rank[side];
      (side ? inner : outer) *= x.dims[i];
      if (x.dims[i] == 1) continue;
      if (r && steps[side][r - 1] == own[i] * x.dims[i]) {
        dims[side][r - 1] *= x.dims[i], steps[side][r - 1] = own[i];
      } else {
        dims[side][r] = x.dims[i], steps[side][r++] = own[i];
      }
    }
  }
  int64_t offset(int side, int64_t at) const {
    int64_t sum = 0;
    for (int i = rank[side] - 1; i >= 0; i--) {
      sum += at % dims[side][i] * steps[side][i];
      at /= dims[side][i];
    }
    return sum;
  }
};

template <class T, class A>
static void reduce(int kind, const Split& s, const T* x, T* y, int64_t from, int64_t to) {
  for (int64_t o = from; o < to; o++) {
    const T* p = x + s.offset(0, o);
    auto sum = static_cast<A>(start_of<T>(kind));
    int r = s.rank[1];
    int64_t width = r ? s.dims[1][r - 1] : 1, step = r ? s.steps[1][r - 1] : 1;
    int64_t lines = s.inner && width ? s.inner / width : 0;
    for (int64_t line = 0; line < lines; line++) {
      const T* q = p + (r > 1 ? s.offset(1, line * width) : 0);
      for (int64_t i = 0; i < width; i++) sum = joined(kind, sum, q[i * step]);
    }
    y[o] = static_cast<T>(kind == kMeanOf ? sum / static_cast<A>(s.inner) : sum);
  }
}

void run_reduce(Node& n, int kind) {
  const Tensor &x = *n.input(0), &y = *n.output();
  unsigned axes = 0;
  for (int64_t a : n.attrs) axes |= 1u << a;
  Split s(x, axes);
  bool line = s.rank[1] == 1 && s.steps[1][0] == 1;
  parallel(*n.model, y.count, larger(1, 8192 / larger(1, s.inner)),
           [&](int64_t from, int64_t to, int) {
    if (x.type == BL_FLOAT32 && line && kind != kMinOf && kind != kProductOf) {
      for (int64_t o = from; o < to; o++) {
        const float* p = x.as<float>() + s.offset(0, o);
        float value = kind == kMaxOf ? kernels_of(n).maximum(p, s.inner)
                                     : kernels_of(n).sum(p, s.inner);
        y.as<float>()[o] = kind == kMeanOf ? value / static_cast<float>(s.inner) : value;
      }
      return;
    }
    switch (x.type) {
      case BL_FLOAT32: return reduce<float, double>(kind, s, x.as<float>(), y.as<float>(), from, to);
      case BL_FLOAT64:
        return reduce<double, double>(kind, s, x.as<double>(), y.as<double>(), from, to);
      case BL_INT32:  // sums may wrap around; extremes need the sign
      case BL_UINT32:
        if (x.type == BL_UINT32 || kind == kSumOf || kind == kProductOf)
          return reduce<uint32_t, uint32_t>(kind, s, x.as<uint32_t>(), y.as<uint32_t>(), from, to);
        return reduce<int32_t, int32_t>(kind, s, x.as<int32_t>(), y.as<int32_t>(), from, to);
      case BL_INT64:
        if (kind == kSumOf || kind == kProductOf)
          return reduce<uint64_t, uint64_t>(kind, s, x.as<uint64_t>(), y.as<uint64_t>(), from, to);
        return reduce<int64_t, int64_t>(kind, s, x.as<int64_t>(), y.as<int64_t>(), from, to);
      case BL_INT8:
        return reduce<int8_t, int64_t>(kind, s, x.as<int8_t>(), y.as<int8_t>(), from, to);
      default:
        return reduce<uint8_t, int64_t>(kind, s, x.as<uint8_t>(), y.as<uint8_t>(), from, to);
    }
  });
}

// The place of an extreme along attrs[0]; the first of equal ones, and NaN before all.
const char* check_position(Node& n, int) {
  TRY(arity(n, 1, 1, 1));
  const Tensor &x = *n.input(0), &y = *n.output();
  NEED(within(n, 0, 0, x.rank - 1) && (y.type == BL_INT32 || y.type == BL_INT64), "attributes");
  NEED(x.dims[n.attrs[0]] > 0 && x.count == y.count * x.dims[n.attrs[0]], "shapes do not fit");
  return nullptr;
}

template <class T>
static void position(Node& n, bool largest) {
  const Tensor &x = *n.input(0), &y = *n.output();
  auto axis = static_cast<int>(n.attrs[0]);
  int64_t size = x.dims[axis], inner = x.product(axis + 1, x.rank);
  for (int64_t o = 0; o < y.count; o++) {
    const T* p = x.as<T>() + o / inner * size * inner + o % inner;
    int64_t best = 0;
    for (int64_t i = 1; i < size; i++) {
      T a = p[i * inner], b = p[best * inner];
      if (b == b && (a != a || (largest ? a > b : a < b))) best = i;
    }
    if (y.type == BL_INT32) y.as<int32_t>()[o] = static_cast<int32_t>(best);
    else y.as<int64_t>()[o] = best;
  }
}

void run_position(Node& n, int largest) {
  switch (n.input(0)->type) {
    case BL_FLOAT32: return position<float>(n, largest);
    case BL_FLOAT64: return position<double>(n, largest);
    case BL_INT32: return position<int32_t>(n, largest);
    case BL_UINT32: return position<uint32_t>(n, largest);
    case BL_INT64: return position<int64_t>(n, largest);
    case BL_INT8: return position<int8_t>(n, largest);
    default: return position<uint8_t>(n, largest);
  }
}

// Running sums and the like along attrs[0]; attrs[1]: from behind.
const char* check_running(Node& n, int) {
  TRY(arity(n, 1, 1, 1));
  const Tensor &x = *n.input(0), &y = *n.output();
  NEED(same_shape(x, y) && x.type == y.type && type_size(x.type) >= 4, "types do not fit");
  NEED(within(n, 0, 0, x.rank - 1) && within(n, 1, 0, 1), "attributes");
  return nullptr;
}

template <class T, class A>
static void running(Node& n, int kind) {
  const Tensor &x = *n.input(0), &y = *n.output();
  auto axis = static_cast<int>(n.attrs[0]);
  int64_t size = x.dims[axis], inner = x.product(axis + 1, x.rank);
  for (int64_t o = 0; o < (size ? x.count / size : 0); o++) {
    int64_t at = o / inner * size * inner + o % inner;
    int64_t step = n.attrs[1] ? -inner : inner;
    if (n.attrs[1]) at += (size - 1) * inner;
    A sum = static_cast<A>(start_of<T>(kind));
    if (kind == kLogSum) sum = static_cast<A>(start_of<T>(kMaxOf));
    for (int64_t i = 0; i < size; i++, at += step) {
      T v = x.as<T>()[at];
      if (kind == kLogSum) {
        double a = static_cast<double>(sum), b = static_cast<double>(v);
        double top = a > b ? a : b;
        sum = static_cast<A>(isinf(top) ? top : top + log(exp(a - top) + exp(b - top)));
      } else {
        sum = joined(kind, sum, v);
      }
      y.as<T>()[at] = static_cast<T>(sum);
    }
  }
}

void run_running(Node& n, int kind) {
  bool extreme = kind == kMaxOf || kind == kMinOf;
  switch (n.input(0)->type) {
    case BL_FLOAT32: return running<float, double>(n, kind);
    case BL_FLOAT64: return running<double, double>(n, kind);
    case BL_INT32:
      return extreme ? running<int32_t, int32_t>(n, kind) : running<uint32_t, uint32_t>(n, kind);
    case BL_UINT32: return running<uint32_t, uint32_t>(n, kind);
    default:
      return extreme ? running<int64_t, int64_t>(n, kind) : running<uint64_t, uint64_t>(n, kind);
  }
}

// Windows over any axes; attrs for each axis: window, stride, padding before, dilation.
const char* check_windows(Node& n, int) {
  TRY(arity(n, 1, 1, 1));
  const Tensor &x = *n.input(0), &y = *n.output();
  NEED(x.rank == y.rank && x.type == y.type && (x.type == BL_FLOAT32 || x.type == BL_INT32) &&
           n.attrs.size == 4 * x.rank,
       "types or ranks do not fit");
  int64_t window = 1;
  for (int i = 0; i < x.rank; i++) {
    for (int a = 0; a < 4; a++)
      NEED(within(n, 4 * i + a, a == 2 ? -(1 << 20) : 1, 1 << 20), "attributes");
    NEED(!__builtin_mul_overflow(window, n.attrs[4 * i], &window), "attributes");
  }
  return nullptr;
}

template <class T>
static void windows(Node& n, int kind) {
  const Tensor &x = *n.input(0), &y = *n.output();
  int64_t own[kMaxRank], window = 1, size[kMaxRank];
  strides_of(x, own);
  for (int i = 0; i < x.rank; i++) window *= size[i] = n.attrs[4 * i];
  parallel(*n.model, y.count, larger(1, 4096 / window), [&](int64_t from, int64_t to, int) {
    for (int64_t o = from; o < to; o++) {
      int64_t first[kMaxRank], rest = o;
      for (int i = x.rank - 1; i >= 0; i--) {
        first[i] = rest % y.dims[i] * n.attrs[4 * i + 1] - n.attrs[4 * i + 2];
        rest /= y.dims[i];
      }
      T sum = start_of<T>(kind);
      for (int64_t k = 0; k < window; k++) {
        int64_t left = k, at = 0;
        bool inside = true;
        for (int i = x.rank - 1; i >= 0; i--) {
          int64_t place = first[i] + left % size[i] * n.attrs[4 * i + 3];
          left /= size[i];
          inside &= place >= 0 && place < x.dims[i];
          at += place * own[i];
        }
        if (inside) sum = joined(kind, sum, x.as<T>()[at]);
      }
      y.as<T>()[o] = sum;
    }
  });
}

void run_windows(Node& n, int kind) {
  return n.input(0)->type == BL_FLOAT32 ? windows<float>(n, kind) : windows<int32_t>(n, kind);
}

}  // namespace lite
