// Types, tensors and small containers of the runtime.
#pragma once

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <new>

#include "../include/bireme_lite.h"

namespace lite {

constexpr int kMaxRank = BL_MAX_RANK;
constexpr int64_t kAlign = 64;

inline int64_t type_size(int type) {
  constexpr int8_t sizes[] = {1, 1, 1, 4, 4, 8, 4, 8};
  return type >= 0 && type < 8 ? sizes[type] : 0;
}

struct Tensor {
  char* data = nullptr;
  int64_t count = 0;
  int64_t dims[kMaxRank] = {};
  int32_t rank = 0;
  uint8_t type = BL_FLOAT32;

  int64_t bytes() const { return count * type_size(type); }
  template <class T>
  T* as() const { return reinterpret_cast<T*>(data); }
  int64_t product(int from, int to) const {
    int64_t n = 1;
    for (int i = from; i < to; i++) n *= dims[i];
    return n;
  }
};

inline bool same_shape(const Tensor& a, const Tensor& b) {
  return a.rank == b.rank && memcmp(a.dims, b.dims, a.rank * sizeof(int64_t)) == 0;
}

// A vector of plain values on the heap that says so when there is no memory.
template <class T>
struct Array {
  T* data = nullptr;
  int64_t size = 0;

  Array() = default;
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() {
    for (int64_t i = 0; i < size; i++) data[i].~T();
    free(data);
  }
  bool make(int64_t n) {  // once
    if (n < 0 || static_cast<uint64_t>(n) > SIZE_MAX / 4 / sizeof(T)) return false;
    data = static_cast<T*>(calloc(n ? n : 1, sizeof(T)));
    if (!data) return false;
    for (int64_t i = 0; i < n; i++) new (&data[i]) T();
    size = n;
    return true;
  }
  T& operator[](int64_t i) { return data[i]; }
  const T& operator[](int64_t i) const { return data[i]; }
  T* begin() { return data; }
  T* end() { return data + size; }
};

inline char* aligned_memory(int64_t bytes) {
  if (bytes < 0 || static_cast<uint64_t>(bytes) > SIZE_MAX / 4) return nullptr;
  void* p = nullptr;
  return posix_memalign(&p, kAlign, bytes + kAlign) ? nullptr : static_cast<char*>(p);
}

inline int64_t rounded(int64_t bytes) { return (bytes + kAlign - 1) & ~(kAlign - 1); }
inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

}  // namespace lite
