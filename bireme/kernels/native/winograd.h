// Convolutions with 3x3 kernels and steps of one, by Winograd's minimal algorithm F(2x2, 3x3): 16
// products where the sums take 36. All of it is linear, so both gradients have the same saving.
#pragma once

#include "images.h"
#include "xla/ffi/api/ffi.h"

namespace bireme {

// Whether tiles of two by two results are worth their transformations.
bool SuitsWinograd(int64_t kh, int64_t kw, int64_t stride_h, int64_t stride_w, int64_t dil_h,
                   int64_t dil_w, const Shape& in, const Shape& result);

// result = windows of `source` times the kernels, flipped if not `weights.forward`.
void WinogradProducts(xla::ffi::ThreadPool& pool, const float* source, const Shape& in, int64_t top,
                      int64_t left, const Weights& weights, float* result, const Shape& shape);

// The gradient of the weights [grad.channels, in.channels, 3, 3].
void WinogradWeightGradient(xla::ffi::ThreadPool& pool, const float* source, const Shape& in,
                            const float* gradient, const Shape& grad, int64_t top, int64_t left,
                            float* result);

}  // namespace bireme
