// A token's way through a stack of decoder layers, as one kernel: what it is told.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace bireme {

constexpr int kLayers = 32;  // at most, since a kernel's arguments have 32 KB
constexpr int kUnit = 64;    // columns of a weight that a block of threads multiplies at once

// Weights are [in][out], in the type of the stream, as `Describe` puts them; a cache is
// [length][groups][size].
struct Weights {
  CUtensorMap q, k, v, mix, gate, up, down;
};

struct Layer {
  const void *norm1, *norm2;
  void *keys, *values;
};

struct Decoder {
  Weights weights[kLayers];
  CUtensorMap head;  // [width][vocabulary]
  Layer layers[kLayers];
  const void* norm;       // before the head
  const void* x;          // [width]
  void* out;              // [vocabulary], or [width] where there is no vocabulary
  const void *cos, *sin;  // [size]
  const int64_t* place;   // of the token: how many came before it
  float* exchange;        // zeros: what the blocks tell one another
  int64_t exchange_size;  // in elements
  int count, width, heads, groups, size, inner, length, vocabulary;
  float epsilon;
};

// Both return an error's text, or null. `half` says float16 instead of bfloat16.
const char* Describe(CUtensorMap& map, const void* weight, int rows, int columns);
const char* Launch(const Decoder& decoder, bool half, void* stream);

}  // namespace bireme
