// A token's way through a stack of decoder layers, as one kernel.
//
// A token reads every weight once, and what is lost is lost between products: the memory idles
// while the last results come together and the next product begins. Here one block of threads on
// every multiprocessor goes through all layers, and one of its warps reads the block's share of the
// weights ahead, over the ends of products and while the others wait.
//
// Blocks tell one another their results through `exchange`. Nobody signals that a result is there:
// the lowest two bits of every number say which layer it is of, and readers look until all that
// they need are of the right one. A place is written again a layer later, when all who read it have
// given something that the writer waited for.

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <type_traits>

#include "decoder.h"

namespace bireme {
namespace {

constexpr int kWarps = 16;
constexpr int kThreads = 32 * kWarps;  // that multiply; one warp more reads
constexpr int kStageRows = 32;         // rows of a weight that a warp multiplies at once
constexpr int kRowBytes = 2 * kUnit;
constexpr int kStageBytes = kStageRows * kRowBytes;
constexpr int kDepth = 3;  // stages of a warp that there is room for, at most
constexpr int kSlots = kDepth * kWarps;
// Stages of a block that are asked for at once. The memory needs no more to be busy, and whatever
// else is read waits behind them.
constexpr int kUnderWay = 16;
constexpr int kGroup = 4;   // units whose sums come together at once
constexpr int kPieces = 4;  // of a product's inner dimension, at most
constexpr int kSplits = 4;  // parts of a head's attention, at most
constexpr int kPer = 8;     // elements of a cache's row that a thread reads: 16 bytes

template <typename T>
__device__ __forceinline__ float2 Pair(unsigned bits);
template <>
__device__ __forceinline__ float2 Pair<__nv_bfloat16>(unsigned bits) {
  return make_float2(__uint_as_float(bits << 16), __uint_as_float(bits & 0xffff0000u));
}
template <>
__device__ __forceinline__ float2 Pair<__half>(unsigned bits) {
  return __half22float2(*reinterpret_cast<__half2*>(&bits));
}

template <typename T>
__device__ __forceinline__ void Wide(const uint4& bits, float (&to)[kPer]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair = Pair<T>((&bits.x)[i]);
    to[2 * i] = pair.x;
    to[2 * i + 1] = pair.y;
  }
}

__device__ __forceinline__ float WideOne(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float WideOne(__half x) { return __half2float(x); }
template <typename T>
__device__ __forceinline__ T Narrow(float x);
template <>
__device__ __forceinline__ __nv_bfloat16 Narrow(float x) {
  return __float2bfloat16(x);
}
template <>
__device__ __forceinline__ __half Narrow(float x) {
  return __float2half(x);
}
template <typename T>
__device__ __forceinline__ float Rounded(float x) {
  return WideOne(Narrow<T>(x));
}

__device__ __forceinline__ unsigned Address(const void* shared) {
  return (unsigned)__cvta_generic_to_shared(shared);
}

// --- how the work is cut -------------------------------------------------------------------------

enum { kQkv, kMix, kGate, kDown, kHead, kProducts };

// A product: columns in units, the inner dimension in some pieces; each block has one piece of some
// units.
struct Product {
  int inner, columns, pieces;
  int shift;  // of the blocks, so that those with more to do are others in every product
  int at;     // where the results are in the exchange
};

struct Plan {
  Product products[kProducts];
  int parts_at, tops_at;  // of attention, in the exchange
  int splits;
  int blocks;
  int room;   // elements of what is multiplied
  int slots;  // of the ring
};

// A block's part of a product.
struct Share {
  int first, step, count;  // units
  int begin, stages;       // rows
  int pieces, columns;
  int at, told;  // where the results are in the exchange, and where this block's piece of them is
};

__device__ __forceinline__ Share ShareOf(const Plan& plan, int product) {
  const Product& p = plan.products[product];
  const int block = (blockIdx.x + p.shift) % plan.blocks, piece = block % p.pieces;
  const int units = p.columns / kUnit, stages = p.inner / kStageRows;
  Share s;
  s.first = block / p.pieces;
  s.step = plan.blocks / p.pieces;
  s.count = s.first < units ? (units - s.first + s.step - 1) / s.step : 0;
  const int begin = stages * piece / p.pieces;
  s.begin = begin * kStageRows;
  s.stages = stages * (piece + 1) / p.pieces - begin;
  s.pieces = p.pieces;
  s.columns = p.columns;
  s.at = p.at;
  s.told = p.at + piece * p.columns;
  return s;
}

// A block's part of attention: some positions of a head.
struct Item {
  int head, group, split, begin, end;
  bool there, last, writes;
};

__device__ __forceinline__ Item ItemOf(const Decoder& d, const Plan& plan, int here) {
  Item i;
  const int shared = d.heads / d.groups;
  i.there = blockIdx.x < d.heads * plan.splits;
  i.head = blockIdx.x / plan.splits;
  i.split = blockIdx.x % plan.splits;
  i.group = i.head / shared;
  i.begin = here * i.split / plan.splits;
  i.end = i.there ? here * (i.split + 1) / plan.splits : i.begin;
  i.last = i.split == plan.splits - 1;
  i.writes = i.last && i.head % shared == 0;
  return i;
}

// What is the same for a whole run, in shared memory.
struct Block {
  Share shares[kProducts];
  Item item;
  int here;  // the token's place
};

struct Columns {
  const CUtensorMap* weight;
  int first;
};

__device__ __forceinline__ Columns ColumnsOf(const Decoder& d, int layer, int product, int unit) {
  const CUtensorMap* const w = &d.weights[layer].q;
  int column = unit * kUnit;
  if (product == kQkv) {
    const int queries = d.heads * d.size, keys = d.groups * d.size;
    if (column < queries) return {w, column};
    column -= queries;
    return column < keys ? Columns{w + 1, column} : Columns{w + 2, column - keys};
  }
  if (product == kGate)
    return column < d.inner ? Columns{w + 4, column} : Columns{w + 5, column - d.inner};
  return {product == kMix ? w + 3 : product == kDown ? w + 6 : &d.head, column};
}

// --- reading weights ahead -----------------------------------------------------------------------

// Slots of shared memory that stages of weights pass through, in the order in which they are
// multiplied. One warp fills them as soon as they are empty: far ahead of those that multiply, over
// the ends of products, and while these wait.
struct Ring {
  unsigned first, count;
  unsigned full, empty;  // barriers, one of each for every slot
};

// The stages of all products go round the warps. `before` are those of earlier products.
__device__ __forceinline__ int FirstStage(const Share& share, int unit, unsigned before) {
  return (threadIdx.x / 32 - (before + unit * share.stages)) & (kWarps - 1);
}

__device__ __forceinline__ int Stages(const Share& share, int first) {
  return (share.stages - first + kWarps - 1) / kWarps;  // none if that is negative
}

__device__ __forceinline__ void Wait(unsigned barrier, unsigned parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// What the reading thread does: all stages of all products that are this block's.
__device__ __forceinline__ void ReadAll(const Decoder& d, const Block& block, const Ring& ring) {
  unsigned slot = 0, parity = 0, behind = 0, behind_parity = 0;
  int count = 0;
  int layer = 0, product = kQkv;
#pragma unroll 1
  while (true) {
    const Share share = block.shares[product];
#pragma unroll 1
    for (int unit = 0; unit < share.count; ++unit) {
      const Columns columns = ColumnsOf(d, layer, product, share.first + unit * share.step);
      int row = share.begin;
#pragma unroll 1
      for (int left = share.stages; left > 0; --left, row += kStageRows) {
        // Before its first turn a slot is empty.
        Wait(ring.empty + 8 * slot, parity ^ 1);
        if (count == kUnderWay) {
          Wait(ring.full + 8 * behind, behind_parity);
          if (++behind == ring.count) behind = 0, behind_parity ^= 1;
        } else {
          ++count;
        }
        const unsigned full = ring.full + 8 * slot;
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(full),
                     "n"(kStageBytes)
                     : "memory");
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
            "[%0], [%1, {%2, %3}], [%4];" ::"r"(ring.first + slot * kStageBytes),
            "l"(columns.weight), "r"(columns.first), "r"(row), "r"(full)
            : "memory");
        if (++slot == ring.count) slot = 0, parity ^= 1;
      }
    }
    if (product == kHead) return;
    if (product == kDown) {
      product = ++layer < d.count ? kQkv : kHead;
    } else {
      ++product;
    }
  }
}

// The warps that multiply wait for one another.
__device__ __forceinline__ void All() {
  asm volatile("bar.sync 2, %0;" ::"n"(kThreads) : "memory");
}

// --- telling the other blocks --------------------------------------------------------------------

__device__ __forceinline__ unsigned Mark(int layer) { return layer % 3 + 1; }

__device__ __forceinline__ void Tell(float* at, float value, unsigned mark) {
  const unsigned bits = (__float_as_uint(value) & ~3u) | mark;
  asm volatile("st.relaxed.gpu.global.b32 [%0], %1;" ::"l"(at), "r"(bits) : "memory");
}

__device__ __forceinline__ uint4 Look(const float* at) {
  uint4 v;
  asm volatile("ld.relaxed.gpu.global.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(at)
               : "memory");
  return v;
}

__device__ __forceinline__ bool Is(const uint4& v, unsigned mark) {
  return (v.x & 3) == mark && (v.y & 3) == mark && (v.z & 3) == mark && (v.w & 3) == mark;
}

__device__ __forceinline__ float4 Values(const uint4& v) {
  return make_float4(__uint_as_float(v.x & ~3u), __uint_as_float(v.y & ~3u),
                     __uint_as_float(v.z & ~3u), __uint_as_float(v.w & ~3u));
}

// N times four numbers that others tell, all asked for at once, again and again until all are
// there. `at` says where the n-th are (null: nobody tells them), and `half` of which the last two
// are told by nobody.
template <int N, typename At>
__device__ __forceinline__ void HearAt(const At& at, unsigned mark, float4 (&got)[N],
                                       int half = -1) {
  uint4 v[N];
  bool all;
  do {
    all = true;
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const float* const from = at(n);
      v[n] = make_uint4(mark, mark, mark, mark);
      if (from != nullptr) v[n] = Look(from);
    }
#pragma unroll
    for (int n = 0; n < N; ++n) {
      if (n == half) v[n].z = v[n].w = mark;
      all &= Is(v[n], mark);
    }
  } while (!all);
#pragma unroll
  for (int n = 0; n < N; ++n) got[n] = Values(v[n]);
}

