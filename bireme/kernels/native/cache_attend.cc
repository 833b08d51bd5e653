// A step of decoding: new keys and values go into a cache, and few queries attend to it, as an XLA
// FFI handler. query [B, R, H, D], key [B, R, G, D], value [B, R, G, E], keys [B, L, G, D], values
// [B, L, G, E], place int64 [B] or [1], slopes of the heads [H] or empty; returns [B, R, H, E] and
// the cache, which is the operand itself where XLA may overwrite it.
//
// Only the columns that a query sees are read. XLA's own products copy the whole cache, turned,
// in every step.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "exponential.h"
#include "handlers.h"
#include "parallel.h"
#include "scratch.h"
#include "vectors.h"

namespace bireme {
namespace {

using Places = ffi::Buffer<ffi::S64>;
using Out = ffi::ResultBuffer<ffi::F32>;

float Dot(const float* a, const float* b, int64_t count) {
  Vec first{}, second{};
  int64_t i = 0;
  for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
    first += Load(a + i) * Load(b + i);
    second += Load(a + i + kLanes) * Load(b + i + kLanes);
  }
  for (; i + kLanes <= count; i += kLanes) first += Load(a + i) * Load(b + i);
  first += second;
  float sum = 0;
  for (; i < count; ++i) sum += a[i] * b[i];
  for (int l = 0; l < kLanes; ++l) sum += first[l];
  return sum;
}

void AddScaled(float by, const float* from, float* to, int64_t count) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) Store(to + i, Load(to + i) + by * Load(from + i));
  for (; i < count; ++i) to[i] += by * from[i];
}

// Scores become exponentials of their distance from the largest; returns the sum.
float Exponentials(float* scores, int64_t count) {
  float most = scores[0];
  for (int64_t i = 1; i < count; ++i) most = std::max(most, scores[i]);
  float sum = 0;
  int64_t i = 0;
  Vec sums{};
  for (; i + kLanes <= count; i += kLanes) {
    const Vec e = Exp(Load(scores + i) - most);
    Store(scores + i, e);
    sums += e;
  }
  for (; i < count; ++i) sum += scores[i] = std::exp(scores[i] - most);
  for (int l = 0; l < kLanes; ++l) sum += sums[l];
  return sum;
}

struct Sizes {
  int64_t batch, rows, heads, groups, size, length, depth;
};

// The rows of `fresh` from a place on; one from which they would reach over the end is moved back.
void Write(const Sizes& s, const float* fresh, int64_t width, Places& place, float* kept) {
  for (int64_t b = 0; b < s.batch; ++b) {
    const int64_t wanted = place.typed_data()[place.dimensions()[0] == 1 ? 0 : b];
    const int64_t at = std::min(std::max<int64_t>(wanted, 0), s.length - s.rows);
    std::memcpy(kept + (b * s.length + at) * width, fresh + b * s.rows * width,
                sizeof(float) * s.rows * width);
  }
}

ffi::Error CacheAttend(ffi::ThreadPool pool, Floats query, Floats key, Floats value, Floats keys,
                       Floats values, Places place, Floats slopes, Out out, Out new_keys,
                       Out new_values, float scale, float cap, int64_t window) {
  const auto q = query.dimensions(), k = keys.dimensions(), v = values.dimensions();
  const Sizes s{q[0], q[1], q[2], k[2], q[3], k[1], v[3]};
  float *to_keys = new_keys->typed_data(), *to_values = new_values->typed_data();
  if (to_keys != keys.typed_data()) std::memcpy(to_keys, keys.typed_data(), keys.size_bytes());
  if (to_values != values.typed_data())
    std::memcpy(to_values, values.typed_data(), values.size_bytes());
  Write(s, key.typed_data(), s.groups * s.size, place, to_keys);
  Write(s, value.typed_data(), s.groups * s.depth, place, to_values);
  const int64_t each = s.heads / s.groups;  // heads that share keys
  const auto work = [&](int64_t job) {
    const int64_t g = job % s.groups, r = job / s.groups % s.rows, b = job / s.groups / s.rows;
    const int64_t own = place.typed_data()[place.dimensions()[0] == 1 ? 0 : b] + r;
    const int64_t end = std::min(own + 1, s.length);
    const int64_t begin = window > 0 ? std::max<int64_t>(0, own - window + 1) : 0;
    const int64_t count = end - begin, head = g * each;
    const float* from = query.typed_data() + ((b * s.rows + r) * s.heads + head) * s.size;
    float* to = out->typed_data() + ((b * s.rows + r) * s.heads + head) * s.depth;
    if (count <= 0) {
      std::fill(to, to + each * s.depth, NAN);
      return;
    }
    Scratch scratch({each * count});
    float* scores = scratch.Take();
    const float* column = to_keys + ((b * s.length + begin) * s.groups + g) * s.size;
    for (int64_t t = 0; t < count; ++t, column += s.groups * s.size)
      for (int64_t h = 0; h < each; ++h)
        scores[h * count + t] = scale * Dot(from + h * s.size, column, s.size);
    std::fill(to, to + each * s.depth, 0.0f);
    const float* rise = slopes.element_count() ? slopes.typed_data() + head : nullptr;
    for (int64_t h = 0; h < each; ++h) {
      float* row = scores + h * count;
      if (cap > 0)
        for (int64_t t = 0; t < count; ++t) row[t] = cap * std::tanh(row[t] / cap);
      if (rise != nullptr)
        for (int64_t t = 0; t < count; ++t) row[t] += rise[h] * static_cast<float>(begin + t);
      const float by = 1 / Exponentials(row, count);
      for (int64_t t = 0; t < count; ++t) row[t] *= by;
    }
    column = to_values + ((b * s.length + begin) * s.groups + g) * s.depth;
    for (int64_t t = 0; t < count; ++t, column += s.groups * s.depth)
      for (int64_t h = 0; h < each; ++h)
        AddScaled(scores[h * count + t], column, to + h * s.depth, s.depth);
  };
  TeamFor(pool, s.batch * s.rows * s.groups, work);
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(bireme_cache_attend, CacheAttend,
                              FloatRets<3>(FloatArgs<5>(ffi::Ffi::Bind().Ctx<ffi::ThreadPool>())
                                               .Arg<Places>()
                                               .Arg<Floats>())
                                  .Attr<float>("scale")
                                  .Attr<float>("cap")
                                  .Attr<int64_t>("window"));

}  // namespace bireme
