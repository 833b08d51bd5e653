// PD_DISPATCH_*: run a lambda with `data_t` as the C++ type of a tensor's elements.
#pragma once

#include "bireme/types.h"

#define BIREME_CASE(enum_name, type, hint, ...) \
  case ::paddle::DataType::enum_name: {         \
    using hint = type;                          \
    return __VA_ARGS__();                       \
  }

#define BIREME_FLOATING(hint, ...)              \
  BIREME_CASE(FLOAT32, float, hint, __VA_ARGS__) \
  BIREME_CASE(FLOAT64, double, hint, __VA_ARGS__)
#define BIREME_HALF(hint, ...)                               \
  BIREME_CASE(FLOAT16, ::paddle::float16, hint, __VA_ARGS__) \
  BIREME_CASE(BFLOAT16, ::paddle::bfloat16, hint, __VA_ARGS__)
#define BIREME_INTEGRAL(hint, ...)                \
  BIREME_CASE(INT8, int8_t, hint, __VA_ARGS__)    \
  BIREME_CASE(UINT8, uint8_t, hint, __VA_ARGS__)  \
  BIREME_CASE(INT16, int16_t, hint, __VA_ARGS__)  \
  BIREME_CASE(INT32, int32_t, hint, __VA_ARGS__)  \
  BIREME_CASE(INT64, int64_t, hint, __VA_ARGS__)
#define BIREME_COMPLEX(hint, ...)                                \
  BIREME_CASE(COMPLEX64, ::paddle::complex64, hint, __VA_ARGS__) \
  BIREME_CASE(COMPLEX128, ::paddle::complex128, hint, __VA_ARGS__)

#define BIREME_DISPATCH(TYPE, NAME, CASES)                                                \
  [&] {                                                                                   \
    const auto bireme_type = TYPE;                                                        \
    switch (bireme_type) {                                                                \
      CASES                                                                               \
      default:                                                                            \
        PD_THROW("function ", NAME, " has no kernel for elements of type ", bireme_type); \
    }                                                                                     \
  }()

#define PD_DISPATCH_FLOATING_TYPES(TYPE, NAME, ...) \
  BIREME_DISPATCH(TYPE, NAME, BIREME_FLOATING(data_t, __VA_ARGS__))
#define PD_DISPATCH_FLOATING_AND_HALF_TYPES(TYPE, NAME, ...) \
  BIREME_DISPATCH(TYPE, NAME,                                \
                  BIREME_FLOATING(data_t, __VA_ARGS__) BIREME_HALF(data_t, __VA_ARGS__))
#define PD_DISPATCH_INTEGRAL_TYPES(TYPE, NAME, ...) \
  BIREME_DISPATCH(TYPE, NAME, BIREME_INTEGRAL(data_t, __VA_ARGS__))
#define PD_DISPATCH_COMPLEX_TYPES(TYPE, NAME, ...) \
  BIREME_DISPATCH(TYPE, NAME, BIREME_COMPLEX(data_t, __VA_ARGS__))
#define PD_DISPATCH_FLOATING_AND_INTEGRAL_TYPES(TYPE, NAME, ...) \
  BIREME_DISPATCH(TYPE, NAME,                                    \
                  BIREME_FLOATING(data_t, __VA_ARGS__) BIREME_INTEGRAL(data_t, __VA_ARGS__))
#define PD_DISPATCH_FLOATING_AND_COMPLEX_TYPES(TYPE, NAME, ...) \
  BIREME_DISPATCH(TYPE, NAME,                                   \
                  BIREME_FLOATING(data_t, __VA_ARGS__) BIREME_COMPLEX(data_t, __VA_ARGS__))
#define PD_DISPATCH_FLOATING_AND_INTEGRAL_AND_COMPLEX_TYPES(TYPE, NAME, ...)            \
  BIREME_DISPATCH(TYPE, NAME,                                                           \
                  BIREME_FLOATING(data_t, __VA_ARGS__) BIREME_INTEGRAL(data_t, __VA_ARGS__) \
                      BIREME_COMPLEX(data_t, __VA_ARGS__))
