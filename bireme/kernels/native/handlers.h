// What every file of handlers needs: the FFI's names, and bindings that several of them share.
#pragma once

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

// Two operands, one result, and the window of a convolution.
#define BIREME_CONV_HANDLER(Name, Function)                                  \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(Name, Function,                              \
                                ffi::Ffi::Bind()                             \
                                    .Ctx<ffi::ThreadPool>()                  \
                                    .Arg<ffi::Buffer<ffi::F32>>()            \
                                    .Arg<ffi::Buffer<ffi::F32>>()            \
                                    .Ret<ffi::Buffer<ffi::F32>>()            \
                                    .Attr<int64_t>("stride_h")               \
                                    .Attr<int64_t>("stride_w")               \
                                    .Attr<int64_t>("top")                    \
                                    .Attr<int64_t>("left")                   \
                                    .Attr<int64_t>("dil_h")                  \
                                    .Attr<int64_t>("dil_w"))
