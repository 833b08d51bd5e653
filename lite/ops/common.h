// What kernels of several ops share.
#pragma once

#include "../kernels/kernels.h"
#include "../src/op.h"
#include "../src/threads.h"

namespace lite {

inline const Kernels& kernels_of(const Node& n) { return *n.model->kernels; }

// attrs[i] is a whole number from `low` to `high`.
inline bool within(const Node& n, int64_t i, int64_t low, int64_t high) {
  return i < n.attrs.size && n.attrs[i] >= low && n.attrs[i] <= high;
}

// Copies an n-dimensional region; strides count elements of `size` bytes.
void copy_strided(int64_t size, int rank, const int64_t* dims, const char* from,
                  const int64_t* from_strides, char* to, const int64_t* to_strides);

inline void strides_of(const Tensor& t, int64_t* strides) {
  int64_t step = 1;
  for (int i = t.rank - 1; i >= 0; i--) {
    strides[i] = step;
    step *= t.dims[i];
  }
}

// Sets `count` elements of `size` bytes to the one at `value`.
void fill(char* to, int64_t count, int64_t size, const char* value);

// One number of a tensor of whole numbers.
inline int64_t whole(const Tensor& t, int64_t i) {
  switch (t.type) {
    case BL_INT32: return t.as<int32_t>()[i];
    case BL_UINT32: return t.as<uint32_t>()[i];
    case BL_INT64: return t.as<int64_t>()[i];
    case BL_INT8: return t.as<int8_t>()[i];
    default: return t.as<uint8_t>()[i];
  }
}

inline bool is_whole(const Tensor& t) { return t.type < BL_FLOAT32; }

// The end of a product: attrs[at] is its function, numbers[0..3] its numbers, factor and shift.
inline const char* check_after(const Node& n, int64_t at) {
  NEED(within(n, at, kNone, kGeluTanh) && n.numbers.size == 4, "the function of its results");
  return nullptr;
}
inline After after_of(const Node& n, int64_t at) {
  After a;
  a.function = static_cast<int>(n.attrs[at]);
  a.numbers[0] = static_cast<float>(n.numbers[0]);
  a.numbers[1] = static_cast<float>(n.numbers[1]);
  a.factor = static_cast<float>(n.numbers[2]);
  a.shift = static_cast<float>(n.numbers[3]);
  return a;
}

}  // namespace lite
