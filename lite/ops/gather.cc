// Taking and putting slices at places that are known at run time, in XLA's general form; sorting.
#include <initializer_list>

#include "common.h"

namespace lite {

// The dimension numbers of XLA's gather and scatter. attrs: how places outside are treated (0: left
// out, 1: moved inside), then lists with their lengths before them: the axes of the result (or
// updates) that are a window's, the axes of x that a window lacks, those that go along with axes of
// the indices (and these), the axes of x that the numbers of an index are for, and a window's size.
struct Spots {
  int64_t lists[6][kMaxRank];
  int sizes[6];
  bool clip;
  enum { kWindow, kLacking, kBatch, kIndexBatch, kMap, kSize };

  const char* read(const Node& n, const Tensor& x, const Tensor& index, const Tensor& moved) {
    NEED(within(n, 0, 0, 1), "attributes");
    clip = n.attrs[0];
    int64_t at = 1;
    for (int l = 0; l < 6; l++) {
      NEED(within(n, at, 0, kMaxRank), "attributes");
      sizes[l] = static_cast<int>(n.attrs[at++]);
      int64_t limit = l == kWindow ? moved.rank : l == kIndexBatch ? index.rank - 1 : x.rank;
      for (int i = 0; i < sizes[l]; i++, at++) {
        NEED(l == kSize ? within(n, at, 0, x.dims[i < x.rank ? i : 0])
                        : within(n, at, 0, limit - 1),
             "attributes");
        lists[l][i] = n.attrs[at];
      }
    }
    NEED(at == n.attrs.size && index.rank >= 1 && is_whole(index), "attributes");
    NEED(sizes[kSize] == x.rank && sizes[kBatch] == sizes[kIndexBatch] &&
             sizes[kMap] == index.dims[index.rank - 1] &&
             moved.rank == index.rank - 1 + sizes[kWindow] &&
             sizes[kWindow] + sizes[kLacking] + sizes[kBatch] == x.rank,
         "ranks do not fit");
    int in_window = 0, in_index = 0;
    bool lacks[kMaxRank] = {};
    for (int l : {kLacking, kBatch})
      for (int i = 0; i < sizes[l]; i++) {
        NEED(!lacks[lists[l][i]] && lists[kSize][lists[l][i]] <= 1, "an axis is there twice");
        lacks[lists[l][i]] = true;
      }
    int64_t window[kMaxRank];
    for (int i = 0; i < x.rank; i++)
      if (!lacks[i]) window[in_window++] = lists[kSize][i];
    for (int i = 1; i < sizes[kWindow]; i++)
      NEED(lists[kWindow][i] > lists[kWindow][i - 1], "axes are out of order");
    for (int i = 0, w = 0; i < moved.rank; i++) {
      bool of_window = w < sizes[kWindow] && lists[kWindow][w] == i;
      NEED(moved.dims[i] == (of_window ? window[w] : index.dims[in_index]), "shapes do not fit");
      of_window ? w++ : in_index++;
    }
    for (int i = 0; i < sizes[kBatch]; i++)
      NEED(index.dims[lists[kIndexBatch][i]] <= x.dims[lists[kBatch][i]], "batches do not fit");
    return nullptr;
  }

