// Linear layers on bfloat16 matrices by AVX512-BF16, as XLA FFI handlers: x [M, K], w [K, N],
// bias [N]. Sums are float32 and rounded once.
//
// The instruction adds two products to each sum, of numbers that lie side by side. A pair of them
// is one 32-bit word here: a row of a first factor is words already, of a second factor two rows
// are woven into one. XLA converts both factors to float32 instead.

#include <algorithm>

#include "handlers.h"
#include "parallel.h"
#include "transpose.h"

#if defined(__AVX512BF16__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#include <immintrin.h>
#define BIREME_HAS_BFLOAT16 1
#else
#define BIREME_HAS_BFLOAT16 0
#endif

extern "C" int bireme_has_bfloat16() { return BIREME_HAS_BFLOAT16; }

namespace bireme {
namespace {

using Halves = ffi::Buffer<ffi::BF16>;
using HalfOut = ffi::ResultBuffer<ffi::BF16>;
using FloatOut = ffi::ResultBuffer<ffi::F32>;

#if BIREME_HAS_BFLOAT16

constexpr int64_t kRows = 6;      // of a tile of results; kRows * kSide accumulators
constexpr int64_t kSide = 4;      // registers side by side
constexpr int64_t kColumns = 64;  // kSide registers of 16
constexpr int64_t kTiles = 16;    // of a job

inline __mmask16 First(int64_t count) {
  return count >= 16 ? 0xffff : count <= 0 ? 0 : static_cast<__mmask16>((1u << count) - 1);
}

inline const uint16_t* Words(Halves& b) { return static_cast<const uint16_t*>(b.untyped_data()); }
inline const int32_t* Doubles(Halves& b) { return static_cast<const int32_t*>(b.untyped_data()); }

// 16 columns of two rows, woven; a row that is not there counts as zeros.
inline __m512i Woven(const uint16_t* row, const uint16_t* next, __mmask16 live) {
  const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(live, row));
  if (next == nullptr) return low;
  const __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(live, next));
  return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}

// Sums of a tile over pairs of a's rows and b's columns; `store(r, s, sum)` gets 16 columns at a time.
// Of the rows `rows` are there; they lie `stride` words apart, or packed in groups of kRows.
template <bool kPacked, typename Store>
inline void Tile(const int32_t* a, int64_t stride, int64_t rows, const int32_t* b, int64_t pairs,
                 const Store& store) {
  __m512 sums[kRows][kSide];
  for (int r = 0; r < kRows; ++r)
    for (int s = 0; s < kSide; ++s) sums[r][s] = _mm512_setzero_ps();
  const int32_t* from[kRows];
  for (int64_t r = 0; r < kRows; ++r)
    from[r] = kPacked ? a + r : a + std::min(r, rows - 1) * stride;
  for (int64_t p = 0; p < pairs; ++p, b += kColumns) {
    __m512bh right[kSide];
    for (int s = 0; s < kSide; ++s) right[s] = (__m512bh)_mm512_loadu_si512(b + 16 * s);
    for (int r = 0; r < kRows; ++r) {
      const __m512bh left = (__m512bh)_mm512_set1_epi32(from[r][kPacked ? p * kRows : p]);
      for (int s = 0; s < kSide; ++s) sums[r][s] = _mm512_dpbf16_ps(sums[r][s], left, right[s]);
    }
  }
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t s = 0; s < kSide; ++s) store(r, s, sums[r][s]);
}

