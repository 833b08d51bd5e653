// Reads FlatBuffers from an untrusted file: every access is checked, and what does not lie in the
// buffer reads as missing and sets `bad`.
#pragma once

#include "base.h"

namespace lite {

struct Buffer {
  const uint8_t* data;
  uint64_t size;
  bool bad = false;

  template <class T>
  T read(uint64_t at) {
    T value{};
    if (at > size || size - at < sizeof(T)) bad = true;
    else memcpy(&value, data + at, sizeof(T));
    return value;
  }
};

// A vector's elements, or a string's characters.
struct Items {
  Buffer* buffer = nullptr;
  uint64_t at = 0;
  int64_t size = 0;

  template <class T>
  T get(int64_t i) const { return buffer->read<T>(at + i * sizeof(T)); }
};

struct Table {
  Buffer* buffer;
  uint64_t at;

  uint64_t field(int id) const {
    Buffer& b = *buffer;
    int64_t vtable = static_cast<int64_t>(at) - b.read<int32_t>(at);
    if (vtable < 0) b.bad = true;
    if (b.bad) return 0;
    uint16_t bytes = b.read<uint16_t>(vtable);
    if (4 + 2 * id + 2 > bytes) return 0;
    uint16_t offset = b.read<uint16_t>(vtable + 4 + 2 * id);
    return offset ? at + offset : 0;
  }
  template <class T>
  T number(int id, T missing = 0) const {
    uint64_t f = field(id);
    return f ? buffer->read<T>(f) : missing;
  }
  Items items(int id, int64_t element) const {
    uint64_t f = field(id);
    if (!f) return {buffer, 0, 0};
    uint64_t start = f + buffer->read<uint32_t>(f);
    int64_t n = buffer->read<uint32_t>(start);
    if (buffer->bad || start + 4 + n * element > buffer->size) {
      buffer->bad = true;
      return {buffer, 0, 0};
    }
    return {buffer, start + 4, n};
  }
  Table child(const Items& list, int64_t i) const {
    uint64_t place = list.at + 4 * i;
    return {buffer, place + buffer->read<uint32_t>(place)};
  }
};

}  // namespace lite