  // f(first element of the window in x, or -1 if it lies outside; its first in `moved`).
  template <class F>
  void each(const Tensor& x, const Tensor& index, const Tensor& moved, F&& f) const {
    int64_t own[kMaxRank], outer[kMaxRank], lead = index.product(0, index.rank - 1);
    int64_t count = index.dims[index.rank - 1];
    strides_of(x, own);
    strides_of(moved, outer);
    int64_t steps[kMaxRank];
    for (int i = 0, w = 0, k = 0; i < moved.rank; i++) {
      if (w < sizes[kWindow] && lists[kWindow][w] == i) w++;
      else steps[k++] = outer[i];
    }
    for (int64_t at = 0; at < lead; at++) {
      int64_t places[kMaxRank], rest = at, to = 0, from = 0;
      for (int i = index.rank - 2; i >= 0; i--) {
        places[i] = rest % index.dims[i];
        rest /= index.dims[i];
        to += places[i] * steps[i];
      }
      bool inside = true;
      for (int i = 0; i < sizes[kMap]; i++) {
        int64_t axis = lists[kMap][i], room = x.dims[axis] - lists[kSize][axis];
        int64_t place = whole(index, at * count + i);
        if (clip) place = larger(0, smaller(place, room));
        inside &= place >= 0 && place <= room;
        if (inside) from += place * own[axis];
      }
      for (int i = 0; i < sizes[kBatch]; i++)
        from += places[lists[kIndexBatch][i]] * own[lists[kBatch][i]];
      f(inside ? from : -1, to);
    }
  }