// The first `count` of N such, `step` apart.
template <int N>
__device__ __forceinline__ void Hear(const float* at, int step, int count, unsigned mark,
                                     float4 (&got)[N]) {
  HearAt<N>([&](int n) { return n < count ? at + n * step : nullptr; }, mark, got);
}

__device__ __forceinline__ float4 Plus(const float4& a, const float4& b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

__device__ __forceinline__ float4 Sum(const float4 (&pieces)[kPieces]) {
  return Plus(Plus(pieces[0], pieces[1]), Plus(pieces[2], pieces[3]));
}

template <typename T>
__device__ __forceinline__ float4 Rounded4(const float4& v) {
  return make_float4(Rounded<T>(v.x), Rounded<T>(v.y), Rounded<T>(v.z), Rounded<T>(v.w));
}

template <typename T>
__device__ __forceinline__ float4 Load4(const void* from, int i) {
  const uint2 bits = *(const uint2*)((const T*)from + i);
  const float2 a = Pair<T>(bits.x), b = Pair<T>(bits.y);
  return make_float4(a.x, a.y, b.x, b.y);
}

template <typename T>
__device__ __forceinline__ void Store4(void* to, int i, const float4& v) {
  T four[4] = {Narrow<T>(v.x), Narrow<T>(v.y), Narrow<T>(v.z), Narrow<T>(v.w)};
  *(uint2*)((T*)to + i) = *(const uint2*)four;
}

// --- what a block does ---------------------------------------------------------------------------
//
// Every part is here once, and short: what a block runs must stay in the instruction cache, since
// each instruction is needed once in a layer and reading it from further away takes as long as
// reading a result.

constexpr int kFound = kGroup * kWarps * kUnit;

struct Memory {
  Block* block;
  float* stream;     // [width]: the sum that layers add to
  void* rows;        // [room]: what is multiplied
  float* found;      // [kGroup][kWarps][kUnit]: sums of the warps
  float* squares;    // [kWarps]
  float* query;      // [3][size], with the new key and value
  float* tops;       // [kWarps][2]
  float *cos, *sin;  // [size]
};

// The stream with the product that comes to it, and its norm as what is multiplied next.
template <typename T>
__device__ __forceinline__ void Norm(const Decoder& d, const Memory& m, int added, unsigned mark,
                                     const void* scale) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, begin = 4 * threadIdx.x;
  // On its way while this waits for the others; of wide streams the first elements are.
  float4 early = make_float4(0, 0, 0, 0);
  if (begin < d.width) early = Load4<T>(scale, begin);
  float square = 0;
#pragma unroll 1
  for (int i = begin; i < d.width; i += 4 * kThreads) {
    float4 v = *(float4*)(m.stream + i);
    if (added >= 0) {
      const Share& share = m.block->shares[added];
      float4 got[kPieces];
      Hear<kPieces>(d.exchange + share.at + i, d.width, share.pieces, mark, got);
      v = Rounded4<T>(Plus(v, Rounded4<T>(Sum(got))));
      *(float4*)(m.stream + i) = v;
    }
    square += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
  }
#pragma unroll
  for (int o = 16; o > 0; o /= 2) square += __shfl_xor_sync(0xffffffffu, square, o);
  if (lane == 0) m.squares[warp] = square;
  All();
  square = m.squares[lane % kWarps];
#pragma unroll
  for (int o = kWarps / 2; o > 0; o /= 2) square += __shfl_xor_sync(0xffffffffu, square, o);
  const float factor = rsqrtf(square / d.width + d.epsilon);
#pragma unroll 1
  for (int i = begin; i < d.width; i += 4 * kThreads) {
    const float4 v = *(float4*)(m.stream + i), g = i == begin ? early : Load4<T>(scale, i);
    Store4<T>(m.rows, i,
              make_float4(v.x * factor * g.x, v.y * factor * g.y, v.z * factor * g.z,
                          v.w * factor * g.w));
  }
  All();
}

