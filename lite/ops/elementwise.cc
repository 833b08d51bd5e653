// Functions of one or two numbers, comparison, choice, casts.
#include <math.h>

#include "common.h"

namespace lite {

// --- one number --------------------------------------------------------------------------------

const char* check_unary(Node& n, int kind) {
  TRY(arity(n, 1, 1, 1));
  const Tensor &x = *n.input(0), &y = *n.output();
  NEED(x.count == y.count, "shapes do not fit");
  if (kind == kNot) {
    NEED(x.type == y.type && is_whole(x), "types do not fit");
  } else if (kind == kIsFinite) {
    NEED(y.type == BL_BOOL && !is_whole(x), "types do not fit");
  } else {
    bool any = kind == kNeg || kind == kAbs || kind == kSign || kind == kSquare || kind == kPower;
    NEED(x.type == y.type && (any ? x.type != BL_BOOL : !is_whole(x)), "types do not fit");
  }
  bool two = kind == kLeakyRelu || kind == kHardSigmoid || kind == kClip;
  NEED(!two || n.numbers.size == 2, "numbers");
  NEED(kind != kPower || within(n, 0, -1000, 1000), "the power");
  return nullptr;
}

template <class T>
static T power(T x, int64_t n) {
  if (n < 0) return T(1) / power(x, -n);
  T y = 1;
  for (; n; n >>= 1, x = x * x)
    if (n & 1) y = y * x;
  return y;
}

static double erf_inverse(double x) {
  if (!(x > -1 && x < 1)) return x == 1 ? INFINITY : x == -1 ? -INFINITY : NAN;
  double l = log((1 - x) * (1 + x)), a = 0.147, t = 2 / (M_PI * a) + l / 2;
  double y = copysign(sqrt(sqrt(t * t - l / a) - t), x);
  for (int i = 0; i < 4; i++) y -= (erf(y) - x) / (2 / sqrt(M_PI) * exp(-y * y));
  return y;
}

static double slow(int kind, double x, const double* p, int64_t n) {
  switch (kind) {
    case kRelu: return x > 0 || x != x ? x : 0;
    case kRelu6: return x < 0 ? 0 : x > 6 ? 6 : x;
    case kLeakyRelu: return x > 0 ? x : x * p[0];
    case kHardSigmoid: x = x * p[0] + p[1]; return x < 0 ? 0 : x > 1 ? 1 : x;
    case kClip: return x < p[0] ? p[0] : x > p[1] ? p[1] : x;
    case kHardSwish: return x * (x + 3 < 0 ? 0 : x + 3 > 6 ? 6 : x + 3) / 6;
    case kSigmoid: return 1 / (1 + exp(-x));
    case kSilu: return x / (1 + exp(-x));
    case kGelu: return x / 2 * (1 + erf(x * M_SQRT1_2));
    case kGeluTanh: return x / 2 * (1 + tanh((x + 0.044715 * x * x * x) * 0.7978845608028654));
    case kExp: return exp(x);
    case kTanh: return tanh(x);
    case kErf: return erf(x);
    case kSqrt: return sqrt(x);
    case kRsqrt: return 1 / sqrt(x);
    case kFloor: return floor(x);
    case kReciprocal: return 1 / x;
    case kCeil: return ceil(x);
    case kRound: return round(x);
    case kRoundEven: return nearbyint(x);
    case kSign: return x != x ? x : (x > 0) - (x < 0);
    case kLog: return log(x);
    case kLog1p: return log1p(x);
    case kExpm1: return expm1(x);
    case kExp2: return exp2(x);
    case kSin: return sin(x);
    case kCos: return cos(x);
    case kTan: return tan(x);
    case kAsin: return asin(x);
    case kAcos: return acos(x);
    case kAtan: return atan(x);
    case kSinh: return sinh(x);
    case kCosh: return cosh(x);
    case kAsinh: return asinh(x);
    case kAcosh: return acosh(x);
    case kAtanh: return atanh(x);
    case kCbrt: return cbrt(x);
    case kErfc: return erfc(x);
    case kErfInv: return erf_inverse(x);
    case kLgamma: return lgamma(x);
    case kNeg: return -x;
    case kAbs: return fabs(x);
    case kSquare: return x * x;
    default: return power(x, n);
  }
}

template <class T>
static void whole_numbers(int kind, const T* x, T* y, int64_t count, int64_t n) {
  for (int64_t i = 0; i < count; i++) {
    T v = x[i], zero = 0;  // U: differences may wrap around
    switch (kind) {
      case kNeg: y[i] = static_cast<T>(uint64_t{0} - static_cast<uint64_t>(v)); break;
      case kAbs:
        y[i] = v < zero ? static_cast<T>(uint64_t{0} - static_cast<uint64_t>(v)) : v;
        break;
      case kSign: y[i] = static_cast<T>((v > zero) - (v < zero)); break;
      case kNot: y[i] = static_cast<T>(~v); break;
      case kSquare: y[i] = static_cast<T>(static_cast<uint64_t>(v) * static_cast<uint64_t>(v)); break;
      default: y[i] = n < 0 ? zero : static_cast<T>(power(static_cast<uint64_t>(v), n));
    }
  }
}

void run_unary(Node& n, int kind) {
  const Tensor &x = *n.input(0), &y = *n.output();
  int64_t power = n.attrs.size ? n.attrs[0] : 0;
  switch (x.type) {
    case BL_FLOAT32: {
      if (kind < kUnaryVector) {
        float numbers[2] = {};
        for (int i = 0; i < 2 && i < n.numbers.size; i++)
          numbers[i] = static_cast<float>(n.numbers[i]);
        parallel(*n.model, x.count, 4096, [&](int64_t from, int64_t to, int) {
          kernels_of(n).unary(kind, x.as<float>() + from, y.as<float>() + from, to - from, numbers);
        });
      } else if (kind == kIsFinite) {
        for (int64_t i = 0; i < x.count; i++) y.as<bool>()[i] = isfinite(x.as<float>()[i]);
      } else {
        parallel(*n.model, x.count, 1024, [&](int64_t from, int64_t to, int) {
          for (int64_t i = from; i < to; i++)
            y.as<float>()[i] =
                static_cast<float>(slow(kind, x.as<float>()[i], n.numbers.data, power));
        });
      }
      return;
    }
    case BL_FLOAT64:
      for (int64_t i = 0; i < x.count; i++) {
        if (kind == kIsFinite) y.as<bool>()[i] = isfinite(x.as<double>()[i]);
        else y.as<double>()[i] = slow(kind, x.as<double>()[i], n.numbers.data, power);
      }
      return;
    case BL_BOOL:
      for (int64_t i = 0; i < x.count; i++) y.as<uint8_t>()[i] = !x.as<uint8_t>()[i];
      return;
    case BL_UINT8: return whole_numbers(kind, x.as<uint8_t>(), y.as<uint8_t>(), x.count, power);
    case BL_INT8: return whole_numbers(kind, x.as<int8_t>(), y.as<int8_t>(), x.count, power);
    case BL_INT32: return whole_numbers(kind, x.as<int32_t>(), y.as<int32_t>(), x.count, power);
    case BL_UINT32: return whole_numbers(kind, x.as<uint32_t>(), y.as<uint32_t>(), x.count, power);
    default: return whole_numbers(kind, x.as<int64_t>(), y.as<int64_t>(), x.count, power);
  }
}

// --- several numbers, with axes that are repeated ------------------------------------------------

// Which of up to three operands advance along each axis of the result; equal axes are joined.
struct Broadcast {
  int rank = 0, count;
  int64_t dims[kMaxRank + 1], steps[3][kMaxRank + 1];

