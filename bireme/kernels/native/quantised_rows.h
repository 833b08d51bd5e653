// Rows of quantised weights by rows of activations, for one instruction set; see quantised.cc.
// Included once for each, inside a namespace, after quantised_blocks.h.

// Eight sums of four products each: lane l has those of bytes 4 l to 4 l + 3.
template <bool kWholeBytes>
BIREME_TARGET inline Ints Products(const uint8_t* u, const int8_t* q) {
#if BIREME_USES_VNNI
  return (Ints)_mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_load_si256((const __m256i*)u),
                                   _mm256_loadu_si256((const __m256i*)q));
#elif defined(__AVX2__)
  const __m256i a = _mm256_load_si256((const __m256i*)u), b = _mm256_loadu_si256((const __m256i*)q);
  const __m256i ones = _mm256_set1_epi16(1);
  if constexpr (!kWholeBytes) {
    return (Ints)_mm256_madd_epi16(_mm256_maddubs_epi16(a, b), ones);
  } else {  // two products of whole bytes do not fit 16 bits
    const __m256i low = _mm256_set1_epi8(127), top = _mm256_andnot_si256(low, a);
    const __m256i rest = _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_and_si256(a, low), b), ones);
    // 128 times b where the top bit is set: as (top / 2) twice.
    const __m256i half = _mm256_and_si256(_mm256_srli_epi16(top, 1), _mm256_set1_epi8(64));
    const __m256i high = _mm256_madd_epi16(_mm256_maddubs_epi16(half, b), ones);
    return (Ints)_mm256_add_epi32(rest, _mm256_slli_epi32(high, 1));
  }
#else
  Ints sums;
  for (int l = 0; l < 8; ++l) {
    int32_t sum = 0;
    for (int i = 0; i < 4; ++i) sum += static_cast<int32_t>(u[4 * l + i]) * q[4 * l + i];
    sums[l] = sum;
  }
  return sums;
#endif
}

BIREME_TARGET inline float Total(Eight v) {
  float sum = 0;
  for (int i = 0; i < 8; ++i) sum += v[i];
  return sum;
}

// The product of an unpacked chunk with 256 activations, added to eight sums.
template <int kCode>
BIREME_TARGET inline void AddProducts(const Chunk& c, int groups, const int8_t* q,
                                      const float* scales, const float* sums, Eight& total) {
  constexpr bool kFine = Format<kCode>::kScale == 16;
  Eight d;
  std::memcpy(&d, scales, sizeof(d));
  for (int h = 0; h < (kFine ? 2 : 1); ++h) {
    Eight m, s;
    std::memcpy(&m, c.minus + 8 * h, sizeof(m));
    std::memcpy(&s, sums + 8 * h, sizeof(s));
    total -= m * s;
  }
#pragma GCC unroll 8
  for (int g = 0; g < groups; ++g) {
    const Eight p = __builtin_convertvector(Products<kCode == 8>(c.u + 32 * g, q + 32 * g), Eight);
    if constexpr (kFine) {
      const float a = c.scale[2 * g] * d[g], b = c.scale[2 * g + 1] * d[g];
      total += p * Eight{a, a, a, a, b, b, b, b};
    } else {
      const float a = c.scale[g] * d[g];
      total += p * Eight{a, a, a, a, a, a, a, a};
    }
  }
}

// out [m, n] for some rows of weights, each by all rows of activations (few of them).
template <int kCode>
BIREME_TARGET void ByRows(const uint8_t* w, int64_t bytes, int64_t begin, int64_t end, const Rows& x,
                          const float* bias, float* out, int64_t n) {
  constexpr int64_t kStep = kColumns / Format<kCode>::kBlock * Format<kCode>::kSize;
  constexpr bool kFine = Format<kCode>::kScale == 16;
  constexpr int64_t kMany = 32;  // rows of activations at once
  Chunk c;
  for (int64_t r = begin; r < end; ++r)
    for (int64_t first = 0; first < x.count; first += kMany) {
      const int64_t rows = std::min(kMany, x.count - first);
      Eight totals[kMany];
      for (int64_t i = 0; i < rows; ++i) totals[i] = Eight{};
      const uint8_t* p = w + r * bytes;
      for (int64_t k = 0, left = x.groups; left > 0; ++k, left -= kGroups, p += kStep) {
        const int groups = static_cast<int>(std::min<int64_t>(kGroups, left));
        Unpack<kCode>(p, groups, c);
        for (int64_t i = 0; i < rows; ++i) {
          const int64_t at = (first + i) * x.chunks + k;
          AddProducts<kCode>(c, groups, x.q + at * kColumns, x.scales + at * kGroups,
                             kFine ? x.fine_sums + at * 2 * kGroups : x.sums + at * kGroups, totals[i]);
        }
      }
      for (int64_t i = 0; i < rows; ++i)
        out[(first + i) * n + r] = Total(totals[i]) + (bias == nullptr ? 0.0f : bias[r]);
    }
}

#if BIREME_USES_VNNI

// Many rows of activations: 32 rows of weights side by side in two registers, six of activations.
constexpr int64_t kSide = 32;
constexpr int64_t kTile = 6;