// sums += a row of 16 by [16][8], on tensor cores: one of the 16 rows that they take is there.
template <typename T>
__device__ __forceinline__ void Product16(float (&sums)[4], const unsigned (&row)[2], unsigned low,
                                          unsigned high) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(row[0]), "r"(0), "r"(row[1]), "r"(0), "r"(low), "r"(high));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(row[0]), "r"(0), "r"(row[1]), "r"(0), "r"(low), "r"(high));
  }
}

// Where a warp multiplies in the ring, and how many stages earlier products had.
struct Place {
  unsigned slot, parity, before;
};

// The rows of a share by its columns; what comes out is told, or written to `out`.
template <typename T>
__device__ __forceinline__ void Multiply(const Decoder& d, const Memory& m, const Ring& ring,
                                         Place& place, const Share& share, int skipped,
                                         unsigned mark, T* out) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  // Which row of four tiles of 8 by 8 this lane names. Chunks of 16 bytes lie at other places in
  // every one of eight rows, so that tiles are read from all banks.
  const int row = lane % 16;
  const unsigned tiles = ring.first + row * kRowBytes;
  const T* const start = (const T*)m.rows + skipped + lane * 2;
#pragma unroll 1
  for (int group = 0; group < share.count; group += kGroup) {
    const int units = min(kGroup, share.count - group);
#pragma unroll 1
    for (int unit = 0; unit < units; ++unit) {
      float sums[kUnit / 8][4] = {};
      const int first = FirstStage(share, group + unit, place.before);
      const T* rows = start + first * kStageRows;
#pragma unroll 1
      for (int left = Stages(share, first); left > 0; --left, rows += kWarps * kStageRows) {
        unsigned x[2][2] = {};
        if (lane < 4) {
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            x[h][0] = *(const unsigned*)(rows + 16 * h),
            x[h][1] = *(const unsigned*)(rows + 16 * h + 8);
          }
        }
        Wait(ring.full + 8 * place.slot, place.parity);
        const unsigned at = tiles + place.slot * kStageBytes;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          unsigned w[kUnit / 4];
#pragma unroll
          for (int n = 0; n < kUnit / 16; ++n) {
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                         : "=r"(w[4 * n]), "=r"(w[4 * n + 1]), "=r"(w[4 * n + 2]),
                           "=r"(w[4 * n + 3])
                         : "r"(at + h * 16 * kRowBytes + ((2 * n + lane / 16) ^ row % 8) * 16)
                         : "memory");
          }
#pragma unroll
          for (int n = 0; n < kUnit / 8; ++n) Product16<T>(sums[n], x[h], w[2 * n], w[2 * n + 1]);
        }
        __syncwarp();
        if (lane == 0) {
          asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(ring.empty + 8 * place.slot)
                       : "memory");
        }
        place.slot += kWarps;
        if (place.slot >= ring.count) place.slot -= ring.count, place.parity ^= 1;
      }
      if (lane < 4) {
#pragma unroll
        for (int n = 0; n < kUnit / 8; ++n) {
          *(float2*)(m.found + (unit * kWarps + warp) * kUnit + n * 8 + lane * 2) =
              make_float2(sums[n][0], sums[n][1]);
        }
      }
    }
    All();
    static_assert(kGroup * kUnit <= kThreads);
    if (threadIdx.x < units * kUnit) {
      const int unit = threadIdx.x / kUnit, column = threadIdx.x % kUnit;
      float total = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) total += m.found[(unit * kWarps + w) * kUnit + column];
      const int at = (share.first + (group + unit) * share.step) * kUnit + column;
      if (out != nullptr) {
        out[at] = Narrow<T>(total);
      } else {
        Tell(d.exchange + share.told + at, total, mark);
      }
    }
    if (group + kGroup < share.count) All();
  }
  place.before += share.count * share.stages;
}

