// Scaled dot-product attention over [batch, length, heads, width] and its gradient, as XLA FFI
// handlers. Scores exist only as small tiles in the cache.
//
// Forward keeps each row's logarithm of the sum of exponentials; backward makes the weights again
// from it. Dropout's draws are those of the plain lowering, made again as well.

#include <cmath>
#include <limits>

#include "draws.h"
#include "exponential.h"
#include "handlers.h"
#include "parallel.h"
#include "scratch.h"
#include "tiles.h"
#include "vectors.h"

namespace bireme {
namespace {

constexpr int64_t kRows = 8 * kTall;  // queries of a tile
constexpr int64_t kKeys = 128;        // keys of a tile; a multiple of kPanel
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// All lanes joined to one number, by halves.
template <typename Join>
inline float Across(Vec v, const Join& join) {
  float lanes[kLanes];
  Store(lanes, v);
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) lanes[i] = join(lanes[i], lanes[i + half]);
  return lanes[0];
}

inline float Sum(Vec v) {
  return Across(v, [](float a, float b) { return a + b; });
}

inline float Largest(Vec v) {
  return Across(v, [](float a, float b) { return a > b ? a : b; });
}

using In = ffi::Buffer<ffi::F32>;
using Out = ffi::ResultBuffer<ffi::F32>;

// The sizes of one call, and what is done to its scores.
struct Plan {
  int64_t batch, queries, heads, width, keys, key_heads, value_width, group;
  const float* mask;  // added to the scores, or null
  int64_t mask_batch, mask_head, mask_row;
  float scale, keep_scale;
  bool causal, drops;
  Draws draws;

  Plan(In q, In k, In v, In mask_array, In scales, ffi::Buffer<ffi::U32> words, bool causal_,
       bool drops_)
      : causal(causal_), drops(drops_) {
    auto dq = q.dimensions(), dv = v.dimensions();
    batch = dq[0], queries = dq[1], heads = dq[2], width = dq[3];
    keys = dv[1], key_heads = dv[2], value_width = dv[3], group = heads / key_heads;
    mask = mask_array.element_count() > 0 ? mask_array.typed_data() : nullptr;
    if (mask != nullptr) {
      auto m = mask_array.dimensions();  // 1, or as many as there are; keys always all
      mask_row = m[2] == 1 ? 0 : keys;
      mask_head = m[1] == 1 ? 0 : m[2] * keys;
      mask_batch = m[0] == 1 ? 0 : m[1] * m[2] * keys;
    }
    scale = scales.typed_data()[0], keep_scale = scales.typed_data()[1];
    const uint32_t* w = words.typed_data();
    draws = {{w[0], w[1], w[2]}, w[3]};
  }

  // Where the row of one head begins in an array [batch, length, heads, width].
  int64_t At(int64_t b, int64_t row, int64_t head, int64_t length, int64_t count,
             int64_t columns) const {
    return ((b * length + row) * count + head) * columns;
  }

  // How many keys the query at `row` sees.
  int64_t Seen(int64_t row) const { return causal ? std::min(keys, row + 1) : keys; }
};

// One row of one head, as far as its scores go.
struct Row {
  const Plan& plan;
  const float* mask;
  int64_t seen;
  uint32_t position;

  Row(const Plan& p, int64_t b, int64_t head, int64_t row) : plan(p), mask(nullptr) {
    if (p.mask != nullptr)
      mask = p.mask + b * p.mask_batch + head * p.mask_head + row * p.mask_row;
    seen = p.Seen(row);
    position = static_cast<uint32_t>(((b * p.heads + head) * p.queries + row) * p.keys);
  }

  // Scores of the keys from `key` on, from their products with the query.
  Vec Scores(Vec products, int64_t key) const {
    const Vec s = products * plan.scale;
    if (seen - key < kLanes) return LastScores(s, key);
    return mask == nullptr ? s : s + Load(mask + key);
  }

