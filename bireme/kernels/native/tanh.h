// The hyperbolic tangent of a register of floats.
#pragma once

#include "exponential.h"
#include "vectors.h"

namespace bireme {

inline Vec Tanh(Vec x) {
  // Near zero the quotient loses digits; an odd polynomial does not.
  const Vec square = x * x;
  Vec near = Splat(-5.70498872745e-3f);
  near = near * square + 2.06390887954e-2f;
  near = near * square - 5.37397155531e-2f;
  near = near * square + 1.33314422036e-1f;
  near = near * square - 3.33332819422e-1f;
  near = near * square * x + x;
  const Vec far = 1.0f - 2.0f / (Exp(2.0f * x) + 1.0f);
  return square < Splat(0.390625f) ? near : far;
}

}  // namespace bireme