__device__ __forceinline__ void BringLine(const void* at) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
}

// Brings the keys and values that this block will attend to nearer; the last block, the scales of
// the norms that come next.
template <typename T, int S>
__device__ __forceinline__ void Bring(const Decoder& d, const Item& item, int layer) {
  if (blockIdx.x == gridDim.x - 1) {
    const Layer* const l = d.layers + layer;
    const void* const after = layer + 1 < d.count ? l[1].norm1 : d.norm;
    for (int i = 64 * threadIdx.x; i < d.width; i += 64 * kThreads) {
      BringLine((const T*)l->norm2 + i);
      BringLine((const T*)after + i);
    }
  }
  const int64_t pitch = (int64_t)d.groups * S;
  const T* cache =
      (const T*)(threadIdx.x % 2 ? d.layers[layer].values : d.layers[layer].keys) + item.group * S;
#pragma unroll 1
  for (int p = item.begin + threadIdx.x / 2; p < item.end; p += kThreads / 2) {
#pragma unroll
    for (int i = 0; i < S; i += 64) BringLine(cache + p * pitch + i);
  }
}

// A head's attention to some positions of the cache.
template <typename T, int S>
__device__ __forceinline__ void Attend(const Decoder& d, const Plan& plan, const Memory& m,
                                       int layer, unsigned mark) {
  constexpr int kLanes = S / kPer;               // that share a position
  constexpr int kAtOnce = 32 / kLanes * kWarps;  // positions of a block
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int first = lane % kLanes * kPer;  // of this thread's elements
  const Item& item = m.block->item;
  const int64_t pitch = (int64_t)d.groups * S;
  const T* const keys = (const T*)d.layers[layer].keys + item.group * S + first;
  const T* const values = (const T*)d.layers[layer].values + item.group * S + first;
  // All lanes of a warp go round equally often: they add up their scores together.
  int start = item.begin + warp * (32 / kLanes), p = start + lane / kLanes;
  // What is in the cache does not wait for the query.
  uint4 key = {}, value = {};
  if (p < item.end)
    key = __ldcg((const uint4*)(keys + p * pitch)),
    value = __ldcg((const uint4*)(values + p * pitch));
  if (threadIdx.x < 3 * S / 4) {
    const int which = threadIdx.x / (S / 4), i = threadIdx.x % (S / 4) * 4;
    const Share& share = m.block->shares[kQkv];
    const int column =
        which == 0 ? item.head * S : (d.heads + (which - 1) * d.groups + item.group) * S;
    float4 got[kPieces];
    Hear<kPieces>(d.exchange + share.at + column + i, share.columns, share.pieces, mark, got);
    *(float4*)(m.query + which * S + i) = Rounded4<T>(Sum(got));
  }
  All();
  // The query and the new key are turned by their place.
  if (threadIdx.x < 2 * S) {
    const float* const from = m.query + threadIdx.x / S * S;
    const int i = threadIdx.x % S;
    const float other = i < S / 2 ? -from[i + S / 2] : from[i - S / 2];
    const float turned = Rounded<T>(Rounded<T>(from[i] * m.cos[i]) + Rounded<T>(other * m.sin[i]));
    asm volatile("bar.sync 1, %0;" ::"n"(2 * S) : "memory");
    // Exponentials are of base two.
    m.query[threadIdx.x] = threadIdx.x < S ? turned * (rsqrtf((float)S) * 1.44269504f) : turned;
  }
  All();
  float q[kPer], k[kPer], v[kPer], top = -1e30f, total = 0, mixed[kPer] = {};
#pragma unroll
  for (int c = 0; c < kPer; ++c) q[c] = m.query[first + c];
  bool own = item.last && warp == 0;  // the token itself comes last
#pragma unroll 1
  while (start < item.end || own) {
    bool seen = p < item.end;
    if (start < item.end) {
      Wide<T>(key, k);
      Wide<T>(value, v);
      start += kAtOnce, p += kAtOnce;
      if (p < item.end) {
        key = __ldcg((const uint4*)(keys + p * pitch)),
        value = __ldcg((const uint4*)(values + p * pitch));
      }
    } else {
      own = false;
      seen = lane < kLanes;
#pragma unroll
      for (int c = 0; c < kPer; ++c)
        k[c] = m.query[S + first + c], v[c] = m.query[2 * S + first + c];
      if (item.writes && seen) {
        const int64_t to = m.block->here * pitch;
#pragma unroll
        for (int c = 0; c < kPer; ++c) {
          const_cast<T*>(keys)[to + c] = Narrow<T>(k[c]);
          const_cast<T*>(values)[to + c] = Narrow<T>(v[c]);
        }
      }
    }
    float score = 0;
#pragma unroll
    for (int c = 0; c < kPer; ++c) score += q[c] * k[c];
#pragma unroll
    for (int o = kLanes / 2; o > 0; o /= 2) score += __shfl_xor_sync(0xffffffffu, score, o);
    if (!seen) score = -2e30f;  // weighs nothing, since `top` is higher
    const float higher = fmaxf(top, score), kept = exp2f(top - higher),
                weight = exp2f(score - higher);
    total = total * kept + weight;
#pragma unroll
    for (int c = 0; c < kPer; ++c) mixed[c] = mixed[c] * kept + weight * v[c];
    top = higher;
  }
  // The lanes of a warp, then the warps of the block.
  float highest = top;
#pragma unroll
  for (int o = 16; o >= kLanes; o /= 2)
    highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, o));
  const float kept = exp2f(top - highest);
  total *= kept;
