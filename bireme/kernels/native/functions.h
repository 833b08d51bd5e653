// Functions of a register of floats over their whole range: infinities, NaN, and numbers too small
// to be normal, as NumPy has them.
#pragma once

#include <cstdint>
#include <limits>

#include "vectors.h"

namespace bireme {

typedef uint32_t Words __attribute__((vector_size(kLanes * 4), aligned(4), may_alias));
typedef int32_t Ints __attribute__((vector_size(kLanes * 4), aligned(4), may_alias));

// e^x over the whole range: infinity above 88.73, below -87.34 as far as small numbers go.
inline Vec WholeExp(Vec x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  Vec v = x < -105.0f ? Splat(-105.0f) : x;
  v = v > 89.0f ? Splat(89.0f) : v;
  const Vec shifted = v * 1.44269504f + kRound;
  const Vec n = shifted - kRound;
  const Vec r = v - n * 0.693359375f + n * 2.12194440e-4f;  // log(2) in two parts
  Vec p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const Ints whole = (Ints)shifted - (Ints)Splat(kRound), half = whole >> 1;
  return p * (Vec)((half + 127) << 23) * (Vec)((whole - half + 127) << 23);
}

// The natural logarithm: the exponent's, and a polynomial on the rest (Cephes' coefficients).
inline Vec Log(Vec x) {
  const auto small = x < 1.17549435e-38f;
  const Vec scaled = small ? x * 8388608.0f : x;
  Ints bits = (Ints)scaled;
  Ints e = ((bits >> 23) & 255) - 126;
  Vec m = (Vec)((bits & 0x007fffff) | 0x3f000000);  // [0.5, 1)
  const auto low = m < 0.707106781f;
  e = e - (low ? Ints{} + 1 : Ints{});
  m = low ? m + m - 1.0f : m - 1.0f;
  const Vec n = __builtin_convertvector(e, Vec) - (small ? Splat(23.0f) : Vec{});
  const Vec z = m * m;
  Vec p = m * 7.0376836292e-2f - 1.1514610310e-1f;
  p = p * m + 1.1676998740e-1f;
  p = p * m - 1.2420140846e-1f;
  p = p * m + 1.4249322787e-1f;
  p = p * m - 1.6668057665e-1f;
  p = p * m + 2.0000714765e-1f;
  p = p * m - 2.4999993993e-1f;
  p = p * m + 3.3333331174e-1f;
  Vec y = p * m * z + n * -2.12194440e-4f - 0.5f * z;
  y = m + y + n * 0.693359375f;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  y = x == kInfinity ? x : y;
  y = x == 0.0f ? Splat(-kInfinity) : y;
  return x < 0.0f || x != x ? Splat(std::numeric_limits<float>::quiet_NaN()) : y;
}

// x P(x^2) / Q(x^2) up to 4, where float32 has 1: the fit of ops/activation.py.
inline Vec Erf(Vec x) {
  Vec v = x < -4.0f ? Splat(-4.0f) : x;
  v = v > 4.0f ? Splat(4.0f) : v;
  const Vec s = v * v;
  Vec p = Splat(1.9868129e-6f), q = Splat(3.7420056e-5f);
  p = p * s + 2.8455768e-4f, q = q * s + 1.1854971e-3f;
  p = p * s + 3.8830527e-3f, q = q * s + 0.015206673f;
  p = p * s + 0.053100852f, q = q * s + 0.11534727f;
  p = p * s + 0.19353851f, q = q * s + 0.5048516f;
  p = p * s + 1.1283791f, q = q * s + 1.0f;
  Vec y = p * v / q;
  y = y < -1.0f ? Splat(-1.0f) : y;
  return y > 1.0f ? Splat(1.0f) : y;
}

// e^x - 1. Without the 1 the small remainder keeps its digits.
inline Vec Expm1(Vec x) {
  constexpr float kRound = 12582912.0f;
  Vec v = x < -17.5f ? Splat(-17.5f) : x;
  v = v > 89.0f ? Splat(89.0f) : v;
  const Vec shifted = v * 1.44269504f + kRound;
  const Vec n = shifted - kRound;
  const Vec r = v - n * 0.693359375f + n * 2.12194440e-4f;
  Vec p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r;
  const Ints whole = (Ints)shifted - (Ints)Splat(kRound), half = whole >> 1;
  const Vec by = (Vec)((half + 127) << 23), rest = (Vec)((whole - half + 127) << 23);
  const Vec y = (p * by + (by - 1.0f / rest)) * rest;
  return whole == 0 ? p : y;
}

// log(1 + x), with what rounding 1 + x lost.
inline Vec Log1p(Vec x) {
  const Vec u = 1.0f + x;
  const Vec y = Log(u) + (u == 0.0f ? Vec{} : (x - (u - 1.0f)) / u);
  return u == 1.0f || x > 3.0e38f ? x : y;
}

}  // namespace bireme
