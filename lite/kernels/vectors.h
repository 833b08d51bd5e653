// Vectors of floats as GCC and Clang know them on every target. The file that includes this one
// says its namespace in LITE_ISA.
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels.h"

namespace lite {
namespace LITE_ISA {

#if defined(__AVX512F__)
constexpr int kLanes = 16, kRows = 12, kVectors = 2;
#elif defined(__AVX2__)
constexpr int kLanes = 8, kRows = 6, kVectors = 2;
#elif defined(__aarch64__)
constexpr int kLanes = 4, kRows = 8, kVectors = 2;
#elif defined(__riscv)
constexpr int kLanes = 4, kRows = 4, kVectors = 1;
#else
constexpr int kLanes = 4, kRows = 4, kVectors = 2;
#endif

typedef float V __attribute__((vector_size(4 * kLanes)));
typedef int32_t I __attribute__((vector_size(4 * kLanes)));

inline V load(const float* p) {
  V v;
  memcpy(&v, p, sizeof(v));
  return v;
}
inline void store(float* p, V v) { memcpy(p, &v, sizeof(v)); }
inline V splat(float x) { return x - V{}; }
inline I bits(V v) {
  I i;
  memcpy(&i, &v, sizeof(i));
  return i;
}
inline V floats(I i) {
  V v;
  memcpy(&v, &i, sizeof(v));
  return v;
}
inline V pick(I mask, V a, V b) { return floats((mask & bits(a)) | (~mask & bits(b))); }
inline I splat_int(int32_t x) { return x - I{}; }
inline V absolute(V x) { return floats(bits(x) & splat_int(0x7fffffff)); }
// The sign of `from` on a number that has none.
inline V signed_as(V x, V from) { return floats(bits(x) | (bits(from) & splat_int(INT32_MIN))); }
// As XLA's: a NaN of either side stays.
inline V maximum(V a, V b) { return pick((a > b) | (a != a), a, b); }
inline V minimum(V a, V b) { return pick((a < b) | (a != a), a, b); }
inline V clamp(V x, float low, float high) { return minimum(maximum(x, splat(low)), splat(high)); }

template <int N>
inline V polynomial(V x, const float (&c)[N]) {
  V y = splat(c[0]);
  for (int i = 1; i < N; i++) y = y * x + c[i];
  return y;
}

inline V exponential(V x) {
  x = clamp(x, -104.0f, 89.0f);
  V n = x * 1.44269504f + 12582912.0f;  // to the nearest whole number
  I whole = bits(n) - 0x4b400000;
  n = n - 12582912.0f;
  V r = x - n * 0.693359375f;
  r = r + n * 2.12194440e-4f;
  constexpr float c[] = {1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f,
                         4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f};
  V y = polynomial(r, c) * r * r + r + 1.0f;
  I half = whole >> 1;
  return y * floats((half + 127) << 23) * floats((whole - half + 127) << 23);
}

inline V sigmoid(V x) { return 1.0f / (1.0f + exponential(-x)); }

inline V tangent(V x) {
  V size = absolute(x), z = x * x;
  constexpr float c[] = {-5.70498872745e-3f, 2.06390887954e-2f, -5.37397155531e-2f,
                         1.33314422036e-1f, -3.33332819422e-1f};
  V small = polynomial(z, c) * z * x + x;
  V large = signed_as(1.0f - 2.0f / (exponential(size + size) + 1.0f), x);
  return pick(size < 0.625f, small, large);
}

inline V error_function(V x) {
  V size = absolute(x), z = x * x;
  constexpr float c[] = {7.853861353153693e-5f, -8.010193625184903e-4f, 5.188327685732524e-3f,
                         -2.685381193529856e-2f, 1.128358514861418e-1f, -3.761262582423300e-1f,
                         1.128379165726710e+0f};
  V small = x * polynomial(z, c);
  constexpr float p[] = {2.326819970068386e-2f, -1.387039388740657e-1f, 3.687424674597105e-1f,
                         -5.824733027278666e-1f, 6.210004621745983e-1f, -4.944515323274145e-1f,
                         3.404879937665872e-1f, -2.741127028184656e-1f, 5.638259427386472e-1f};
  constexpr float r[] = {-1.047766399936249e+1f, 1.297719955372516e+1f, -7.495518717768503e+0f,
                         2.921019019210786e+0f, -1.015265279202700e+0f, 4.218463358204948e-1f,
                         -2.820767439740514e-1f, 5.641895067754075e-1f};
  V q = 1.0f / pick(size < 1.0f, splat(1.0f), size), y = q * q;
  V tail = exponential(-z) * q * pick(size < 2.0f, polynomial(y, p), polynomial(y, r));
  V large = signed_as(1.0f - tail, x);
  return pick((size < 1.0f) | (x != x), small, large);
}

inline V square_root(V x) {
#if defined(__AVX512F__) || defined(__AVX2__) || defined(__aarch64__) || defined(__SSE2__)
  V y;
  for (int i = 0; i < kLanes; i++) y[i] = __builtin_sqrtf(x[i]);
  return y;
#else
  V y;
  for (int i = 0; i < kLanes; i++) y[i] = sqrtf(x[i]);
  return y;
#endif
}

inline V floor_of(V x) {
  V y;
  for (int i = 0; i < kLanes; i++) y[i] = floorf(x[i]);
  return y;
}

inline V function(int kind, V x, const float* n) {
  switch (kind) {
    case kRelu: return maximum(x, V{});
    case kRelu6: return clamp(x, 0, 6);
    case kLeakyRelu: return pick(x > V{}, x, x * n[0]);
    case kHardSigmoid: return clamp(x * n[0] + n[1], 0, 1);
    case kHardSwish: return x * clamp(x + 3.0f, 0, 6) * (1.0f / 6);
    case kSigmoid: return sigmoid(x);
    case kSilu: return x * sigmoid(x);
    case kGelu: return x * 0.5f * (1.0f + error_function(x * 0.70710678f));
    case kGeluTanh:
      return x * 0.5f * (1.0f + tangent((x + x * x * x * 0.044715f) * 0.79788456f));
    case kExp: return exponential(x);
    case kTanh: return tangent(x);
    case kErf: return error_function(x);
    case kSqrt: return square_root(x);
    case kRsqrt: return 1.0f / square_root(x);
    case kNeg: return -x;
    case kAbs: return absolute(x);
    case kSquare: return x * x;
    case kFloor: return floor_of(x);
    case kReciprocal: return 1.0f / x;
    case kClip: return clamp(x, n[0], n[1]);
  }
  return x;
}

}  // namespace LITE_ISA
}  // namespace lite
