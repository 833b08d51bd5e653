// Quantised blocks as small integers with scales, 256 columns at a time: value = scale * u - minus.
//
// Included once for each instruction set, inside a namespace of its own (quantised.cc), with
// BIREME_TARGET as the attribute of its functions. The formats are those of
// ops/block_formats.py, with the codes of GGUF.

// What a format needs besides its numbers: 32-column formats have one scale for 32 columns and 8
// blocks in a chunk; those of 256 columns one block, with a scale for 32 or for 16 columns.
template <int kCode>
struct Format;
template <> struct Format<2> { static constexpr int kBlock = 32, kSize = 18, kScale = 32; };
template <> struct Format<3> { static constexpr int kBlock = 32, kSize = 20, kScale = 32; };
template <> struct Format<6> { static constexpr int kBlock = 32, kSize = 22, kScale = 32; };
template <> struct Format<7> { static constexpr int kBlock = 32, kSize = 24, kScale = 32; };
template <> struct Format<8> { static constexpr int kBlock = 32, kSize = 34, kScale = 32; };
template <> struct Format<10> { static constexpr int kBlock = 256, kSize = 84, kScale = 16; };
template <> struct Format<11> { static constexpr int kBlock = 256, kSize = 110, kScale = 16; };
template <> struct Format<12> { static constexpr int kBlock = 256, kSize = 144, kScale = 32; };
template <> struct Format<13> { static constexpr int kBlock = 256, kSize = 176, kScale = 32; };
template <> struct Format<14> { static constexpr int kBlock = 256, kSize = 210, kScale = 16; };

// 256 columns of a row. Of the scales 8 or 16 are used.
struct Chunk {
  alignas(64) uint8_t u[kColumns];
  alignas(64) float scale[16];
  alignas(64) float minus[16];
};

BIREME_TARGET inline float Half(const uint8_t* p) {
  uint16_t h;
  std::memcpy(&h, p, 2);
#if defined(__F16C__)
  return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h)));
#else
  const uint32_t sign = (h & 0x8000u) << 16, exponent = h >> 10 & 31, mantissa = h & 1023;
  uint32_t bits;
  float value;
  if (exponent == 31) {
    bits = sign | 0x7f800000u | mantissa << 13;
  } else if (exponent == 0) {
    value = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -value : value;
  } else {
    bits = sign | (exponent + 112) << 23 | mantissa << 13;
  }
  std::memcpy(&value, &bits, 4);
  return value;
#endif
}

// The low halves of 16 bytes, then the high ones.
BIREME_TARGET inline void Nibbles(const uint8_t* p, uint8_t* u) {
  for (int i = 0; i < 16; ++i) u[i] = p[i] & 15;
  for (int i = 0; i < 16; ++i) u[16 + i] = p[i] >> 4;
}

// The fifth bits of 32 numbers, which lie in four bytes.
BIREME_TARGET inline void FifthBits(const uint8_t* p, uint8_t* u) {
#if defined(__AVX2__)
  // Every byte of a register gets the byte with its bit, which is then compared with that bit.
  int32_t bits;
  std::memcpy(&bits, p, 4);
  const __m256i from = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
  const __m256i one = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201ull));
  const __m256i spread = _mm256_shuffle_epi8(_mm256_set1_epi32(bits), from);
  const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(spread, one), one);
  __m256i* to = reinterpret_cast<__m256i*>(u);
  _mm256_storeu_si256(to, _mm256_or_si256(_mm256_loadu_si256(to),
                                          _mm256_and_si256(set, _mm256_set1_epi8(16))));
#else
  for (int i = 0; i < 32; ++i) u[i] |= (p[i / 8] >> (i % 8) & 1) << 4;
#endif
}

// Eight scales and eight minima of six bits, in 12 bytes.
BIREME_TARGET inline void SixBits(const uint8_t* p, uint8_t* scales, uint8_t* minima) {
  for (int i = 0; i < 4; ++i) {
    scales[i] = p[i] & 63;
    minima[i] = p[4 + i] & 63;
    scales[4 + i] = (p[8 + i] & 15) | (p[i] >> 6) << 4;
    minima[4 + i] = p[8 + i] >> 4 | (p[4 + i] >> 6) << 4;
  }
}

