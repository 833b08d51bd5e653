// Linear layers whose weights stay in quantised blocks, as an XLA FFI handler: x [M, K] in float32,
// blocks [N, bytes of a row], bias [N] or empty; y [M, N].
//
// Each 32 activations are rounded to 8 bits with a scale of their own, blocks are unpacked to 8-bit
// integers 256 columns at a time, and the products are sums of integers with a scale per 16 or 32
// columns. Few rows of activations (a step of decoding) read each block once, straight from memory;
// many rows share unpacked panels. With AVX512-VNNI, which is looked for when the first call comes,
// one instruction makes four products of each of 8 or 16 sums.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "handlers.h"
#include "parallel.h"
#include "scratch.h"
#include "vectors.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace bireme {
namespace {

typedef int32_t Ints __attribute__((vector_size(32)));
typedef float Eight __attribute__((vector_size(32)));

constexpr int64_t kColumns = 256;  // of a chunk
constexpr int kGroups = 8;         // of 32 columns in a chunk

// Activations [count, chunks of 256] as integers: x = scale * q for 32 columns. `sums` are
// scale * (the sum of q) for 32 columns, `fine_sums` for 16.
struct Rows {
  int64_t count, groups, chunks;
  int8_t* q;
  float *scales, *sums, *fine_sums;
};

namespace plain {
#define BIREME_TARGET
#define BIREME_USES_VNNI 0
#include "quantised_blocks.h"
#include "quantised_rows.h"
#undef BIREME_TARGET
#undef BIREME_USES_VNNI
}  // namespace plain

#if defined(__x86_64__)
#define BIREME_HAS_VNNI 1
namespace vnni {
#define BIREME_TARGET \
  __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")))
#define BIREME_USES_VNNI 1
#include "quantised_blocks.h"
#include "quantised_rows.h"
#undef BIREME_TARGET
#undef BIREME_USES_VNNI
}  // namespace vnni

bool HasVnni() {
  static const bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                          __builtin_cpu_supports("avx512vnni");
  return has;
}
#else
#define BIREME_HAS_VNNI 0
#endif

using Bytes = ffi::Buffer<ffi::U8>;

// Rounds a row of k floats, and fills its last chunk with zeros.
void RoundRow(const float* x, int64_t k, int64_t row, const Rows& to) {
  for (int64_t g = 0; g < to.chunks * kGroups; ++g) {
    const int64_t at = row * to.chunks * kGroups + g;
    int8_t* q = to.q + at * 32;
    float* fine = to.fine_sums + at * 2;
    if (g >= to.groups) {
      std::memset(q, 0, 32);
      to.scales[at] = to.sums[at] = fine[0] = fine[1] = 0;
      continue;
    }
    const float* from = x + g * 32;
    float most = 0, zero = 0;
    for (int i = 0; i < 32; ++i) {
      most = std::max(most, std::fabs(from[i]));
      zero += from[i] * 0;
    }
    if (!(zero == 0)) {  // an infinity or what is no number: all results are no numbers
      std::memset(q, 0, 32);
      to.scales[at] = to.sums[at] = fine[0] = fine[1] = zero;
      continue;
    }
    const float scale = most / 127, by = scale > 0 ? 127 / most : 0;
    int32_t sums[2] = {0, 0};
    for (int h = 0; h < 2; ++h)
      for (int i = 16 * h; i < 16 * h + 16; ++i) {
        const int32_t v = static_cast<int32_t>(std::nearbyintf(from[i] * by));
        q[i] = static_cast<int8_t>(v);
        sums[h] += v;
      }
    to.scales[at] = scale;
    fine[0] = scale * static_cast<float>(sums[0]);
    fine[1] = scale * static_cast<float>(sums[1]);
    to.sums[at] = fine[0] + fine[1];
  }
}

constexpr int64_t kFewRows = 16;           // of activations, for which no panels are made
constexpr int64_t kJobBytes = 16 << 10;    // of blocks, at least, in a piece of work

template <int kCode>
void Run(ffi::ThreadPool& pool, const Rows& x, const uint8_t* w, int64_t bytes, int64_t n,
         const float* bias, float* out) {
#if BIREME_HAS_VNNI
  if (HasVnni() && x.count > kFewRows) {
    const int64_t padded = CeilDiv(x.count, vnni::kTile) * vnni::kTile;
    const Buffer room = Allocate(CeilDiv(n, vnni::kSide) * vnni::kSide * padded);
    float* results = room.get();
    TeamFor(pool, CeilDiv(n, vnni::kSide), [&](int64_t job) {
      const int64_t begin = job * vnni::kSide, end = std::min(n, begin + vnni::kSide);
      vnni::ByTiles<kCode>(w, bytes, begin, end, x, bias, out, n, results + begin * padded);
    });
    return;
  }
#endif
  const int64_t least = std::max<int64_t>(1, kJobBytes / (bytes * std::min(x.count, kFewRows)));
  const int64_t each = std::max(least, CeilDiv(n, 16 * pool.num_threads()));
  TeamFor(pool, CeilDiv(n, each), [&](int64_t job) {
    const int64_t begin = job * each, end = std::min(n, begin + each);
#if BIREME_HAS_VNNI
    if (HasVnni()) return vnni::ByRows<kCode>(w, bytes, begin, end, x, bias, out, n);
#endif
    plain::ByRows<kCode>(w, bytes, begin, end, x, bias, out, n);
  });
}

ffi::Error QuantisedLinear(ffi::ThreadPool pool, Floats x, Bytes blocks, Floats bias,
                           ffi::ResultBuffer<ffi::F32> y, int64_t code) {
  const int64_t m = x.dimensions()[0], k = x.dimensions()[1];
  const int64_t n = blocks.dimensions()[0], bytes = blocks.dimensions()[1];
  Rows rows{m, k / 32, CeilDiv(k, kColumns), nullptr, nullptr, nullptr, nullptr};
  const int64_t groups = m * rows.chunks * kGroups;
  Scratch scratch({groups * 8, groups, groups, groups * 2});
  rows.q = reinterpret_cast<int8_t*>(scratch.Take());
  rows.scales = scratch.Take();
  rows.sums = scratch.Take();
  rows.fine_sums = scratch.Take();
  const auto round = [&](int64_t row) { RoundRow(x.typed_data() + row * k, k, row, rows); };
  if (m < 8) {
    for (int64_t row = 0; row < m; ++row) round(row);
  } else {
    TeamFor(pool, m, round);
  }
  const float* b = bias.element_count() ? bias.typed_data() : nullptr;
  const uint8_t* w = blocks.typed_data();
  float* out = y->typed_data();
  switch (code) {
#define BIREME_FORMAT(Code) \
  case Code:                \
    Run<Code>(pool, rows, w, bytes, n, b, out); \
    break;
    BIREME_FORMAT(2)
    BIREME_FORMAT(3)
    BIREME_FORMAT(6)
    BIREME_FORMAT(7)
    BIREME_FORMAT(8)
    BIREME_FORMAT(10)
    BIREME_FORMAT(11)
    BIREME_FORMAT(12)
    BIREME_FORMAT(13)
    BIREME_FORMAT(14)
#undef BIREME_FORMAT
    default:
      return ffi::Error(ffi::ErrorCode::kInvalidArgument, "no such block format");
  }
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(bireme_quantised_linear, QuantisedLinear,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<Floats>()
                                  .Arg<Bytes>()
                                  .Arg<Floats>()
                                  .Ret<Floats>()
                                  .Attr<int64_t>("code"));

}  // namespace bireme
