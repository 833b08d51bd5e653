// The exponential and the logistic function of a register of floats, of any width.
#pragma once

#include "vectors.h"

namespace bireme {

// e^x as 2^n times a polynomial on the remainder (Cephes' coefficients), about 1 unit in the last
// place off for x from -87.33 to 88. Zero below, where the result would be below the normal
// numbers; e^88 above; NaN for NaN.
template <typename V>
inline V Exp(V x) {
  using Int = decltype(x < x);
  constexpr float kLow = -87.33f, kHigh = 88.0f;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  V v = x < kLow ? kLow - V{} : x;
  v = v > kHigh ? kHigh - V{} : v;
  const V shifted = v * 1.44269504f + kRound;
  const V n = shifted - kRound;
  const V r = v - n * 0.693359375f + n * 2.12194440e-4f;  // log(2) in two parts
  V p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const Int power = ((Int)shifted << 23) + (127 << 23);
  return x < kLow ? V{} : p * (V)power;
}

template <typename V>
inline V Sigmoid(V x) {
  return 1.0f / (1.0f + Exp(-x));
}

}  // namespace bireme