#pragma unroll
  for (int c = 0; c < kPer; ++c) mixed[c] *= kept;
#pragma unroll
  for (int o = 16; o >= kLanes; o /= 2) {
    total += __shfl_xor_sync(0xffffffffu, total, o);
#pragma unroll
    for (int c = 0; c < kPer; ++c) mixed[c] += __shfl_xor_sync(0xffffffffu, mixed[c], o);
  }
  if (lane < kLanes) {
#pragma unroll
    for (int c = 0; c < kPer; c += 4) {
      *(float4*)(m.found + warp * S + first + c) =
          make_float4(mixed[c], mixed[c + 1], mixed[c + 2], mixed[c + 3]);
    }
  }
  if (lane == 0) m.tops[2 * warp] = highest, m.tops[2 * warp + 1] = total;
  All();
  if (threadIdx.x < S) {
    // Lanes 0 to 15 and 16 to 31 have the warps' tops; all get the same.
    const float of_warp = m.tops[lane % kWarps * 2];
    highest = of_warp;
#pragma unroll
    for (int o = kWarps / 2; o > 0; o /= 2)
      highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, o));
    const float share = exp2f(of_warp - highest);
    total = m.tops[lane % kWarps * 2 + 1] * share;
#pragma unroll
    for (int o = kWarps / 2; o > 0; o /= 2) total += __shfl_xor_sync(0xffffffffu, total, o);
    float sum = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w)
      sum += m.found[w * S + threadIdx.x] * __shfl_sync(0xffffffffu, share, w);
    Tell(d.exchange + plan.parts_at + (item.split * d.heads + item.head) * S + threadIdx.x, sum,
         mark);
    if (threadIdx.x < 2) {
      Tell(d.exchange + plan.tops_at + (item.head * kSplits + item.split) * 2 + threadIdx.x,
           threadIdx.x == 0 ? highest : total, mark);
    }
  }
  All();
}