  // The sizes of a window, its steps in x and in `moved`.
  int window(const Tensor& x, const Tensor& moved, int64_t* dims, int64_t* in_x,
             int64_t* in_moved) const {
    int64_t own[kMaxRank], outer[kMaxRank];
    strides_of(x, own);
    strides_of(moved, outer);
    bool lacks[kMaxRank] = {};
    for (int l : {kLacking, kBatch})
      for (int i = 0; i < sizes[l]; i++) lacks[lists[l][i]] = true;
    int r = 0;
    for (int i = 0; i < x.rank; i++) {
      if (lacks[i]) continue;
      dims[r] = lists[kSize][i], in_x[r] = own[i], in_moved[r] = outer[lists[kWindow][r]];
      r++;
    }
    return r;
  }
};

static const char* no_axis_twice(const Spots& s) {
  unsigned seen = 0;
  for (int l : {Spots::kMap, Spots::kBatch})
    for (int i = 0; i < s.sizes[l]; i++) {
      NEED(!(seen >> s.lists[l][i] & 1), "an axis is there twice");
      seen |= 1u << s.lists[l][i];
    }
  return nullptr;
}

// gather(x, index[..., k]); numbers[0] is what stands for places outside.
const char* check_gather(Node& n, int) {
  TRY(arity(n, 2, 2, 1));
  NEED(n.input(0)->type == n.output()->type && n.numbers.size == 1, "types do not fit");
  Spots s;
  TRY(s.read(n, *n.input(0), *n.input(1), *n.output()));
  for (int i = 0; i < n.input(0)->rank; i++)
    NEED(s.lists[Spots::kSize][i] <= n.input(0)->dims[i], "the window is too large");
  return no_axis_twice(s);
}

void run_gather(Node& n, int) {
  const Tensor &x = *n.input(0), &index = *n.input(1), &y = *n.output();
  if (!y.count) return;
  Spots s;
  s.read(n, x, index, y);
  int64_t dims[kMaxRank], in_x[kMaxRank], in_y[kMaxRank], size = type_size(y.type);
  int rank = s.window(x, y, dims, in_x, in_y);
  const int64_t none[kMaxRank] = {};
  double given = n.numbers[0];
  char outside[8] = {};
  if (y.type == BL_FLOAT32) *reinterpret_cast<float*>(outside) = static_cast<float>(given);
  else if (y.type == BL_FLOAT64) memcpy(outside, &given, 8);
  else {
    int64_t number = given >= 9.2e18 ? INT64_MAX : given <= -9.2e18 ? INT64_MIN
                                                 : static_cast<int64_t>(given);
    memcpy(outside, &number, 8);
  }
  s.each(x, index, y, [&](int64_t from, int64_t to) {
    if (from >= 0) copy_strided(size, rank, dims, x.data + from * size, in_x, y.data + to * size, in_y);
    else copy_strided(size, rank, dims, outside, none, y.data + to * size, in_y);
  });
}

enum { kPut, kPutSum, kPutProduct, kPutMin, kPutMax };

// scatter(x, index[..., k], updates).
const char* check_scatter(Node& n, int kind) {
  TRY(arity(n, 3, 3, 1));
  const Tensor &x = *n.input(0), &u = *n.input(2), &y = *n.output();
  NEED(same_shape(x, y) && x.type == y.type && u.type == y.type, "types or shapes do not fit");
  NEED(kind == kPut || (x.type >= BL_INT32 && x.type != BL_UINT32), "types do not fit");
  Spots s;
  TRY(s.read(n, x, *n.input(1), u));
  for (int i = 0; i < x.rank; i++)
    NEED(s.lists[Spots::kSize][i] <= x.dims[i], "the window is too large");
  return no_axis_twice(s);
}

template <class T, class U>
static void combine(int kind, int rank, const int64_t* dims, const T* from, const int64_t* fs, T* to,
                    const int64_t* ts) {
  int64_t count = 1;
  for (int i = 0; i < rank; i++) count *= dims[i];
  for (int64_t k = 0; k < count; k++) {
    int64_t rest = k, a = 0, b = 0;
    for (int i = rank - 1; i >= 0; i--) {
      a += rest % dims[i] * fs[i];
      b += rest % dims[i] * ts[i];
      rest /= dims[i];
    }
    T u = from[a], &x = to[b];
    switch (kind) {
      case kPutSum: x = static_cast<T>(static_cast<U>(x) + static_cast<U>(u)); break;
      case kPutProduct: x = static_cast<T>(static_cast<U>(x) * static_cast<U>(u)); break;
      case kPutMin: x = u < x || u != u ? u : x; break;
      default: x = u > x || u != u ? u : x;
    }
  }
}

void run_scatter(Node& n, int kind) {
  const Tensor &x = *n.input(0), &index = *n.input(1), &u = *n.input(2), &y = *n.output();
  if (!y.count) return;
  memcpy(y.data, x.data, y.bytes());
  Spots s;
  s.read(n, x, index, u);
  int64_t dims[kMaxRank], in_x[kMaxRank], in_u[kMaxRank], size = type_size(y.type);
  int rank = s.window(x, u, dims, in_x, in_u);
  s.each(x, index, u, [&](int64_t to, int64_t from) {
    if (to < 0) return;
    const char* a = u.data + from * size;
    char* b = y.data + to * size;
    if (kind == kPut) return copy_strided(size, rank, dims, a, in_u, b, in_x);
    switch (y.type) {
      case BL_FLOAT32:
        return combine<float, float>(kind, rank, dims, reinterpret_cast<const float*>(a), in_u,
                                     reinterpret_cast<float*>(b), in_x);
      case BL_FLOAT64:
        return combine<double, double>(kind, rank, dims, reinterpret_cast<const double*>(a), in_u,
                                       reinterpret_cast<double*>(b), in_x);
      case BL_INT32:
        return combine<int32_t, uint32_t>(kind, rank, dims, reinterpret_cast<const int32_t*>(a),
                                          in_u, reinterpret_cast<int32_t*>(b), in_x);
      default:
        return combine<int64_t, uint64_t>(kind, rank, dims, reinterpret_cast<const int64_t*>(a),
                                          in_u, reinterpret_cast<int64_t*>(b), in_x);
    }
  });
}

// --- sorting -------------------------------------------------------------------------------------

// sort(keys, others...) along attrs[0], upwards, NaN last; equal ones stay in order. With kind 1:
// the largest (first result) and their places (second) along the last axis.
const char* check_sort(Node& n, int largest) {
  if (largest) {
    TRY(arity(n, 1, 1, 2));
    const Tensor &x = *n.input(0), &y = *n.output(), &at = *n.output(1);
    NEED(x.rank >= 1 && y.rank == x.rank && same_shape(y, at) && y.type == x.type &&
             at.type == BL_INT32 && y.dims[y.rank - 1] <= x.dims[x.rank - 1],
         "shapes do not fit");
    for (int i = 0; i < x.rank - 1; i++) NEED(x.dims[i] == y.dims[i], "shapes do not fit");
    n.shared = x.dims[x.rank - 1] * 16;
    return nullptr;
  }
  NEED(n.in.size >= 1 && n.has(0), "operands");
  TRY(arity(n, static_cast<int>(n.in.size), INT32_MAX, static_cast<int>(n.in.size)));
  NEED(within(n, 0, 0, n.input(0)->rank - 1), "the axis");
  for (int i = 0; i < n.in.size; i++)
    NEED(same_shape(*n.input(i), *n.input(0)) && same_shape(*n.output(i), *n.input(0)) &&
             n.input(i)->type == n.output(i)->type,
         "shapes do not fit");
  n.shared = n.input(0)->dims[n.attrs[0]] * 16;
  return nullptr;
}

// Merge sort of places by their keys, in memory for twice as many.
template <class T>
static void sort_places(const T* keys, int64_t step, int64_t count, bool down, int64_t* places) {
  int64_t *from = places, *to = places + count;
  for (int64_t i = 0; i < count; i++) from[i] = i;
  auto before = [&](int64_t p, int64_t q) {  // whether q must come before p
    T a = keys[p * step], b = keys[q * step];
    if (down) return b != b ? a == a : b > a;
    return a != a ? b == b : b < a;
  };
  for (int64_t width = 1; width < count; width *= 2) {
    for (int64_t low = 0; low < count; low += 2 * width) {
      int64_t middle = smaller(low + width, count), high = smaller(low + 2 * width, count);
      int64_t a = low, b = middle;
      for (int64_t k = low; k < high; k++)
        to[k] = b >= high || (a < middle && !before(from[a], from[b])) ? from[a++] : from[b++];
    }
    int64_t* swap = from;
    from = to, to = swap;
  }
  if (from != places) memcpy(places, from, count * sizeof(int64_t));
}

static void sort_line(const Tensor& x, int64_t at, int64_t step, int64_t count, bool down,
                      int64_t* places) {
  switch (x.type) {
    case BL_FLOAT32: return sort_places(x.as<float>() + at, step, count, down, places);
    case BL_FLOAT64: return sort_places(x.as<double>() + at, step, count, down, places);
    case BL_INT32: return sort_places(x.as<int32_t>() + at, step, count, down, places);
    case BL_UINT32: return sort_places(x.as<uint32_t>() + at, step, count, down, places);
    case BL_INT64: return sort_places(x.as<int64_t>() + at, step, count, down, places);
    case BL_INT8: return sort_places(x.as<int8_t>() + at, step, count, down, places);
    default: return sort_places(x.as<uint8_t>() + at, step, count, down, places);
  }
}

void run_sort(Node& n, int largest) {
  const Tensor& x = *n.input(0);
  int axis = largest ? x.rank - 1 : static_cast<int>(n.attrs[0]);
  int64_t count = x.dims[axis], step = x.product(axis + 1, x.rank);
  int64_t kept = largest ? n.output()->dims[axis] : count;
  auto* places = reinterpret_cast<int64_t*>(n.model->scratch);
  if (!x.count) return;
  for (int64_t line = 0; line < x.count / count; line++) {
    int64_t at = line / step * step * count + line % step;
    sort_line(x, at, step, count, largest, places);
    for (int o = 0; o < n.in.size; o++) {
      const Tensor &from = *n.input(o), &to = *n.output(o);
      int64_t size = type_size(from.type), out = largest ? line * kept : at;
      for (int64_t i = 0; i < kept; i++)
        memcpy(to.data + (out + i * step) * size, from.data + (at + places[i] * step) * size, size);
    }
    if (largest)
      for (int64_t i = 0; i < kept; i++)
        n.output(1)->as<int32_t>()[line * kept + i] = static_cast<int32_t>(places[i]);
  }
}

}  // namespace lite
