// The gradients of a linear layer's weight and bias from bfloat16 matrices, by AVX512-BF16.
//
// XLA's product with a transposed first factor does not use the instructions. Here both factors
// are packed in pairs of rows, as the instruction takes them: it adds two products to each sum.

#include <algorithm>
#include <cstring>

#include "handlers.h"
#include "parallel.h"
#include "vectors.h"

#if defined(__AVX512BF16__) && defined(__AVX512BW__)
#include <immintrin.h>
#define BIREME_HAS_BFLOAT16 1
#else
#define BIREME_HAS_BFLOAT16 0
#endif

extern "C" int bireme_has_bfloat16() { return BIREME_HAS_BFLOAT16; }

namespace bireme {
namespace {

using Halves = ffi::Buffer<ffi::BF16>;
using Result = ffi::ResultBuffer<ffi::F32>;

#if BIREME_HAS_BFLOAT16

constexpr int64_t kRows = 6;       // of a tile of results; kRows * kSide accumulators
constexpr int64_t kSide = 4;       // registers side by side
constexpr int64_t kColumns = 64;   // kSide registers of 16
constexpr int64_t kPairs = 512;    // of a panel that stay in the second-level cache
constexpr int64_t kTiles = 16;     // of a job

inline __mmask16 First(int64_t count) {
  return count >= 16 ? 0xffff : static_cast<__mmask16>((1u << count) - 1);
}

// 16 columns of two rows, as pairs; a row that is not there counts as zeros.
inline __m512i Pairs(const uint16_t* row, const uint16_t* next, __mmask16 live) {
  const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(live, row));
  if (next == nullptr) return low;
  const __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(live, next));
  return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}

// out[r][c] (+)= sum over pairs of a[pair][r] * b[pair][c]; of the columns `live` are there.
void Tile(const int32_t* a, const int32_t* b, int64_t pairs, int64_t rows, int64_t live, float* out,
          int64_t stride, bool add) {
  __m512 sums[kRows][kSide];
  for (int r = 0; r < kRows; ++r)
    for (int s = 0; s < kSide; ++s) sums[r][s] = _mm512_setzero_ps();
  for (int64_t p = 0; p < pairs; ++p, a += kRows, b += kColumns) {
    __m512bh right[kSide];
    for (int s = 0; s < kSide; ++s) right[s] = (__m512bh)_mm512_loadu_si512(b + 16 * s);
    for (int r = 0; r < kRows; ++r) {
      const __m512bh left = (__m512bh)_mm512_set1_epi32(a[r]);
      for (int s = 0; s < kSide; ++s) sums[r][s] = _mm512_dpbf16_ps(sums[r][s], left, right[s]);
    }
  }
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t s = 0; 16 * s < live; ++s) {
      float* to = out + r * stride + 16 * s;
      const __mmask16 mask = First(live - 16 * s);
      const __m512 before = add ? _mm512_maskz_loadu_ps(mask, to) : _mm512_setzero_ps();
      _mm512_mask_storeu_ps(to, mask, _mm512_add_ps(before, sums[r][s]));
    }
}

// x [M, K], g [M, N] -> dw [K, N] = x's transpose times g, db [N] = sums over g's rows.
ffi::Error WeightGrads(ffi::ThreadPool pool, Halves x, Halves g, Result dw, Result db) {
  const int64_t m = x.dimensions()[0], k = x.dimensions()[1], n = g.dimensions()[1];
  const int64_t pairs = CeilDiv(m, 2), tiles = CeilDiv(k, kRows), panels = CeilDiv(n, kColumns);
  const uint16_t* from_x = reinterpret_cast<const uint16_t*>(x.untyped_data());
  const uint16_t* from_g = reinterpret_cast<const uint16_t*>(g.untyped_data());
  // A tile's store of 16 lanes reaches beyond its own rows.
  Buffer packed_x = Allocate(tiles * pairs * kRows + 16), packed_g = Allocate(panels * pairs * kColumns);
  int32_t* left = reinterpret_cast<int32_t*>(packed_x.get());
  int32_t* right = reinterpret_cast<int32_t*>(packed_g.get());
  float* sums = db->typed_data();
  ParallelFor(pool, panels + CeilDiv(tiles, kTiles), [&](int64_t job) {
    if (job < panels) {
      const int64_t first = job * kColumns;
      for (int64_t c = first; c < first + kColumns; c += 16) {
        const __mmask16 live = c < n ? First(n - c) : 0;
        __m512 total = _mm512_setzero_ps();
        int32_t* to = right + job * pairs * kColumns + (c - first);
        for (int64_t p = 0; p < pairs; ++p, to += kColumns) {
          const uint16_t* row = from_g + 2 * p * n + c;
          const __m512i v = Pairs(row, 2 * p + 1 < m ? row + n : nullptr, live);
          _mm512_storeu_si512(to, v);
          total = _mm512_add_ps(total, _mm512_castsi512_ps(_mm512_slli_epi32(v, 16)));
          total = _mm512_add_ps(
              total, _mm512_castsi512_ps(_mm512_and_si512(v, _mm512_set1_epi32(0xffff0000))));
        }
        if (live) _mm512_mask_storeu_ps(sums + c, live, total);
      }
      return;
    }
    const int64_t begin = (job - panels) * kTiles, end = std::min(tiles, begin + kTiles);
    for (int64_t t = begin; t < end; ++t) {
      const __mmask16 live = First(std::min(kRows, k - t * kRows));
      int32_t* to = left + t * pairs * kRows;
      for (int64_t p = 0; p < pairs; ++p, to += kRows) {
        const uint16_t* row = from_x + 2 * p * k + t * kRows;
        const __m512i v = Pairs(row, 2 * p + 1 < m ? row + k : nullptr, live);
        _mm512_mask_storeu_epi32(to, First(kRows), v);
      }
    }
  });
  const int64_t chunks = CeilDiv(tiles, kTiles);
  ParallelFor(pool, panels * chunks, [&](int64_t job) {
    const int64_t panel = job / chunks, begin = job % chunks * kTiles;
    const int64_t end = std::min(tiles, begin + kTiles), c = panel * kColumns;
    for (int64_t d = 0; d < pairs; d += kPairs)
      for (int64_t t = begin; t < end; ++t)
        Tile(left + (t * pairs + d) * kRows, right + (panel * pairs + d) * kColumns,
             std::min(kPairs, pairs - d), std::min(kRows, k - t * kRows), std::min(kColumns, n - c),
             dw->typed_data() + t * kRows * n + c, n, d > 0);
  });
  return ffi::Error::Success();
}

#else

ffi::Error WeightGrads(ffi::ThreadPool, Halves, Halves, Result, Result) {
  return ffi::Error(ffi::ErrorCode::kUnimplemented, "built without AVX512-BF16");
}

#endif

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(bireme_bfloat16_weight_grads, WeightGrads,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<Halves>()
                                  .Arg<Halves>()
                                  .Ret<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>());

}  // namespace bireme
