// What every file of handlers needs: the FFI's names, and bindings that several of them share.
#pragma once

#include "xla/ffi/api/ffi.h"

#include <utility>

namespace ffi = xla::ffi;

namespace bireme {

using Floats = ffi::Buffer<ffi::F32>;

// A binding with so many more arrays of floats as operands. (Bindings cannot be moved: every one
// is made where it is wanted.)
template <int kCount, typename Binding>
auto FloatArgs(Binding&& binding) {
  if constexpr (kCount == 1) {
    return std::move(binding).template Arg<Floats>();
  } else {
    return FloatArgs<kCount - 1>(std::move(binding).template Arg<Floats>());
  }
}

// The same for results.
template <int kCount, typename Binding>
auto FloatRets(Binding&& binding) {
  if constexpr (kCount == 1) {
    return std::move(binding).template Ret<Floats>();
  } else {
    return FloatRets<kCount - 1>(std::move(binding).template Ret<Floats>());
  }
}

// What a handler on the thread pool starts with: so many arrays of floats.
template <int kArgs>
auto BindFloats() {
  return FloatArgs<kArgs>(ffi::Ffi::Bind().Ctx<ffi::ThreadPool>());
}

}  // namespace bireme

#define BIREME_CONV_WINDOW(Bound)  \
  Bound.Attr<int64_t>("stride_h")  \
      .Attr<int64_t>("stride_w")   \
      .Attr<int64_t>("top")        \
      .Attr<int64_t>("left")       \
      .Attr<int64_t>("dil_h")      \
      .Attr<int64_t>("dil_w")

// Two operands, one result, and the window of a convolution.
#define BIREME_CONV_HANDLER(Name, Function)                                                       \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(Name, Function,                                                   \
                                BIREME_CONV_WINDOW(ffi::Ffi::Bind()                               \
                                                       .Ctx<ffi::ThreadPool>()                    \
                                                       .Arg<ffi::Buffer<ffi::F32>>()              \
                                                       .Arg<ffi::Buffer<ffi::F32>>()              \
                                                       .Ret<ffi::Buffer<ffi::F32>>()))

// Both gradients in one call: operands input, gradient and weight. Whoever updates the weight from
// its gradient then comes after the last reader of the weight, so XLA has no reason to copy it.
#define BIREME_CONV_GRADS_HANDLER(Name, Input, Weight)                                            \
  static ffi::Error Name##_both(                                                                  \
      ffi::ThreadPool pool, ffi::Buffer<ffi::F32> x, ffi::Buffer<ffi::F32> g,                     \
      ffi::Buffer<ffi::F32> w, ffi::ResultBuffer<ffi::F32> dx, ffi::ResultBuffer<ffi::F32> dw,    \
      int64_t stride_h, int64_t stride_w, int64_t top, int64_t left, int64_t dil_h,               \
      int64_t dil_w) {                                                                            \
    ffi::Error error = Input(pool, g, w, dx, stride_h, stride_w, top, left, dil_h, dil_w);        \
    if (error.failure()) return error;                                                            \
    return Weight(pool, x, g, dw, stride_h, stride_w, top, left, dil_h, dil_w);                   \
  }                                                                                               \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(Name, Name##_both,                                                \
                                BIREME_CONV_WINDOW(ffi::Ffi::Bind()                               \
                                                       .Ctx<ffi::ThreadPool>()                    \
                                                       .Arg<ffi::Buffer<ffi::F32>>()              \
                                                       .Arg<ffi::Buffer<ffi::F32>>()              \
                                                       .Arg<ffi::Buffer<ffi::F32>>()              \
                                                       .Ret<ffi::Buffer<ffi::F32>>()              \
                                                       .Ret<ffi::Buffer<ffi::F32>>()))