// Unpacks `groups` times 32 columns of the blocks at p; scales of columns that are not there are 0.
template <int kCode>
BIREME_TARGET inline void Unpack(const uint8_t* p, int groups, Chunk& c) {
  constexpr int kSize = Format<kCode>::kSize;
  if constexpr (Format<kCode>::kBlock == 32) {
    if (groups < kGroups)
      for (int g = groups; g < kGroups; ++g) c.scale[g] = c.minus[g] = 0;
    for (int g = 0; g < groups; ++g, p += kSize) {
      const float d = Half(p);
      uint8_t* u = c.u + 32 * g;
      c.scale[g] = d;
      if constexpr (kCode == 2) {
        Nibbles(p + 2, u);
        c.minus[g] = 8 * d;
      } else if constexpr (kCode == 3) {
        Nibbles(p + 4, u);
        c.minus[g] = -Half(p + 2);
      } else if constexpr (kCode == 6) {
        Nibbles(p + 6, u);
        FifthBits(p + 2, u);
        c.minus[g] = 16 * d;
      } else if constexpr (kCode == 7) {
        Nibbles(p + 8, u);
        FifthBits(p + 4, u);
        c.minus[g] = -Half(p + 2);
      } else {
        for (int i = 0; i < 32; ++i) u[i] = p[2 + i] ^ 0x80;
        c.minus[g] = 128 * d;
      }
    }
    return;
  }
  if constexpr (kCode == 10) {
    const float d = Half(p + 80), least = Half(p + 82);
    for (int i = 0; i < 16; ++i) {
      c.scale[i] = d * static_cast<float>(p[i] & 15);
      c.minus[i] = least * static_cast<float>(p[i] >> 4);
    }
    for (int h = 0; h < 2; ++h)
      for (int s = 0; s < 4; ++s)
        for (int i = 0; i < 32; ++i) c.u[128 * h + 32 * s + i] = p[16 + 32 * h + i] >> (2 * s) & 3;
  } else if constexpr (kCode == 11) {
    const float d = Half(p + 108);
    const uint8_t* s = p + 96;
    for (int i = 0; i < 16; ++i) {
      const int low = i < 8 ? s[i] & 15 : s[i - 8] >> 4, high = s[8 + i % 4] >> (2 * (i / 4)) & 3;
      c.scale[i] = d * static_cast<float>((low | high << 4) - 32);
      c.minus[i] = 4 * c.scale[i];
    }
    for (int h = 0; h < 2; ++h)
      for (int t = 0; t < 4; ++t)
        for (int i = 0; i < 32; ++i)
          c.u[128 * h + 32 * t + i] =
              (p[32 + 32 * h + i] >> (2 * t) & 3) | (p[i] >> (4 * h + t) & 1) << 2;
  } else if constexpr (kCode == 12 || kCode == 13) {
    const float d = Half(p), least = Half(p + 2);
    uint8_t scales[8], minima[8];
    SixBits(p + 4, scales, minima);
    for (int g = 0; g < 8; ++g) {
      c.scale[g] = d * static_cast<float>(scales[g]);
      c.minus[g] = least * static_cast<float>(minima[g]);
    }
    const uint8_t* q = p + (kCode == 12 ? 16 : 48);
    for (int g = 0; g < 4; ++g)
      for (int i = 0; i < 32; ++i) {
        c.u[64 * g + i] = q[32 * g + i] & 15;
        c.u[64 * g + 32 + i] = q[32 * g + i] >> 4;
      }
    if constexpr (kCode == 13)
      for (int g = 0; g < 8; ++g)
        for (int i = 0; i < 32; ++i) c.u[32 * g + i] |= (p[16 + i] >> g & 1) << 4;
  } else {
    const float d = Half(p + 208);
    for (int i = 0; i < 16; ++i) {
      c.scale[i] = d * static_cast<float>(static_cast<int8_t>(p[192 + i]));
      c.minus[i] = 32 * c.scale[i];
    }
    for (int h = 0; h < 2; ++h) {
      const uint8_t *low = p + 64 * h, *high = p + 128 + 32 * h;
      uint8_t* u = c.u + 128 * h;
      for (int i = 0; i < 32; ++i) {
        u[i] = (low[i] & 15) | (high[i] & 3) << 4;
        u[32 + i] = (low[32 + i] & 15) | (high[i] >> 2 & 3) << 4;
        u[64 + i] = low[i] >> 4 | (high[i] >> 4 & 3) << 4;
        u[96 + i] = low[32 + i] >> 4 | high[i] >> 6 << 4;
      }
    }
  }
}