// The parts of attention, put together, as what is multiplied next.
template <typename T, int S>
__device__ __forceinline__ void Together(const Decoder& d, const Plan& plan, const Memory& m,
                                         const Share& share, unsigned mark) {
#pragma unroll 1
  for (int i = 4 * threadIdx.x; i < share.stages * kStageRows; i += 4 * kThreads) {
    const int head = (share.begin + i) / S;
    // First two numbers of each split, four of two splits, then its part of the sum. Absent splits
    // tell nothing.
    constexpr int kTops = kSplits / 2;
    float4 got[kTops + kSplits];
    const float* const first = d.exchange + plan.tops_at + head * kSplits * 2;
    const float* const parts = d.exchange + plan.parts_at + share.begin + i;
    const auto at = [&](int n) -> const float* {
      if (n < kTops) return 2 * n < plan.splits ? first + 4 * n : nullptr;
      return n - kTops < plan.splits ? parts + (n - kTops) * d.heads * S : nullptr;
    };
    HearAt(at, mark, got, plan.splits % 2 ? plan.splits / 2 : -1);
    const float tops_of[kSplits] = {got[0].x, got[0].z, got[1].x, got[1].z};
    const float totals[kSplits] = {got[0].y, got[0].w, got[1].y, got[1].w};
    float top = -1e30f, total = 0;
#pragma unroll
    for (int n = 0; n < kSplits; ++n) {
      if (n < plan.splits) top = fmaxf(top, tops_of[n]);
    }
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
    for (int n = 0; n < kSplits; ++n) {
      const float kept = n < plan.splits ? exp2f(tops_of[n] - top) : 0;
      total += totals[n] * kept;
      const float4 part = got[kTops + n];
      sum = Plus(sum, make_float4(part.x * kept, part.y * kept, part.z * kept, part.w * kept));
    }
    const float by = 1 / total;
    Store4<T>(m.rows, i, make_float4(sum.x * by, sum.y * by, sum.z * by, sum.w * by));
  }
  All();
}

