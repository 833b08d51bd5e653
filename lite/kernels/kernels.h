// Inner loops, compiled once for each instruction set and chosen when a model is opened.
#pragma once

#include <stdint.h>

namespace lite {

// Functions of one number; those up to kUnaryVector have vector code.
enum UnaryKind {
  kNone, kRelu, kRelu6, kLeakyRelu, kHardSigmoid, kHardSwish, kSigmoid, kSilu, kGelu, kGeluTanh,
  kExp, kTanh, kErf, kSqrt, kRsqrt, kNeg, kAbs, kSquare, kFloor, kReciprocal, kClip, kUnaryVector,
  kCeil, kRound, kRoundEven, kSign, kLog, kLog1p, kExpm1, kExp2, kSin, kCos, kTan, kAsin, kAcos,
  kAtan, kSinh, kCosh, kAsinh, kAcosh, kAtanh, kCbrt, kErfc, kErfInv, kLgamma, kNot, kIsFinite,
  kPower
};

enum BinaryKind {
  kAdd, kSub, kMul, kDiv, kMax, kMin, kBinaryVector, kPow, kRem, kAtan2, kAnd, kOr, kXor,
  kShiftLeft, kShiftRight, kShiftRightSigned, kEq, kNe, kLt, kLe, kGt, kGe
};

// What follows a product: (sum + bias + added) through a function, times `factor`, plus `shift`.
struct After {
  const float* row_bias = nullptr;
  const float* column_bias = nullptr;
  const float* added = nullptr;
  int64_t added_stride = 0;
  int function = kNone;
  float numbers[2] = {0, 0};
  float factor = 1, shift = 0;
};

// Positions under a window, one tap each, in planes of which all positions lie side by side.
struct Taps {
  const float* const* from;
  const float* weights;
  int count;
};

struct Kernels {
  const char* name;
  int rows, columns;  // of a tile of a product
  // C[m, n] = A[m, k] B[k, n], n at most `columns`; A by strides, B by rows of `ldb` that hold
  // `columns` numbers. With `more`, C is added to; `after` ends it and may be NULL.
  void (*product)(int64_t m, int64_t n, int64_t k, const float* a, int64_t row, int64_t column,
                  const float* b, int64_t ldb, float* c, int64_t ldc, bool more,
                  const After* after);
  void (*unary)(int kind, const float* x, float* y, int64_t n, const float* numbers);
  // Strides are 0 or 1.
  void (*binary)(int kind, const float* a, int64_t sa, const float* b, int64_t sb, float* y,
                 int64_t n);
  void (*weighted)(const Taps& taps, float bias, float* y, int64_t n, const After& after);
  void (*largest)(const Taps& taps, float* y, int64_t n);
  float (*sum)(const float* x, int64_t n);
  float (*maximum)(const float* x, int64_t n);
  // y = exp(x - top); returns the sum.
  float (*exp_sum)(const float* x, float top, float* y, int64_t n);
  // The sum of (x - mean)^2.
  float (*spread)(const float* x, float mean, int64_t n);
  // y = (x - mean) * factor * weight + bias; weight and bias may be NULL.
  void (*normalise)(const float* x, float mean, float factor, const float* weight,
                    const float* bias, float* y, int64_t n);
};

// The best of this machine for NULL; NULL if the library or machine does not have these.
const Kernels* find_kernels(const char* name);

}  // namespace lite