// out [M, N] = a [M, depth] times packed panels, plus bias; rounded.
void Product(ffi::ThreadPool& pool, const int32_t* a, int64_t m, int64_t pairs, const int32_t* b,
             int64_t n, const uint16_t* bias, uint16_t* out) {
  const int64_t panels = CeilDiv(n, kColumns), chunks = CeilDiv(m, kRows * kTiles);
  ParallelFor(pool, panels * chunks, [&](int64_t job) {
    const int64_t first = job / chunks * kColumns, begin = job % chunks * kRows * kTiles;
    const int64_t end = std::min(m, begin + kRows * kTiles);
    __m512 offset[kSide];
    for (int64_t s = 0; s < kSide; ++s) {
      const int64_t c = first + 16 * s;
      offset[s] = bias == nullptr || c >= n
                      ? _mm512_setzero_ps()
                      : _mm512_castsi512_ps(_mm512_slli_epi32(Woven(bias + c, nullptr, First(n - c)), 16));
    }
    for (int64_t r = begin; r < end; r += kRows)
      Tile<false>(a + r * pairs, pairs, std::min(kRows, end - r), b + first * pairs, pairs,
                  [&](int64_t i, int64_t s, __m512 sum) {
                    const int64_t c = first + 16 * s;
                    if (c >= n) return;
                    const __m256bh rounded = _mm512_cvtneps_pbh(_mm512_add_ps(sum, offset[s]));
                    _mm256_mask_storeu_epi16(out + (r + i) * n + c, First(n - c), (__m256i)rounded);
                  });
  });
}

// w [K, N] as panels of columns, two rows woven.
void PackRows(ffi::ThreadPool& pool, const uint16_t* w, int64_t k, int64_t n, int32_t* packed) {
  const int64_t pairs = k / 2;
  ParallelFor(pool, CeilDiv(n, kColumns), [&](int64_t panel) {
    int32_t* to = packed + panel * pairs * kColumns;
    for (int64_t p = 0; p < pairs; ++p)
      for (int64_t c = panel * kColumns; c < (panel + 1) * kColumns; c += 16, to += 16) {
        const uint16_t* row = w + 2 * p * n + c;
        _mm512_storeu_si512(to, Woven(row, row + n, First(n - c)));
      }
  });
}

// w's transpose [N, K] as panels of its columns, which are w's rows.
void PackTurned(ffi::ThreadPool& pool, const int32_t* w, int64_t k, int64_t n, int32_t* packed) {
  const int64_t pairs = n / 2;
  const float* from = reinterpret_cast<const float*>(w);
  const float* end = from + k * pairs;
  ParallelFor(pool, CeilDiv(k, kColumns), [&](int64_t panel) {
    float* to = reinterpret_cast<float*>(packed + panel * pairs * kColumns);
    for (int64_t c = 0; c < kColumns; c += 16) {
      const int64_t row = panel * kColumns + c;
      for (int64_t p = 0; p < pairs; p += 16) {
        Vec turned[kLanes] = {};
        if (row < k) LoadTurned(from + row * pairs + p, pairs, std::min<int64_t>(16, k - row), end, turned);
        for (int64_t i = 0; i < std::min<int64_t>(16, pairs - p); ++i)
          Store(to + (p + i) * kColumns + c, turned[i]);
      }
    }
  });
}

ffi::Error Forward(ffi::ThreadPool pool, Halves x, Halves w, Halves bias, HalfOut y) {
  const int64_t m = x.dimensions()[0], k = w.dimensions()[0], n = w.dimensions()[1];
  Buffer packed = Allocate(k / 2 * CeilDiv(n, kColumns) * kColumns);
  int32_t* panels = reinterpret_cast<int32_t*>(packed.get());
  PackRows(pool, Words(w), k, n, panels);
  Product(pool, Doubles(x), m, k / 2, panels, n, bias.element_count() ? Words(bias) : nullptr,
          static_cast<uint16_t*>(y->untyped_data()));
  return ffi::Error::Success();
}

