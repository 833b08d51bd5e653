// Element types, places, errors, and numbers of 16 bits.
#pragma once

#include <complex>
#include <cstdint>
#include <cstring>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>

#ifdef PADDLE_WITH_CUDA
#include <cuda_runtime.h>
#endif

#if defined(__CUDACC__)
#define BIREME_DEVICE __host__ __device__
#else
#define BIREME_DEVICE
#endif

namespace bireme {

template <typename... Parts>
[[noreturn]] void Fail(const char* file, int line, const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  const char* name = std::strrchr(file, '/');
  text << " (" << (name ? name + 1 : file) << ":" << line << ")";
  throw std::runtime_error(text.str());
}

}  // namespace bireme

#define PD_THROW(...) ::bireme::Fail(__FILE__, __LINE__, __VA_ARGS__)
#define PD_CHECK(condition, ...)                                                       \
  do {                                                                                 \
    if (!(condition)) {                                                                \
      ::bireme::Fail(__FILE__, __LINE__, "expected " #condition ". ", ##__VA_ARGS__);  \
    }                                                                                  \
  } while (0)

namespace paddle {

// The order is shared with bireme/utils/cpp_extension/library.py.
enum class DataType : int32_t {
  UNDEFINED = 0,
  BOOL,
  INT8,
  UINT8,
  INT16,
  INT32,
  INT64,
  FLOAT16,
  BFLOAT16,
  FLOAT32,
  FLOAT64,
  COMPLEX64,
  COMPLEX128,
};

inline size_t SizeOf(DataType type) {
  static constexpr size_t kSizes[] = {0, 1, 1, 1, 2, 4, 8, 2, 2, 4, 8, 8, 16};
  return kSizes[static_cast<int>(type)];
}

inline std::ostream& operator<<(std::ostream& out, DataType type) {
  static constexpr const char* kNames[] = {
      "undefined", "bool",     "int8",    "uint8",   "int16",     "int32",     "int64",
      "float16",   "bfloat16", "float32", "float64", "complex64", "complex128"};
  return out << kNames[static_cast<int>(type)];
}

struct bfloat16 {
  uint16_t x = 0;
  bfloat16() = default;
  BIREME_DEVICE bfloat16(float value) {  // rounds to the nearest, ties to even
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
      x = static_cast<uint16_t>((bits >> 16) | 0x40u);
    } else {
      x = static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
    }
  }
  template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>>
  BIREME_DEVICE explicit bfloat16(T value) : bfloat16(static_cast<float>(value)) {}
  BIREME_DEVICE operator float() const {
    const uint32_t bits = static_cast<uint32_t>(x) << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
  }
};

struct float16 {
  uint16_t x = 0;
  float16() = default;
  BIREME_DEVICE float16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint32_t sign = (bits >> 16) & 0x8000u;
    const uint32_t rest = bits & 0x7fffffffu;
    uint32_t half;
    if (rest > 0x7f800000u) {
      half = 0x7e00u;
    } else if (rest >= 0x477ff000u) {
      half = 0x7c00u;
    } else if (rest < 0x38800000u) {  // a subnormal: the adder rounds in the right place
      float magnitude, magic = 0.5f;
      uint32_t magic_bits;
      memcpy(&magnitude, &rest, sizeof magnitude);
      magnitude += magic;
      memcpy(&half, &magnitude, sizeof half);
      memcpy(&magic_bits, &magic, sizeof magic_bits);
      half -= magic_bits;
    } else {
      half = (rest + 0xc8000fffu + ((rest >> 13) & 1u)) >> 13;
    }
    x = static_cast<uint16_t>(sign | half);
  }
  template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>>
  BIREME_DEVICE explicit float16(T value) : float16(static_cast<float>(value)) {}
  BIREME_DEVICE operator float() const {
    const uint32_t sign = static_cast<uint32_t>(x & 0x8000u) << 16;
    const uint32_t rest = x & 0x7fffu;
    uint32_t bits;
    float value;
    if (rest >= 0x7c00u) {
      bits = sign | 0x7f800000u | (rest << 13);
    } else if (rest >= 0x0400u) {
      bits = sign | ((rest << 13) + 0x38000000u);
    } else {
      value = static_cast<float>(rest) * 5.9604644775390625e-8f;  // 2^-24
      memcpy(&bits, &value, sizeof bits);
      bits |= sign;
    }
    memcpy(&value, &bits, sizeof value);
    return value;
  }
};

template <typename T>
using complex = std::complex<T>;
using complex64 = std::complex<float>;
using complex128 = std::complex<double>;

template <typename T>
using optional = std::optional<T>;
inline constexpr std::nullopt_t none = std::nullopt;

enum class PlaceType { kUNK = 0, kCPU, kGPU };

struct Place {
  PlaceType type = PlaceType::kUNK;
  Place() = default;
  Place(PlaceType given) : type(given) {}
  bool operator==(const Place& other) const { return type == other.type; }
  bool operator!=(const Place& other) const { return type != other.type; }
  PlaceType GetType() const { return type; }
};
struct CPUPlace : Place {
  CPUPlace() : Place(PlaceType::kCPU) {}
};
struct GPUPlace : Place {
  explicit GPUPlace(int = 0) : Place(PlaceType::kGPU) {}
};

template <typename T>
struct TypeOf;
#define BIREME_TYPE_OF(type, name)                      \
  template <>                                           \
  struct TypeOf<type> {                                 \
    static constexpr DataType value = DataType::name;   \
  };
BIREME_TYPE_OF(bool, BOOL)
BIREME_TYPE_OF(int8_t, INT8)
BIREME_TYPE_OF(uint8_t, UINT8)
BIREME_TYPE_OF(int16_t, INT16)
BIREME_TYPE_OF(int32_t, INT32)
BIREME_TYPE_OF(int64_t, INT64)
BIREME_TYPE_OF(float16, FLOAT16)
BIREME_TYPE_OF(bfloat16, BFLOAT16)
BIREME_TYPE_OF(float, FLOAT32)
BIREME_TYPE_OF(double, FLOAT64)
BIREME_TYPE_OF(complex64, COMPLEX64)
BIREME_TYPE_OF(complex128, COMPLEX128)
#undef BIREME_TYPE_OF

}  // namespace paddle

namespace phi {
using paddle::DataType;
using paddle::Place;
namespace dtype {
using paddle::bfloat16;
using paddle::complex;
using paddle::float16;
}  // namespace dtype
}  // namespace phi
