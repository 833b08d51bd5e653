// Elementwise functions and sums of rows in one pass over memory, for the cold tier.
//
// A program (backends/fused.py) is a list of instructions on registers, each a short piece of the
// arrays: what one instruction writes the next one reads from the cache, and only inputs and results
// are in memory. The pieces are shared among threads. Sums over columns are taken in parts that do
// not depend on the number of threads, so that a step repeats to the last bit.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "draws.h"
#include "functions.h"
#include "scratch.h"
#include "share.h"
#include "tanh.h"
#include "vectors.h"

namespace bireme {
namespace {

// The order of the names in backends/fused.py.
enum Operation {
  kCopy, kNegate, kAbsolute, kSquareRoot, kExp, kLog, kTanh, kErf, kRound, kFloor, kCeil, kSign,
  kExpm1, kLog1p, kSin, kCos,
  kAdd, kSubtract, kMultiply, kDivide, kMaximum, kMinimum, kPower,
  kLess, kLessEqual, kGreater, kGreaterEqual, kEqual, kNotEqual,
  kAddWords, kMultiplyWords, kXor, kAnd, kOr, kShiftRight, kLessWords, kEqualWords,
  kNot, kSelect, kMaskToFloat, kWordToFloat, kPosition, kLoadMask, kStoreMask,
  kLowWord, kLongToFloat, kDoubleToFloat, kMultiplyDoubles, kKeyWord, kDraws,
  kRowSum, kRowMaximum, kRowMinimum, kColumnSum,
};

// Where a register is.
enum Place {
  kScratch,      // a piece
  kScalar,       // one number for all
  kRowScalar,    // one number for each row, made on the way
  kInput,        // an array of the domain's size
  kInputRow,     // a row that is the same for all rows
  kInputColumn,  // one number for each row
  kOutput, kOutputColumn,
  kColumns,      // a sum of rows
};

struct Register {
  int32_t place;
  int32_t index;    // which scratch piece, scalar, input, output
  int32_t bytes;    // of an element
  int32_t sum;      // which of the sums of rows
};

struct Instruction {
  int32_t operation, result, a, b, c;
  int32_t level;  // 0: once, 1: for each row, 2: for each piece
};

struct Header {
  int64_t rows, width;  // a piece is a row; or, of flat arrays, some of `width` elements
  int64_t by_rows;
  int64_t registers, instructions, scratch, scalars, columns;
  int64_t work;  // elements times instructions
};

constexpr int64_t kPiece = 1024;
constexpr int64_t kJob = 1 << 14;         // elements that a thread takes at once, about
constexpr int64_t kAlone = 1 << 18;       // work that is not worth another thread
constexpr int64_t kColumnParts = 32;      // of a sum over columns, at most

template <typename F>
inline Vec EachLane(Vec x, const F& f) {
  alignas(64) float lanes[kLanes];
  Store(lanes, x);
  for (int i = 0; i < kLanes; ++i) lanes[i] = f(lanes[i]);
  return Load(lanes);
}

// An operand: numbers one after the other, or one for all.
struct Operand {
  const float* from;
  bool single;
};

// The rest of a piece that does not fill a register, copied so that nothing beyond it is touched.
struct Rest {
  Rest(const float* from, int64_t count) { std::memcpy(lanes, from, count * sizeof(float)); }
  alignas(64) float lanes[kLanes] = {};
};

template <typename F>
inline __attribute__((always_inline)) void One(Operand a, float* to, int64_t count, const F& f) {
  if (a.single) {  // then the result is single, or a piece of equal numbers
    const Vec y = f(Splat(*a.from));
    if (count == 1) {
      *to = y[0];
      return;
    }
    int64_t c = 0;
    for (; c + kLanes <= count; c += kLanes) Store(to + c, y);
    for (; c < count; ++c) to[c] = y[0];
    return;
  }
  int64_t c = 0;
  for (; c + kLanes <= count; c += kLanes) Store(to + c, f(Load(a.from + c)));
  if (c == count) return;
  const Vec y = f(Load(Rest(a.from + c, count - c).lanes));
  std::memcpy(to + c, &y, (count - c) * sizeof(float));
}

template <bool kSingleA, bool kSingleB, typename F>
inline __attribute__((always_inline)) void Pairs(const float* a, const float* b, float* to,
                                                 int64_t count, const F& f) {
  const Vec one_a = Splat(*a), one_b = Splat(*b);
  int64_t c = 0;
  for (; c + kLanes <= count; c += kLanes)
    Store(to + c, f(kSingleA ? one_a : Load(a + c), kSingleB ? one_b : Load(b + c)));
  if (c == count) return;
  const Vec x = kSingleA ? one_a : Load(Rest(a + c, count - c).lanes);
  const Vec y = f(x, kSingleB ? one_b : Load(Rest(b + c, count - c).lanes));
  std::memcpy(to + c, &y, (count - c) * sizeof(float));
}

template <typename F>
inline __attribute__((always_inline)) void Two(Operand a, Operand b, float* to, int64_t count,
                                               const F& f) {
  if (a.single && b.single) return Pairs<true, true>(a.from, b.from, to, count, f);
  if (a.single) return Pairs<true, false>(a.from, b.from, to, count, f);
  if (b.single) return Pairs<false, true>(a.from, b.from, to, count, f);
  Pairs<false, false>(a.from, b.from, to, count, f);
}

template <typename Step>
inline float Reduced(const float* from, int64_t count, float start, const Step& step) {
  Vec found = Splat(start);
  int64_t c = 0;
  for (; c + kLanes <= count; c += kLanes) found = step(found, Load(from + c));
  if (c < count) {
    Rest rest(from + c, count - c);
    for (int64_t i = count - c; i < kLanes; ++i) rest.lanes[i] = start;
    found = step(found, Load(rest.lanes));
  }
  for (int width = kLanes / 2; width > 0; width /= 2) {
    Vec other{};
    for (int i = 0; i < width; ++i) other[i] = found[i + width];
    found = step(found, other);
  }
  return found[0];
}

inline Vec Larger(Vec x, Vec y) { return x > y || x != x ? x : y; }   // a NaN stays
inline Vec Smaller(Vec x, Vec y) { return x < y || x != x ? x : y; }

template <typename T>
inline T Get(Operand a) {
  T value;
  std::memcpy(&value, a.from, sizeof(T));
  return value;
}

template <typename T>
inline void Put(float* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

// One of the three words of a key (key_words in ops/random_bits.py): `which` + 4 `word`.
uint32_t KeyWord(uint64_t seed, uint64_t offset, uint32_t number) {
  const auto remix = [](uint32_t x) {
    x = (x ^ (x >> 17)) * 0xED5AD4BBu;
    x = (x ^ (x >> 11)) * 0xAC4C1B51u;
    x = (x ^ (x >> 15)) * 0x31848BABu;
    return x ^ (x >> 14);
  };
  constexpr uint32_t kStep = 0x9E3779B9u;
  const uint32_t which = number & 3, word = number >> 2;
  const uint32_t parts[] = {static_cast<uint32_t>(seed >> 32), static_cast<uint32_t>(offset),
                            static_cast<uint32_t>(offset >> 32), word + 1, 0x85EBCA6Bu, 0xC2B2AE35u};
  uint32_t k = remix(static_cast<uint32_t>(seed) + kStep);
  for (uint32_t i = 0; i < 4 + which; ++i) k = remix((k ^ parts[i]) + kStep);
  return k;
}

// One instruction on `count` elements, the first of which is number `first` of the domain.
void Do(int32_t operation, Operand a, Operand b, Operand c, float* to, int64_t count,
        int64_t first) {
  switch (operation) {
    case kCopy: return One(a, to, count, [](Vec x) { return x; });
    case kNegate: return One(a, to, count, [](Vec x) { return -x; });
    case kAbsolute: return One(a, to, count, [](Vec x) { return (Vec)((Ints)x & 0x7fffffff); });
    case kSquareRoot: return One(a, to, count, [](Vec x) {
      return EachLane(x, [](float v) { return __builtin_sqrtf(v); });
    });
    case kExp: return One(a, to, count, WholeExp);
    case kLog: return One(a, to, count, Log);
    case kTanh: return One(a, to, count, Tanh);
    case kErf: return One(a, to, count, Erf);
    case kRound: return One(a, to, count, [](Vec x) {
      return EachLane(x, [](float v) { return std::nearbyint(v); });
    });
    case kFloor: return One(a, to, count, [](Vec x) {
      return EachLane(x, [](float v) { return std::floor(v); });
    });
    case kCeil: return One(a, to, count, [](Vec x) {
      return EachLane(x, [](float v) { return std::ceil(v); });
    });
    case kSign: return One(a, to, count, [](Vec x) {
      return x > 0.0f ? Splat(1.0f) : (x < 0.0f ? Splat(-1.0f) : (x == 0.0f ? Vec{} : x));
    });
    case kExpm1: return One(a, to, count, Expm1);
    case kLog1p: return One(a, to, count, Log1p);
    case kSin: return One(a, to, count, [](Vec x) {
      return EachLane(x, [](float v) { return std::sin(v); });
    });
    case kCos: return One(a, to, count, [](Vec x) {
      return EachLane(x, [](float v) { return std::cos(v); });
    });
    case kAdd: return Two(a, b, to, count, [](Vec x, Vec y) { return x + y; });
    case kSubtract: return Two(a, b, to, count, [](Vec x, Vec y) { return x - y; });
    case kMultiply: return Two(a, b, to, count, [](Vec x, Vec y) { return x * y; });
    case kDivide: return Two(a, b, to, count, [](Vec x, Vec y) { return x / y; });
    case kMaximum: return Two(a, b, to, count, Larger);
    case kMinimum: return Two(a, b, to, count, Smaller);
    case kPower: return Two(a, b, to, count, [](Vec x, Vec y) {
      for (int i = 0; i < kLanes; ++i) x[i] = std::pow(x[i], y[i]);
      return x;
    });
    case kLess: return Two(a, b, to, count, [](Vec x, Vec y) { return (Vec)(x < y); });
    case kLessEqual: return Two(a, b, to, count, [](Vec x, Vec y) { return (Vec)(x <= y); });
    case kGreater: return Two(a, b, to, count, [](Vec x, Vec y) { return (Vec)(x > y); });
    case kGreaterEqual: return Two(a, b, to, count, [](Vec x, Vec y) { return (Vec)(x >= y); });
    case kEqual: return Two(a, b, to, count, [](Vec x, Vec y) { return (Vec)(x == y); });
    case kNotEqual: return Two(a, b, to, count, [](Vec x, Vec y) { return (Vec)(x != y); });
    case kAddWords: return Two(a, b, to, count, [](Vec x, Vec y) { return (Vec)((Words)x + (Words)y); });
    case kMultiplyWords:
      return Two(a, b, to, count, [](Vec x, Vec y) { return (Vec)((Words)x * (Words)y); });
    case kXor: return Two(a, b, to, count, [](Vec x, Vec y) { return (Vec)((Words)x ^ (Words)y); });
    case kAnd: return Two(a, b, to, count, [](Vec x, Vec y) { return (Vec)((Words)x & (Words)y); });
    case kOr: return Two(a, b, to, count, [](Vec x, Vec y) { return (Vec)((Words)x | (Words)y); });
    case kShiftRight:
      return Two(a, b, to, count, [](Vec x, Vec y) { return (Vec)((Words)x >> (Words)y); });
    case kLessWords:
      return Two(a, b, to, count, [](Vec x, Vec y) { return (Vec)((Words)x < (Words)y); });
    case kEqualWords:
      return Two(a, b, to, count, [](Vec x, Vec y) { return (Vec)((Words)x == (Words)y); });
    case kNot: return One(a, to, count, [](Vec x) { return (Vec)~(Words)x; });
    case kMaskToFloat: return One(a, to, count, [](Vec x) { return (Vec)((Ints)x & (Ints)Splat(1.0f)); });
    case kWordToFloat: return One(a, to, count, [](Vec x) {
      return __builtin_convertvector((Words)x, Vec);
    });
    case kSelect: {
      int64_t i = 0;
      const Vec one_a = Splat(*a.from), one_b = Splat(*b.from), one_c = Splat(*c.from);
      for (; i + kLanes <= count; i += kLanes) {
        const Vec mask = a.single ? one_a : Load(a.from + i);
        Store(to + i, (Ints)mask ? (b.single ? one_b : Load(b.from + i))
                                 : (c.single ? one_c : Load(c.from + i)));
      }
      for (; i < count; ++i) {
        int32_t mask;
        std::memcpy(&mask, a.from + (a.single ? 0 : i), 4);
        to[i] = mask ? b.from[b.single ? 0 : i] : c.from[c.single ? 0 : i];
      }
      return;
    }
    case kPosition: {
      uint32_t* words = reinterpret_cast<uint32_t*>(to);
      for (int64_t i = 0; i < count; ++i) words[i] = static_cast<uint32_t>(first + i);
      return;
    }
    case kLoadMask: {
      const uint8_t* from = reinterpret_cast<const uint8_t*>(a.from);
      uint32_t* words = reinterpret_cast<uint32_t*>(to);
      for (int64_t i = 0; i < count; ++i) words[i] = from[a.single ? 0 : i] ? ~0u : 0u;
      return;
    }
    case kStoreMask: {
      uint8_t* bytes = reinterpret_cast<uint8_t*>(to);
      const uint32_t* words = reinterpret_cast<const uint32_t*>(a.from);
      for (int64_t i = 0; i < count; ++i) bytes[i] = words[a.single ? 0 : i] & 1;
      return;
    }
    // Of single numbers only.
    case kLowWord: return Put(to, static_cast<uint32_t>(Get<uint64_t>(a)));
    case kLongToFloat: return Put(to, static_cast<float>(Get<int64_t>(a)));
    case kDoubleToFloat: return Put(to, static_cast<float>(Get<double>(a)));
    case kMultiplyDoubles: return Put(to, Get<double>(a) * Get<double>(b));
    case kKeyWord: return Put(to, KeyWord(Get<uint64_t>(a), Get<uint64_t>(b), Get<uint32_t>(c)));
    case kDraws: {
      const uint32_t key[] = {Get<uint32_t>(a), Get<uint32_t>(b), Get<uint32_t>(c)};
      for (int64_t i = 0; i < count; i += kLanes) {
        const Bits draws = Drawn(key, static_cast<uint32_t>(first + i));
        std::memcpy(to + i, &draws, std::min<int64_t>(kLanes, count - i) * 4);
      }
      return;
    }
  }
}

class Program {
 public:
  Program(const Header& header, const Register* registers, const Instruction* instructions,
          void* const* inputs, void* const* outputs, char* scalars)
      : h_(header), registers_(registers), instructions_(instructions), inputs_(inputs),
        outputs_(outputs), scalars_(scalars) {}

  void Run(int64_t threads) {
    Once();
    const int64_t total = h_.rows * h_.width;
    int64_t jobs, each;  // in rows or elements
    if (h_.by_rows) {
      each = std::max<int64_t>(1, kJob / h_.width);
      if (h_.columns) each = std::max(each, CeilDiv(h_.rows, kColumnParts));
      jobs = CeilDiv(h_.rows, each);
    } else {
      each = kJob;
      jobs = CeilDiv(total, each);
    }
    const int64_t sums = h_.columns * h_.width;
    std::vector<float> parts(sums * jobs);  // of zeros
    const auto work = [&](int64_t job) {
      Part(job * each, std::min(h_.by_rows ? h_.rows : total, (job + 1) * each),
           parts.data() + job * sums);
    };
    if (h_.work < kAlone) {
      for (int64_t job = 0; job < jobs; ++job) work(job);
    } else {
      Share(threads, jobs, work);
    }
    for (int64_t r = 0; r < h_.registers; ++r) {
      if (registers_[r].place != kColumns) continue;
      float* to = static_cast<float*>(outputs_[registers_[r].index]);
      const int64_t at = registers_[r].sum * h_.width;
      std::fill(to, to + h_.width, 0.0f);
      for (int64_t job = 0; job < jobs; ++job) {
        const float* part = parts.data() + job * sums + at;
        for (int64_t i = 0; i < h_.width; ++i) to[i] += part[i];
      }
    }
  }

 private:
  // What is one number for all.
  void Once() {
    for (int64_t i = 0; i < h_.instructions; ++i) {
      const Instruction& ins = instructions_[i];
      if (ins.level != 0) continue;
      Do(ins.operation, Single(ins.a), Single(ins.b), Single(ins.c),
         reinterpret_cast<float*>(Fixed(ins.result)), 1, 0);
    }
  }

  Operand Single(int32_t r) const {
    return {reinterpret_cast<const float*>(Fixed(r < 0 ? 0 : r)), true};
  }

  // A scalar's place; that of a scalar input or output.
  char* Fixed(int32_t r) const {
    const Register& reg = registers_[r];
    if (reg.place == kScalar) return scalars_ + reg.index * 8;
    if (reg.place == kOutput) return static_cast<char*>(outputs_[reg.index]);
    if (reg.place == kInput) return static_cast<char*>(inputs_[reg.index]);
    return scalars_;
  }

  void Part(int64_t first, int64_t last, float* sums) {
    const int64_t piece = h_.by_rows ? h_.width : kPiece;
    const int64_t room = CeilDiv(piece, 16) * 16;
    std::vector<char*> at(h_.registers);
    const int64_t sizes[] = {h_.scratch * room, h_.registers * 16};  // read by Take
    Scratch scratch(sizes);
    float *pieces = scratch.Take(), *row_scalars = scratch.Take();
    for (int64_t r = 0; r < h_.registers; ++r) {
      const Register& reg = registers_[r];
      switch (reg.place) {
        case kScratch: at[r] = reinterpret_cast<char*>(pieces + reg.index * room); break;
        case kRowScalar: at[r] = reinterpret_cast<char*>(row_scalars + r * 16); break;
        case kScalar: at[r] = scalars_ + reg.index * 8; break;
        case kInputRow: at[r] = static_cast<char*>(inputs_[reg.index]); break;
        case kColumns: at[r] = reinterpret_cast<char*>(sums + reg.sum * h_.width); break;
        default: break;
      }
    }
    for (int64_t begin = first; begin < last; begin += h_.by_rows ? 1 : piece) {
      const int64_t element = h_.by_rows ? begin * h_.width : begin;
      const int64_t count = h_.by_rows ? h_.width : std::min(piece, last - begin);
      for (int64_t r = 0; r < h_.registers; ++r) {
        const Register& reg = registers_[r];
        if (reg.place == kInput) at[r] = static_cast<char*>(inputs_[reg.index]) + element * reg.bytes;
        if (reg.place == kOutput) at[r] = static_cast<char*>(outputs_[reg.index]) + element * reg.bytes;
        if (reg.place == kInputColumn) at[r] = static_cast<char*>(inputs_[reg.index]) + begin * reg.bytes;
        if (reg.place == kOutputColumn) at[r] = static_cast<char*>(outputs_[reg.index]) + begin * reg.bytes;
      }
      for (int64_t i = 0; i < h_.instructions; ++i) {
        const Instruction& ins = instructions_[i];
        if (ins.level != 0) Step(ins, at.data(), count, element);
      }
    }
  }

  bool IsSingle(int32_t r) const {
    const int32_t place = registers_[r].place;
    return place == kScalar || place == kRowScalar || place == kInputColumn || place == kOutputColumn;
  }

  void Step(const Instruction& ins, char* const* at, int64_t count, int64_t element) const {
    const auto operand = [&](int32_t r) -> Operand {
      if (r < 0) r = ins.a < 0 ? ins.result : ins.a;
      return {reinterpret_cast<const float*>(at[r]), IsSingle(r)};
    };
    float* to = reinterpret_cast<float*>(at[ins.result]);
    const float* from = ins.a < 0 ? nullptr : reinterpret_cast<const float*>(at[ins.a]);
    switch (ins.operation) {
      case kRowSum:
        *to = Reduced(from, count, 0.0f, [](Vec x, Vec y) { return x + y; });
        return;
      case kRowMaximum:
        *to = Reduced(from, count, -std::numeric_limits<float>::infinity(), Larger);
        return;
      case kRowMinimum:
        *to = Reduced(from, count, std::numeric_limits<float>::infinity(), Smaller);
        return;
      case kColumnSum:
        return Two({to, false}, operand(ins.a), to, count, [](Vec x, Vec y) { return x + y; });
    }
    Do(ins.operation, operand(ins.a), operand(ins.b), operand(ins.c), to,
       ins.level == 1 ? 1 : count, element);
  }

  const Header& h_;
  const Register* registers_;
  const Instruction* instructions_;
  void* const* inputs_;
  void* const* outputs_;
  char* scalars_;
};

}  // namespace
}  // namespace bireme

// Runs a program. `scalars` has eight bytes for each single number: those that are given, then room.
extern "C" void bireme_run_fused(const void* header, const void* registers,
                                 const void* instructions, void* const* inputs,
                                 void* const* outputs, void* scalars, int64_t threads) {
  bireme::Program(*static_cast<const bireme::Header*>(header),
                  static_cast<const bireme::Register*>(registers),
                  static_cast<const bireme::Instruction*>(instructions), inputs, outputs,
                  static_cast<char*>(scalars))
      .Run(threads);
}