  // The same where not all lanes are keys that the query sees. Apart, so that the usual case
  // stays in registers.
  __attribute__((noinline)) Vec LastScores(Vec s, int64_t key) const {
    float lanes[kLanes];
    Store(lanes, s);
    for (int64_t i = 0; i < kLanes; ++i) {
      if (key + i >= seen) lanes[i] = -kInfinity;
      else if (mask != nullptr) lanes[i] += mask[key + i];
    }
    return Load(lanes);
  }

  Vec Dropped(Vec weights, int64_t key) const {
    if (!plan.drops) return weights;
    return plan.draws.Keep(position + static_cast<uint32_t>(key), weights * plan.keep_scale);
  }
};

ffi::Error Forward(ffi::ThreadPool pool, In q, In k, In v, In mask, In scales,
                   ffi::Buffer<ffi::U32> words, Out out, Out sums, bool causal, bool drops) {
  const Plan p(q, k, v, mask, scales, words, causal, drops);
  // A job packs the keys and values of one head for itself, so rows are split only where there
  // are too few heads to keep the threads busy.
  const int64_t pairs = p.batch * p.key_heads, blocks = CeilDiv(p.queries, kRows);
  const int64_t wanted = CeilDiv(2 * static_cast<int64_t>(pool.num_threads()), pairs);
  const int64_t parts = std::max<int64_t>(1, std::min(blocks, wanted));
  const int64_t value_columns = Padded(p.value_width);
  ParallelFor(pool, pairs * parts, [&](int64_t job) {
    const int64_t part = job % parts, pair = job / parts;
    const int64_t b = pair / p.key_heads, key_head = pair % p.key_heads;
    const int64_t sizes[] = {p.width * Padded(p.keys), p.keys * value_columns, kRows * kKeys,
                             kRows * value_columns};
    Scratch scratch(sizes);
    float *keys = scratch.Take(), *values = scratch.Take();
    float *tile = scratch.Take(), *mixed = scratch.Take();
    PackTransposed(k.typed_data() + p.At(b, 0, key_head, p.keys, p.key_heads, p.width),
                   p.key_heads * p.width, p.width, p.keys, keys);
    Pack(v.typed_data() + p.At(b, 0, key_head, p.keys, p.key_heads, p.value_width),
         p.key_heads * p.value_width, p.keys, p.value_width, values);
    for (int64_t head = key_head * p.group; head < (key_head + 1) * p.group; ++head) {
      for (int64_t block = part * blocks / parts; block < (part + 1) * blocks / parts; ++block) {
        const int64_t first = block * kRows, rows = std::min(kRows, p.queries - first);
        float most[kRows], total[kRows];
        std::fill(most, most + rows, -kInfinity);
        std::fill(total, total + rows, 0.0f);
        std::memset(mixed, 0, sizeof(float) * rows * value_columns);
        const int64_t end = p.Seen(first + rows - 1);
        for (int64_t key = 0; key < end; key += kKeys) {
          const int64_t count = std::min(kKeys, end - key);
          Product<false, false>(
              q.typed_data() + p.At(b, first, head, p.queries, p.heads, p.width),
              p.heads * p.width, rows, keys + key * p.width, p.width, 0, p.width,
              std::min(kKeys, p.keys - key), tile, kKeys);
          for (int64_t r = 0; r < rows; ++r) {
            const Row row(p, b, head, first + r);
            float* s = tile + r * kKeys;
            Vec top = Splat(most[r]);
            for (int64_t i = 0; i < count; i += kLanes) {
              const Vec scores = row.Scores(Load(s + i), key + i);
              top = scores > top ? scores : top;
              Store(s + i, scores);
            }
            const float before = most[r];
            most[r] = Largest(top);
            const float shift = most[r] == -kInfinity ? 0.0f : most[r];
            Vec sum{};
            for (int64_t i = 0; i < count; i += kLanes) {
              const Vec weights = Exp(Load(s + i) - shift);
              sum += weights;
              Store(s + i, row.Dropped(weights, key + i));
            }
            if (key > 0 && before < most[r]) {
              const float factor = std::exp(before - most[r]);
              total[r] *= factor;
              float* m = mixed + r * value_columns;
              for (int64_t c = 0; c < value_columns; c += kLanes) Store(m + c, Load(m + c) * factor);
            }
            total[r] += Sum(sum);
          }
          Product<false, true>(tile, kKeys, rows, values, p.keys, key, count,
                               p.value_width, mixed, value_columns);
        }
        for (int64_t r = 0; r < rows; ++r) {
          float* to = out->typed_data() +
                      p.At(b, first + r, head, p.queries, p.heads, p.value_width);
          const float *from = mixed + r * value_columns, factor = 1.0f / total[r];
          for (int64_t c = 0; c < p.value_width; ++c) to[c] = from[c] * factor;
          sums->typed_data()[(b * p.heads + head) * p.queries + first + r] =
              most[r] + std::log(total[r]);
        }
      }
    }
  });
  return ffi::Error::Success();
}

// Copies the live columns of `from` [rows, Padded(columns)] into rows that are `stride` apart.
void Spread(const float* from, int64_t rows, int64_t columns, float* to, int64_t stride) {
  for (int64_t r = 0; r < rows; ++r)
    std::memcpy(to + r * stride, from + r * Padded(columns), sizeof(float) * columns);
}

ffi::Error Backward(ffi::ThreadPool pool, In q, In k, In v, In mask, In scales,
                    ffi::Buffer<ffi::U32> words, In out, In sums, In grad, Out grad_q, Out grad_k,
                    Out grad_v, bool causal, bool drops) {
  const Plan p(q, k, v, mask, scales, words, causal, drops);
  const int64_t columns = Padded(p.width), value_columns = Padded(p.value_width);
  const int64_t key_stride = p.key_heads * p.width, value_stride = p.key_heads * p.value_width;
  const int64_t stride = p.heads * p.width, out_stride = p.heads * p.value_width;
  ParallelFor(pool, p.batch * p.key_heads, [&](int64_t pair) {
    const int64_t b = pair / p.key_heads, key_head = pair % p.key_heads;
    const int64_t at_key = p.At(b, 0, key_head, p.keys, p.key_heads, p.width);
    const int64_t at_value = p.At(b, 0, key_head, p.keys, p.key_heads, p.value_width);
    const int64_t sizes[] = {p.keys * columns, p.width * Padded(p.keys),
                             p.value_width * Padded(p.keys), p.keys * columns,
                             p.keys * value_columns, kRows * columns, kRows * value_columns,
                             kRows * kKeys, kRows * kKeys, kRows * columns};
    Scratch scratch(sizes);
    float *keys = scratch.Take(), *across = scratch.Take();
    float* values = scratch.Take();  // transposed, as `across` is
    float *pull_keys = scratch.Take(), *pull_values = scratch.Take();
    float *rows_q = scratch.Take(), *rows_g = scratch.Take();
    float *tile = scratch.Take(), *pulls = scratch.Take(), *pull_rows = scratch.Take();
    Pack(k.typed_data() + at_key, key_stride, p.keys, p.width, keys);
    PackTransposed(k.typed_data() + at_key, key_stride, p.width, p.keys, across);
    PackTransposed(v.typed_data() + at_value, value_stride, p.value_width, p.keys, values);
    std::memset(pull_keys, 0, sizeof(float) * p.keys * columns);
    std::memset(pull_values, 0, sizeof(float) * p.keys * value_columns);
    for (int64_t head = key_head * p.group; head < (key_head + 1) * p.group; ++head) {
      for (int64_t first = 0; first < p.queries; first += kRows) {
        const int64_t rows = std::min(kRows, p.queries - first);
        const int64_t at = p.At(b, first, head, p.queries, p.heads, p.width);
        const int64_t at_out = p.At(b, first, head, p.queries, p.heads, p.value_width);
        const float* g = grad.typed_data() + at_out;
        Pack(q.typed_data() + at, stride, rows, p.width, rows_q);
        Pack(g, out_stride, rows, p.value_width, rows_g);
        float mean[kRows];  // the rows' sum of weights times pulls, which is that of grad * out
        for (int64_t r = 0; r < rows; ++r) {
          const float *x = g + r * out_stride, *y = out.typed_data() + at_out + r * out_stride;
          Vec sum{};
          int64_t c = 0;
          for (; c + kLanes <= p.value_width; c += kLanes) sum += Load(x + c) * Load(y + c);
          mean[r] = Sum(sum);
          for (; c < p.value_width; ++c) mean[r] += x[c] * y[c];
        }
        std::memset(pull_rows, 0, sizeof(float) * rows * columns);
        const int64_t end = p.Seen(first + rows - 1);
        for (int64_t key = 0; key < end; key += kKeys) {
          const int64_t count = std::min(kKeys, end - key), all = std::min(kKeys, p.keys - key);
          Product<false, false>(q.typed_data() + at, stride, rows, across + key * p.width,
                                p.width, 0, p.width, all, tile, kKeys);
          Product<false, false>(g, out_stride, rows, values + key * p.value_width,
                                p.value_width, 0, p.value_width, all, pulls, kKeys);
          for (int64_t r = 0; r < rows; ++r) {
            const Row row(p, b, head, first + r);
            const float sum = sums.typed_data()[(b * p.heads + head) * p.queries + first + r];
            float *s = tile + r * kKeys, *t = pulls + r * kKeys;
            for (int64_t i = 0; i < count; i += kLanes) {
              const Vec weights = Exp(row.Scores(Load(s + i), key + i) - sum);
              const Vec pull = row.Dropped(Load(t + i), key + i);
              Store(s + i, row.Dropped(weights, key + i));
              Store(t + i, weights * (pull - mean[r]) * p.scale);
            }
          }
          Product<true, true>(tile, kKeys, count, rows_g, rows, 0, rows,
                              p.value_width, pull_values + key * value_columns,
                              value_columns);
          Product<true, true>(pulls, kKeys, count, rows_q, rows, 0, rows, p.width,
                              pull_keys + key * columns, columns);
          Product<false, true>(pulls, kKeys, rows, keys, p.keys, key, count, p.width,
                               pull_rows, columns);
        }
        Spread(pull_rows, rows, p.width, grad_q->typed_data() + at, stride);
      }
    }
    Spread(pull_keys, p.keys, p.width, grad_k->typed_data() + at_key, key_stride);
    Spread(pull_values, p.keys, p.value_width, grad_v->typed_data() + at_value, value_stride);
  });
  return ffi::Error::Success();
}

}  // namespace

#define BIREME_ATTENTION_INPUTS           \
  ffi::Ffi::Bind()                        \
      .Ctx<ffi::ThreadPool>()             \
      .Arg<ffi::Buffer<ffi::F32>>()       \
      .Arg<ffi::Buffer<ffi::F32>>()       \
      .Arg<ffi::Buffer<ffi::F32>>()       \
      .Arg<ffi::Buffer<ffi::F32>>()       \
      .Arg<ffi::Buffer<ffi::F32>>()       \
      .Arg<ffi::Buffer<ffi::U32>>()

XLA_FFI_DEFINE_HANDLER_SYMBOL(bireme_attention_forward, Forward,
                              BIREME_ATTENTION_INPUTS.Ret<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>()
                                  .Attr<bool>("causal")
                                  .Attr<bool>("drops"));
XLA_FFI_DEFINE_HANDLER_SYMBOL(bireme_attention_backward, Backward,
                              BIREME_ATTENTION_INPUTS.Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>()
                                  .Attr<bool>("causal")
                                  .Attr<bool>("drops"));

}  // namespace bireme