// What the gate lets through, as what is multiplied next.
template <typename T>
__device__ __forceinline__ void Open(const Decoder& d, const Memory& m, const Share& share,
                                     unsigned mark) {
  const Share& gate = m.block->shares[kGate];
  const auto one = [](float g, float u) {
    g = Rounded<T>(g);
    return Rounded<T>(g / (1 + __expf(-g))) * Rounded<T>(u);
  };
#pragma unroll 1
  for (int i = 4 * threadIdx.x; i < share.stages * kStageRows; i += 4 * kThreads) {
    float4 got[2 * kPieces];
    Hear<2 * kPieces>(d.exchange + gate.at + share.begin + i, d.inner, 2 * gate.pieces, mark, got);
    const float4 g = Plus(Plus(got[0], got[2]), Plus(got[4], got[6]));
    const float4 u = Plus(Plus(got[1], got[3]), Plus(got[5], got[7]));
    Store4<T>(m.rows, i, make_float4(one(g.x, u.x), one(g.y, u.y), one(g.z, u.z), one(g.w, u.w)));
  }
  All();
}

template <typename T, int S>
__global__ void __launch_bounds__(kThreads + 32, 1)
    Run(const __grid_constant__ Decoder d, const __grid_constant__ Plan plan) {
  extern __shared__ __align__(1024) char memory[];
  __shared__ __align__(8) unsigned long long barriers[2 * kSlots];
  __shared__ Block block;
  __shared__ __align__(16) float squares[kWarps], query[3 * S], tops[2 * kWarps], cos[S], sin[S];
  const int warp = threadIdx.x / 32;
  Ring ring;
  ring.first = Address(memory);
  ring.count = plan.slots;
  ring.full = Address(barriers);
  ring.empty = Address(barriers + kSlots);
  if (threadIdx.x < 2 * kSlots) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(ring.full + 8 * threadIdx.x));
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  if (threadIdx.x < kProducts) block.shares[threadIdx.x] = ShareOf(plan, threadIdx.x);
  if (threadIdx.x == 32) {
    block.here = (int)max((int64_t)0, min(*d.place, (int64_t)d.length - 1));
    block.item = ItemOf(d, plan, block.here);
  }
  __syncthreads();
  if (threadIdx.x >= kThreads) {
    if (threadIdx.x == kThreads) ReadAll(d, block, ring);
    return;
  }

  Memory m;
  m.block = &block;
  m.stream = (float*)(memory + plan.slots * kStageBytes);
  m.found = m.stream + d.width;
  m.rows = m.found + kFound;
  m.squares = squares, m.query = query, m.tops = tops, m.cos = cos, m.sin = sin;
  if (threadIdx.x < S) {
    cos[threadIdx.x] = WideOne(((const T*)d.cos)[threadIdx.x]);
    sin[threadIdx.x] = WideOne(((const T*)d.sin)[threadIdx.x]);
  }
  for (int i = 4 * threadIdx.x; i < d.width; i += 4 * kThreads)
    *(float4*)(m.stream + i) = Load4<T>(d.x, i);
  All();

  Place at = {(unsigned)warp, 0, 0};
  int layer = 0, product = kQkv;
#pragma unroll 1
  while (true) {
    const Share& share = block.shares[product];
    const unsigned mark = Mark(layer);
    if (product == kMix) {
      if (block.item.there) Attend<T, S>(d, plan, m, layer, mark);
      if (share.count > 0) Together<T, S>(d, plan, m, share, mark);
    } else if (product == kDown) {
      if (share.count > 0) Open<T>(d, m, share, mark);
    } else {
      const Layer& l = d.layers[product == kHead ? 0 : layer];
      const void* scale = product == kQkv ? l.norm1 : product == kGate ? l.norm2 : d.norm;
      if (product == kQkv) Bring<T, S>(d, block.item, layer);
      const int added = product == kGate ? kMix : layer == 0 ? -1 : kDown;
      Norm<T>(d, m, added, product == kGate ? mark : Mark(layer + 2), scale);
    }
    if (product == kHead && d.vocabulary == 0) break;
    if (share.count > 0) {
      const int skipped = product == kMix || product == kDown ? 0 : share.begin;
      Multiply<T>(d, m, ring, at, share, skipped, mark, product == kHead ? (T*)d.out : nullptr);
    }
    if (product == kHead) return;
    if (product == kDown) {
      product = ++layer < d.count ? kQkv : kHead;
    } else {
      ++product;
    }
  }
  if (blockIdx.x == 0) {
    for (int i = threadIdx.x; i < d.width; i += kThreads) ((T*)d.out)[i] = Narrow<T>(m.stream[i]);
  }
}