struct Panel {  // a chunk of kSide rows, four columns of each in a word
  alignas(64) int32_t words[kColumns / 4][kSide];
  alignas(64) float scale[16][kSide];
  alignas(64) float minus[16][kSide];
};

template <int kCode>
BIREME_TARGET void PackPanel(const uint8_t* w, int64_t bytes, int64_t rows, int groups, Panel& panel) {
  constexpr int kScales = kColumns / Format<kCode>::kScale;
  Chunk c;
  std::memset(c.u, 0, sizeof(c.u));
  for (int64_t r = 0; r < kSide; ++r) {
    if (r < rows) Unpack<kCode>(w + r * bytes, groups, c);
    const int32_t* words = reinterpret_cast<const int32_t*>(c.u);
    for (int64_t i = 0; i < kColumns / 4; ++i) panel.words[i][r] = words[i];
    for (int i = 0; i < kScales; ++i) {
      panel.scale[i][r] = r < rows ? c.scale[i] : 0;
      panel.minus[i][r] = r < rows ? c.minus[i] : 0;
    }
  }
}

// sums [kTile][kSide] of a chunk are added to those at `to`.
template <int kCode>
BIREME_TARGET void MultiplyTile(const Panel& panel, int groups, const Rows& x, int64_t first,
                                int64_t rows, int64_t k, float* to) {
  constexpr bool kFine = Format<kCode>::kScale == 16;
  constexpr int kParts = kFine ? 2 : 1;
  const int32_t* from[kTile];
  int64_t at[kTile];
  __m512 total[kTile][2];
#pragma GCC unroll 6
  for (int r = 0; r < kTile; ++r) {
    at[r] = (first + std::min<int64_t>(r, rows - 1)) * x.chunks + k;
    from[r] = reinterpret_cast<const int32_t*>(x.q + at[r] * kColumns);
    for (int s = 0; s < 2; ++s) total[r][s] = _mm512_loadu_ps(to + r * kSide + 16 * s);
  }
  for (int part = 0; part < groups * kParts; ++part) {
    constexpr int kWords = Format<kCode>::kScale / 4;
    __m512i sum[kTile][2];
#pragma GCC unroll 6
    for (int r = 0; r < kTile; ++r) sum[r][0] = sum[r][1] = _mm512_setzero_si512();
#pragma GCC unroll 8
    for (int i = 0; i < kWords; ++i) {
      const int32_t* words = panel.words[part * kWords + i];
      const __m512i a = _mm512_load_si512(words), b = _mm512_load_si512(words + 16);
#pragma GCC unroll 6
      for (int r = 0; r < kTile; ++r) {
        const __m512i v = _mm512_set1_epi32(from[r][part * kWords + i]);
        sum[r][0] = _mm512_dpbusd_epi32(sum[r][0], a, v);
        sum[r][1] = _mm512_dpbusd_epi32(sum[r][1], b, v);
      }
    }
#pragma GCC unroll 2
    for (int s = 0; s < 2; ++s) {
      const __m512 scale = _mm512_load_ps(panel.scale[part] + 16 * s);
      const __m512 minus = _mm512_load_ps(panel.minus[part] + 16 * s);
#pragma GCC unroll 6
      for (int r = 0; r < kTile; ++r) {
        const float* sums = kFine ? x.fine_sums + at[r] * 2 * kGroups : x.sums + at[r] * kGroups;
        const __m512 by = _mm512_mul_ps(scale, _mm512_set1_ps(x.scales[at[r] * kGroups + part / kParts]));
        total[r][s] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[r][s]), by, total[r][s]);
        total[r][s] = _mm512_fnmadd_ps(minus, _mm512_set1_ps(sums[part]), total[r][s]);
      }
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < kTile; ++r)
    for (int s = 0; s < 2; ++s) _mm512_storeu_ps(to + r * kSide + 16 * s, total[r][s]);
}

// out [m, n] for up to kSide rows of weights; `room` holds that many columns of all results.
template <int kCode>
BIREME_TARGET void ByTiles(const uint8_t* w, int64_t bytes, int64_t begin, int64_t end, const Rows& x,
                           const float* bias, float* out, int64_t n, float* room) {
  constexpr int64_t kStep = kColumns / Format<kCode>::kBlock * Format<kCode>::kSize;
  const int64_t tiles = CeilDiv(x.count, kTile), rows = end - begin;
  std::memset(room, 0, sizeof(float) * tiles * kTile * kSide);
  Panel panel;
  for (int64_t k = 0, left = x.groups; left > 0; ++k, left -= kGroups) {
    const int groups = static_cast<int>(std::min<int64_t>(kGroups, left));
    PackPanel<kCode>(w + begin * bytes + k * kStep, bytes, rows, groups, panel);
    for (int64_t t = 0; t < tiles; ++t)
      MultiplyTile<kCode>(panel, groups, x, t * kTile, std::min(kTile, x.count - t * kTile), k,
                          room + t * kTile * kSide);
  }
  for (int64_t i = 0; i < x.count; ++i)
    for (int64_t r = 0; r < rows; ++r)
      out[i * n + begin + r] = room[i * kSide + r] + (bias == nullptr ? 0.0f : bias[begin + r]);
}

#endif
