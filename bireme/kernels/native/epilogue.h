// What happens to a sum on its way to memory: bias, a second operand, an activation, and a number
// that scales and one that shifts.
#pragma once

#include <cmath>

#include "exponential.h"
#include "handlers.h"
#include "vectors.h"

namespace bireme {

// Half a register, for the last channels of a panel.
constexpr int kHalf = kLanes / 2;
typedef float HalfVec __attribute__((vector_size(kHalf * sizeof(float)), aligned(4), may_alias));

// From and to memory of any alignment: as a template's argument a vector type loses that it may
// lie anywhere.
template <typename V>
V LoadAs(const float* p) {
  V v;
  std::memcpy(&v, p, sizeof(V));
  return v;
}

template <typename V>
void StoreAs(float* p, V v) {
  std::memcpy(p, &v, sizeof(V));
}

// The order of the names in cpu_packed.py.
enum Activation { kNone, kRelu, kRelu6, kLeakyRelu, kHardSigmoid, kHardSwish, kSigmoid, kSilu, kGelu };

// These work on registers of any width, V.
template <typename V>
V Clamp(V v, float low, float high) {  // a NaN stays
  v = v < low ? low - V{} : v;
  return v > high ? high - V{} : v;
}

// The error function by formula 7.1.26 of Abramowitz and Stegun: at most 1.5e-7 off.
template <typename V>
V Erf(V v) {
  const V x = v < 0.0f ? -v : v;
  const V t = 1.0f / (1.0f + 0.3275911f * x);
  V p = t * 1.061405429f - 1.453152027f;
  p = p * t + 1.421413741f;
  p = p * t - 0.284496736f;
  p = p * t + 0.254829592f;
  const V y = 1.0f - p * t * Exp(-x * x);
  return v < 0.0f ? -y : y;
}

template <typename V>
inline __attribute__((always_inline)) V Activate(V v, int kind, float a, float b) {
  switch (kind) {
    case kRelu: return v < 0.0f ? V{} : v;
    case kRelu6: return Clamp(v, 0.0f, 6.0f);
    case kLeakyRelu: return v < 0.0f ? v * a : v;
    case kHardSigmoid: return Clamp(v * a + b, 0.0f, 1.0f);
    case kHardSwish: return v * Clamp(v + 3.0f, 0.0f, 6.0f) * (1.0f / 6.0f);
    case kSigmoid: return Sigmoid(v);
    case kSilu: return v * Sigmoid(v);
    case kGelu: return 0.5f * v * (1.0f + Erf(v * 0.70710678f));
    default: return v;
  }
}

class Epilogue {
 public:
  // `numbers`: the activation, its two parameters, the factor and the shift after it. `added` has
  // the layout of the result.
  Epilogue(const float* bias, const float* added, const float* result,
           ffi::Span<const float> numbers)
      : bias_(bias), added_(added), result_(result), kind_(static_cast<int>(numbers[0])),
        a_(numbers[1]), b_(numbers[2]), factor_(numbers[3]), shift_(numbers[4]),
        affine_(numbers[3] != 1.0f || numbers[4] != 0.0f) {}

  // The register of sums that goes to `to`, the result's channels from `channel` on, with all that
  // comes before the activation.
  template <typename V>
  V Sum(V v, const float* to, int64_t channel) const {
    v += LoadAs<V>(bias_ + channel);
    return added_ ? v + LoadAs<V>(added_ + (to - result_)) : v;
  }

  // The same for `count` sums, which may end within a register.
  void SumSome(float* sums, const float* to, int64_t channel, int64_t count) const {
    for (int64_t c = 0; c < count; ++c) sums[c] += bias_[channel + c];
    if (added_)
      for (int64_t c = 0; c < count; ++c) sums[c] += added_[to - result_ + c];
  }

  // All that is left to do, to `count` sums in each of so many rows: where they lie, in the cache.
  void Finish(float* to, int64_t stride, int64_t rows, int64_t count) const {
    switch (kind_) {
      case kRelu: return FinishAs<kRelu>(to, stride, rows, count);
      case kRelu6: return FinishAs<kRelu6>(to, stride, rows, count);
      case kLeakyRelu: return FinishAs<kLeakyRelu>(to, stride, rows, count);
      case kHardSigmoid: return FinishAs<kHardSigmoid>(to, stride, rows, count);
      case kHardSwish: return FinishAs<kHardSwish>(to, stride, rows, count);
      case kSigmoid: return FinishAs<kSigmoid>(to, stride, rows, count);
      case kSilu: return FinishAs<kSilu>(to, stride, rows, count);
      case kGelu: return FinishAs<kGelu>(to, stride, rows, count);
      default:
        if (affine_) FinishAs<kNone>(to, stride, rows, count);
    }
  }

 private:
  template <int kKind>
  __attribute__((noinline)) void FinishAs(float* to, int64_t stride, int64_t rows,
                                          int64_t count) const {
    const auto finished = [this](auto v) {
      v = Activate(v, kKind, a_, b_);
      return affine_ ? v * factor_ + shift_ : v;
    };
    for (int64_t r = 0; r < rows; ++r, to += stride) {
      int64_t c = 0;
      for (; c + kLanes <= count; c += kLanes) Store(to + c, finished(Load(to + c)));
      if (c + kHalf <= count) {
        StoreAs(to + c, finished(LoadAs<HalfVec>(to + c)));
        c += kHalf;
      }
      if (c == count) continue;
      float part[kHalf] = {};
      std::memcpy(part, to + c, sizeof(float) * (count - c));
      StoreAs(part, finished(LoadAs<HalfVec>(part)));
      std::memcpy(to + c, part, sizeof(float) * (count - c));
    }
  }

  const float *bias_, *added_, *result_;
  int kind_;
  float a_, b_, factor_, shift_;
  bool affine_;
};

// The optional last operand.
inline const float* Added(ffi::RemainingArgs rest) {
  if (rest.size() == 0) return nullptr;
  auto found = rest.get<ffi::Buffer<ffi::F32>>(0);
  return found.has_value() ? found->typed_data() : nullptr;
}

}  // namespace bireme