// Pieces so that no block has much more to read than others.
Product Cut(int inner, int columns, int blocks, int& before) {
  const int units = columns / kUnit, stages = inner / kStageRows;
  const auto time = [&](int pieces) {
    const int at_once = blocks / pieces;
    return (units + at_once - 1) / at_once * ((stages + pieces - 1) / pieces);
  };
  Product p = {inner, columns, 1, (blocks - before % blocks) % blocks, 0};
  for (int n = 2; n <= kPieces; ++n) {
    if (blocks % n == 0 && time(n) < time(p.pieces)) p.pieces = n;
  }
  before += units * p.pieces;
  return p;
}

template <typename T, int S>
cudaError_t Start(const Decoder& d, cudaStream_t stream) {
  auto kernel = Run<T, S>;
  int device = 0, blocks = 0, most = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&blocks, cudaDevAttrMultiProcessorCount, device);
  }
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  }
  if (error != cudaSuccess) return error;
  Plan plan = {};
  plan.blocks = blocks;
  plan.splits = max(1, min(kSplits, blocks / d.heads));
  const int attended = d.heads * S;
  int before = 0;
  plan.products[kQkv] = Cut(d.width, attended + 2 * d.groups * S, blocks, before);
  plan.products[kMix] = Cut(attended, d.width, blocks, before);
  plan.products[kGate] = Cut(d.width, 2 * d.inner, blocks, before);
  plan.products[kDown] = Cut(d.inner, d.width, blocks, before);
  plan.products[kHead] = {d.width, d.vocabulary, 1, 0, 0};
  plan.room = d.width;
  int64_t used = 0;
  for (int i = 0; i < kHead; ++i) {
    Product& p = plan.products[i];
    plan.room = max(plan.room, p.inner / p.pieces + kStageRows);
    p.at = (int)used;
    used += p.pieces * p.columns;
  }
  plan.parts_at = (int)used;
  used += plan.splits * attended;
  plan.tops_at = (int)used;
  used += d.heads * kSplits * 2;
  const Product& gate = plan.products[kGate];
  // All that there is: two of these never share a multiprocessor.
  const int given = most - 6144;  // what is not dynamic
  const int rest = given - 4 * (d.width + kFound) - 2 * plan.room;
  plan.slots = min(kDepth, rest / (kWarps * kStageBytes)) * kWarps;
  // A share of the gate for every block keeps them within a layer of one another.
  const bool all = gate.columns / kUnit >= blocks / gate.pieces;
  if (used > d.exchange_size || !all || d.heads > blocks || plan.slots < 1) {
    return cudaErrorInvalidConfiguration;
  }
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, given);
  if (error != cudaSuccess) return error;
  void* arguments[] = {const_cast<Decoder*>(&d), &plan};
  return cudaLaunchCooperativeKernel(kernel, dim3(blocks), dim3(kThreads + 32), arguments, given,
                                     stream);
}

template <typename T>
cudaError_t StartSize(const Decoder& d, cudaStream_t stream) {
  if (d.size == 64) return Start<T, 64>(d, stream);
  if (d.size == 128) return Start<T, 128>(d, stream);
  return cudaErrorInvalidValue;
}

}  // namespace

// How a weight [rows][columns] is read: kStageRows by kUnit at a time.
const char* Describe(CUtensorMap& map, const void* weight, int rows, int columns) {
  static const auto encode = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult state;
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault,
                                     &state);
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found);
  }();
  if (encode == nullptr) return "the driver cannot describe tensors";
  const cuuint64_t sizes[] = {(cuuint64_t)columns, (cuuint64_t)rows},
                   pitch[] = {2 * (cuuint64_t)columns};
  const cuuint32_t box[] = {kUnit, kStageRows}, step[] = {1, 1};
  const CUresult result =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 2, const_cast<void*>(weight), sizes, pitch, box,
             step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? nullptr : "a weight cannot be described";
}

const char* Launch(const Decoder& decoder, bool half, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  const cudaError_t error =
      half ? StartSize<__half>(decoder, on) : StartSize<__nv_bfloat16>(decoder, on);
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

}  // namespace bireme