  Broadcast(const Node& n, int operands) : count(operands) {
    const Tensor& y = *n.output();
    int64_t own[3][kMaxRank];
    for (int o = 0; o < count; o++) {
      const Tensor& t = *n.input(o);
      int64_t step = 1;
      for (int i = y.rank - 1; i >= 0; i--) {
        int at = i - (y.rank - t.rank);
        int64_t size = at < 0 ? 1 : t.dims[at];
        own[o][i] = size == 1 ? 0 : step;
        step *= size;
      }
    }
    for (int i = 0; i < y.rank; i++) {
      if (y.dims[i] == 1) continue;
      bool joins = rank > 0;
      for (int o = 0; o < count && joins; o++)
        joins = steps[o][rank - 1] == own[o][i] * y.dims[i];
      if (!joins) rank++, dims[rank - 1] = 1;
      dims[rank - 1] *= y.dims[i];
      for (int o = 0; o < count; o++) steps[o][rank - 1] = own[o][i];
    }
    if (!rank) {
      rank = 1, dims[0] = 1;
      for (int o = 0; o < count; o++) steps[o][0] = 0;
    }
  }
  int64_t lines() const {
    int64_t n = 1;
    for (int i = 0; i < rank - 1; i++) n *= dims[i];
    return n;
  }
  void offsets(int64_t line, int64_t* at) const {
    for (int o = 0; o < count; o++) at[o] = 0;
    for (int i = rank - 2; i >= 0; i--) {
      int64_t here = line % dims[i];
      line /= dims[i];
      for (int o = 0; o < count; o++) at[o] += here * steps[o][i];
    }
  }
};

static const char* check_broadcast(const Node& n, int operands) {
  const Tensor& y = *n.output();
  for (int o = 0; o < operands; o++) {
    const Tensor& t = *n.input(o);
    NEED(t.rank <= y.rank, "ranks do not fit");
    for (int i = 0; i < t.rank; i++)
      NEED(t.dims[i] == 1 || t.dims[i] == y.dims[y.rank - t.rank + i], "shapes do not fit");
  }
  return nullptr;
}

const char* check_binary(Node& n, int kind) {
  TRY(arity(n, 2, 2, 1));
  const Tensor &a = *n.input(0), &b = *n.input(1), &y = *n.output();
  NEED(a.type == b.type && (kind >= kEq ? y.type == BL_BOOL : y.type == a.type),
       "types do not fit");
  if (kind >= kAnd && kind <= kShiftRightSigned) NEED(is_whole(a), "types do not fit");
  if (kind == kAtan2) NEED(!is_whole(a), "types do not fit");
  if (a.type == BL_BOOL)
    NEED(kind >= kEq || kind == kMax || kind == kMin || (kind >= kAnd && kind <= kXor) ||
             kind == kMul || kind == kAdd,
         "types do not fit");
  return check_broadcast(n, 2);
}

template <class T, class U>
static T computed(int kind, T a, T b) {
  constexpr bool floating = T(0.5) != T(0);
  constexpr int width = 8 * sizeof(T);
  switch (kind) {
    case kAdd: return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
    case kSub: return static_cast<T>(static_cast<U>(a) - static_cast<U>(b));
    case kMul: return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
    case kMax: return a > b || a != a ? a : b;
    case kMin: return a < b || a != a ? a : b;
  }
  if constexpr (floating) {
    switch (kind) {
      case kDiv: return a / b;
      case kPow: return static_cast<T>(pow(a, b));
      case kRem: return static_cast<T>(fmod(a, b));
      default: return static_cast<T>(atan2(a, b));
    }
  } else {
    auto ua = static_cast<U>(a);
    switch (kind) {
      case kDiv:  // as XLA: -1 for a division by zero
        if (b == 0) return static_cast<T>(-1);
        return b == static_cast<T>(-1) && T(-1) < T(0) ? static_cast<T>(U(0) - ua)
                                                       : static_cast<T>(a / b);
      case kRem:
        if (b == 0) return a;
        return b == static_cast<T>(-1) && T(-1) < T(0) ? T(0) : static_cast<T>(a % b);
      case kPow: return b < 0 ? T(0) : static_cast<T>(power(ua, static_cast<int64_t>(b)));
      case kAnd: return a & b;
      case kOr: return a | b;
      case kXor: return a ^ b;
      case kShiftLeft: return b < 0 || b >= width ? T(0) : static_cast<T>(ua << b);
      case kShiftRight: return b < 0 || b >= width ? T(0) : static_cast<T>(ua >> b);
      default: return b < 0 || b >= width ? static_cast<T>(a < 0 ? -1 : 0)
                                          : static_cast<T>(a >> b);
    }
  }
}

template <class T>
static bool compared(int kind, T a, T b) {
  switch (kind) {
    case kEq: return a == b;
    case kNe: return a != b;
    case kLt: return a < b;
    case kLe: return a <= b;
    case kGt: return a > b;
    default: return a >= b;
  }
}

template <class T, class U>
static void binary_line(int kind, const Tensor& a, const Tensor& b, const Tensor& y,
                        const int64_t* at, int64_t out, int64_t sa, int64_t sb, int64_t count) {
  const T *p = a.as<T>() + at[0], *q = b.as<T>() + at[1];
  if (kind >= kEq)
    for (int64_t i = 0; i < count; i++) y.as<bool>()[out + i] = compared(kind, p[i * sa], q[i * sb]);
  else
    for (int64_t i = 0; i < count; i++)
      y.as<T>()[out + i] = computed<T, U>(kind, p[i * sa], q[i * sb]);
}

void run_binary(Node& n, int kind) {
  const Tensor &a = *n.input(0), &b = *n.input(1), &y = *n.output();
  if (!y.count) return;
  Broadcast w(n, 2);
  int64_t width = w.dims[w.rank - 1], sa = w.steps[0][w.rank - 1], sb = w.steps[1][w.rank - 1];
  bool fast = a.type == BL_FLOAT32 && kind < kBinaryVector && sa <= 1 && sb <= 1;
  parallel(*n.model, w.lines(), larger(1, 8192 / width), [&](int64_t from, int64_t to, int) {
    for (int64_t line = from; line < to; line++) {
      int64_t at[3], out = line * width;
      w.offsets(line, at);
      if (fast) {
        kernels_of(n).binary(kind, a.as<float>() + at[0], sa, b.as<float>() + at[1], sb,
                             y.as<float>() + out, width);
        continue;
      }
      switch (a.type) {
        case BL_FLOAT32: binary_line<float, float>(kind, a, b, y, at, out, sa, sb, width); break;
        case BL_FLOAT64: binary_line<double, double>(kind, a, b, y, at, out, sa, sb, width); break;
        case BL_INT32: binary_line<int32_t, uint32_t>(kind, a, b, y, at, out, sa, sb, width); break;
        case BL_UINT32:
          binary_line<uint32_t, uint32_t>(kind, a, b, y, at, out, sa, sb, width);
          break;
        case BL_INT64: binary_line<int64_t, uint64_t>(kind, a, b, y, at, out, sa, sb, width); break;
        case BL_INT8: binary_line<int8_t, uint32_t>(kind, a, b, y, at, out, sa, sb, width); break;
        case BL_BOOL: {
          int logic = kind == kAdd || kind == kMax ? kOr : kind == kMul || kind == kMin ? kAnd : kind;
          binary_line<uint8_t, uint32_t>(logic, a, b, y, at, out, sa, sb, width);
          break;
        }
        default: binary_line<uint8_t, uint32_t>(kind, a, b, y, at, out, sa, sb, width);
      }
    }
  });
}

// where(condition, a, b)
const char* check_where(Node& n, int) {
  TRY(arity(n, 3, 3, 1));
  NEED(n.input(0)->type == BL_BOOL && n.input(1)->type == n.output()->type &&
           n.input(2)->type == n.output()->type,
       "types do not fit");
  return check_broadcast(n, 3);
}

template <class T>
static void where_line(const Node& n, const int64_t* at, int64_t out, const int64_t* s,
                       int64_t count) {
  const bool* c = n.input(0)->as<bool>() + at[0];
  const T *a = n.input(1)->as<T>() + at[1], *b = n.input(2)->as<T>() + at[2];
  T* y = n.output()->as<T>() + out;
  for (int64_t i = 0; i < count; i++) y[i] = c[i * s[0]] ? a[i * s[1]] : b[i * s[2]];
}

void run_where(Node& n, int) {
  if (!n.output()->count) return;
  Broadcast w(n, 3);
  int64_t width = w.dims[w.rank - 1], lines = w.lines();
  int64_t s[3] = {w.steps[0][w.rank - 1], w.steps[1][w.rank - 1], w.steps[2][w.rank - 1]};
  for (int64_t line = 0; line < lines; line++) {
    int64_t at[3];
    w.offsets(line, at);
    switch (type_size(n.output()->type)) {
      case 1: where_line<uint8_t>(n, at, line * width, s, width); break;
      case 4: where_line<uint32_t>(n, at, line * width, s, width); break;
      default: where_line<uint64_t>(n, at, line * width, s, width);
    }
  }
}

// --- casts ---------------------------------------------------------------------------------------

const char* check_cast(Node& n, int) {
  TRY(arity(n, 1, 1, 1));
  NEED(n.input(0)->count == n.output()->count, "shapes do not fit");
  return nullptr;
}

template <class From, class To>
static To converted(From x) {
  constexpr bool floating = From(0.5) != From(0), to_floating = To(0.5) != To(0);
  if constexpr (floating && !to_floating) {  // what does not fit becomes the nearest that does
    constexpr bool has_sign = To(-1) < To(0);
    constexpr int width = 8 * sizeof(To) - has_sign;
    if (x != x) return To(0);
    constexpr To high = static_cast<To>((((uint64_t{1} << (width - 1)) - 1) << 1) + 1);
    constexpr To low = has_sign ? static_cast<To>(-high - 1) : To(0);
    if (x >= static_cast<From>(high)) return high;
    if (x <= static_cast<From>(low)) return low;
  }
  return static_cast<To>(x);
}

template <class From, class To>
static void cast_all(const From* x, To* to, int64_t count) {
  for (int64_t i = 0; i < count; i++) to[i] = converted<From, To>(x[i]);
}

template <class From>
static void cast_from(const From* x, const Tensor& y) {
  auto all = [&](auto* to) { cast_all(x, to, y.count); };
  switch (y.type) {
    case BL_BOOL:
      for (int64_t i = 0; i < y.count; i++) y.as<bool>()[i] = x[i] != From(0);
      return;
    case BL_UINT8: return all(y.as<uint8_t>());
    case BL_INT8: return all(y.as<int8_t>());
    case BL_INT32: return all(y.as<int32_t>());
    case BL_UINT32: return all(y.as<uint32_t>());
    case BL_INT64: return all(y.as<int64_t>());
    case BL_FLOAT32: return all(y.as<float>());
    default: return all(y.as<double>());
  }
}

void run_cast(Node& n, int) {
  const Tensor &x = *n.input(0), &y = *n.output();
  switch (x.type) {
    case BL_BOOL:
    case BL_UINT8: return cast_from(x.as<uint8_t>(), y);
    case BL_INT8: return cast_from(x.as<int8_t>(), y);
    case BL_INT32: return cast_from(x.as<int32_t>(), y);
    case BL_UINT32: return cast_from(x.as<uint32_t>(), y);
    case BL_INT64: return cast_from(x.as<int64_t>(), y);
    case BL_FLOAT32: return cast_from(x.as<float>(), y);
    default: return cast_from(x.as<double>(), y);
  }
}

const char* check_bits(Node& n, int) {
  TRY(arity(n, 1, 1, 1));
  NEED(n.input(0)->bytes() == n.output()->bytes(), "shapes do not fit");
  return nullptr;
}

void run_bits(Node& n, int) {
  if (n.output()->count) memcpy(n.output()->data, n.input(0)->data, n.output()->bytes());
}

}  // namespace lite