// dw [K, N] = x's transpose times g, db [N] = sums over g's rows.
ffi::Error WeightGrads(ffi::ThreadPool pool, Halves x, Halves g, FloatOut dw, FloatOut db) {
  const int64_t m = x.dimensions()[0], k = x.dimensions()[1], n = g.dimensions()[1];
  const int64_t pairs = CeilDiv(m, 2), tiles = CeilDiv(k, kRows), panels = CeilDiv(n, kColumns);
  const uint16_t *from_x = Words(x), *from_g = Words(g);
  // A tile's store of 16 lanes reaches beyond its own rows.
  Buffer packed_x = Allocate(tiles * pairs * kRows + 16), packed_g = Allocate(panels * pairs * kColumns);
  int32_t* left = reinterpret_cast<int32_t*>(packed_x.get());
  int32_t* right = reinterpret_cast<int32_t*>(packed_g.get());
  float* sums = db->typed_data();
  const int64_t chunks = CeilDiv(tiles, kTiles);
  ParallelFor(pool, panels + chunks, [&](int64_t job) {
    if (job < panels) {
      const int64_t first = job * kColumns;
      for (int64_t c = first; c < first + kColumns; c += 16) {
        const __mmask16 live = First(n - c);
        __m512 total = _mm512_setzero_ps();
        int32_t* to = right + job * pairs * kColumns + (c - first);
        for (int64_t p = 0; p < pairs; ++p, to += kColumns) {
          const uint16_t* row = from_g + 2 * p * n + c;
          const __m512i v = Woven(row, 2 * p + 1 < m ? row + n : nullptr, live);
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
    for (int64_t p = 0; p < pairs; ++p)
      for (int64_t t = begin; t < end; ++t) {
        const __mmask16 live = First(std::min(kRows, k - t * kRows));
        const uint16_t* row = from_x + 2 * p * k + t * kRows;
        const __m512i v = Woven(row, 2 * p + 1 < m ? row + k : nullptr, live);
        _mm512_mask_storeu_epi32(left + (t * pairs + p) * kRows, First(kRows), v);
      }
  });
  ParallelFor(pool, panels * chunks, [&](int64_t job) {
    const int64_t panel = job / chunks, begin = job % chunks * kTiles, first = panel * kColumns;
    for (int64_t t = begin; t < std::min(tiles, begin + kTiles); ++t)
      Tile<true>(left + t * pairs * kRows, 0, std::min(kRows, k - t * kRows),
                 right + panel * pairs * kColumns, pairs, [&](int64_t i, int64_t s, __m512 sum) {
                   const int64_t c = first + 16 * s;
                   if (c >= n) return;
                   _mm512_mask_storeu_ps(dw->typed_data() + (t * kRows + i) * n + c, First(n - c), sum);
                 });
  });
  return ffi::Error::Success();
}

// All gradients; dx [M, K] = g times w's transpose.
ffi::Error Grads(ffi::ThreadPool pool, Halves x, Halves g, Halves w, HalfOut dx, FloatOut dw,
                 FloatOut db) {
  const int64_t m = x.dimensions()[0], k = w.dimensions()[0], n = w.dimensions()[1];
  {
    Buffer packed = Allocate(n / 2 * CeilDiv(k, kColumns) * kColumns);
    int32_t* panels = reinterpret_cast<int32_t*>(packed.get());
    PackTurned(pool, Doubles(w), k, n, panels);
    Product(pool, Doubles(g), m, n / 2, panels, k, nullptr,
            static_cast<uint16_t*>(dx->untyped_data()));
  }
  return WeightGrads(pool, x, g, dw, db);
}

#else

ffi::Error Refused() {
  return ffi::Error(ffi::ErrorCode::kUnimplemented, "built without AVX512-BF16");
}
ffi::Error Forward(ffi::ThreadPool, Halves, Halves, Halves, HalfOut) { return Refused(); }
ffi::Error WeightGrads(ffi::ThreadPool, Halves, Halves, FloatOut, FloatOut) { return Refused(); }
ffi::Error Grads(ffi::ThreadPool, Halves, Halves, Halves, HalfOut, FloatOut, FloatOut) {
  return Refused();
}

#endif

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(bireme_bfloat16_linear, Forward,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<Halves>()
                                  .Arg<Halves>()
                                  .Arg<Halves>()
                                  .Ret<Halves>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    bireme_bfloat16_weight_grads, WeightGrads,
    FloatRets<2>(ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Arg<Halves>().Arg<Halves>()));
XLA_FFI_DEFINE_HANDLER_SYMBOL(bireme_bfloat16_grads, Grads,
                              FloatRets<2>(ffi::Ffi::Bind()
                                               .Ctx<ffi::ThreadPool>()
                                               .Arg<Halves>()
                                               .Arg<Halves>()
                                               .Arg<Halves>()
                                               .Ret<Halves>()));

}  // namespace bireme
