// Moving elements about: transposing, slicing, padding, joining, repeating.
#include "common.h"

namespace lite {

template <class T>
static void copy_lines(int rank, const int64_t* dims, const char* from, const int64_t* fs, char* to,
                       const int64_t* ts) {
  int64_t width = dims[rank - 1], a = fs[rank - 1], b = ts[rank - 1], lines = 1;
  for (int i = 0; i < rank - 1; i++) lines *= dims[i];
  int64_t at[kMaxRank + 1] = {}, x = 0, y = 0;
  for (int64_t line = 0; line < lines; line++) {
    const T* p = reinterpret_cast<const T*>(from) + x;
    T* q = reinterpret_cast<T*>(to) + y;
    if (a == 1 && b == 1) memcpy(q, p, width * sizeof(T));
    else
      for (int64_t i = 0; i < width; i++) q[i * b] = p[i * a];
    for (int i = rank - 2; i >= 0; i--) {
      x += fs[i], y += ts[i];
      if (++at[i] < dims[i]) break;
      x -= dims[i] * fs[i], y -= dims[i] * ts[i];
      at[i] = 0;
    }
  }
}

void copy_strided(int64_t size, int rank, const int64_t* dims, const char* from,
                  const int64_t* from_strides, char* to, const int64_t* to_strides) {
  int64_t d[kMaxRank + 1], f[kMaxRank + 1], t[kMaxRank + 1];
  int r = 0;
  for (int i = 0; i < rank; i++) {
    if (dims[i] == 0) return;
    if (dims[i] == 1) continue;
    if (r && f[r - 1] == from_strides[i] * dims[i] && t[r - 1] == to_strides[i] * dims[i]) {
      d[r - 1] *= dims[i], f[r - 1] = from_strides[i], t[r - 1] = to_strides[i];
    } else {
      d[r] = dims[i], f[r] = from_strides[i], t[r] = to_strides[i];
      r++;
    }
  }
  if (!r) r = 1, d[0] = f[0] = t[0] = 1;
  switch (size) {
    case 1: return copy_lines<uint8_t>(r, d, from, f, to, t);
    case 4: return copy_lines<uint32_t>(r, d, from, f, to, t);
    default: return copy_lines<uint64_t>(r, d, from, f, to, t);
  }
}

void fill(char* to, int64_t count, int64_t size, const char* value) {
  for (int64_t i = 0; i < count; i++) memcpy(to + i * size, value, size);
}

static const char* same_type(const Node& n, int operands) {
  for (int i = 0; i < operands; i++)
    NEED(n.input(i)->type == n.output()->type, "types do not fit");
  return nullptr;
}

const char* check_reshape(Node& n, int) {
  TRY(arity(n, 1, 1, 1));
  TRY(same_type(n, 1));
  NEED(n.input(0)->count == n.output()->count, "the number of elements changes");
  return nullptr;
}
void run_reshape(Node& n, int) { n.output()->data = n.input(0)->data; }

const char* check_copy(Node& n, int) { return check_reshape(n, 0); }
void run_copy(Node& n, int) {
  if (n.output()->count) memcpy(n.output()->data, n.input(0)->data, n.output()->bytes());
}

// Repeats axes that are 1; the operand's axes are the last ones of the result.
const char* check_expand(Node& n, int) {
  TRY(arity(n, 1, 1, 1));
  TRY(same_type(n, 1));
  const Tensor &x = *n.input(0), &y = *n.output();
  NEED(x.rank <= y.rank, "ranks do not fit");
  for (int i = 0; i < x.rank; i++)
    NEED(x.dims[i] == 1 || x.dims[i] == y.dims[y.rank - x.rank + i], "shapes do not fit");
  return nullptr;
}
void run_expand(Node& n, int) {
  const Tensor &x = *n.input(0), &y = *n.output();
  int64_t from[kMaxRank], to[kMaxRank], own[kMaxRank];
  strides_of(x, own);
  strides_of(y, to);
  for (int i = 0; i < y.rank; i++) {
    int at = i - (y.rank - x.rank);
    from[i] = at < 0 || x.dims[at] == 1 ? 0 : own[at];
  }
  copy_strided(type_size(y.type), y.rank, y.dims, x.data, from, y.data, to);
}

// attrs: for each axis of the result, the operand's.
const char* check_transpose(Node& n, int) {
  TRY(arity(n, 1, 1, 1));
  TRY(same_type(n, 1));
  const Tensor &x = *n.input(0), &y = *n.output();
  NEED(x.rank == y.rank && n.attrs.size == x.rank, "ranks do not fit");
  unsigned seen = 0;
  for (int i = 0; i < x.rank; i++) {
    NEED(within(n, i, 0, x.rank - 1) && x.dims[n.attrs[i]] == y.dims[i], "shapes do not fit");
    seen |= 1u << n.attrs[i];
  }
  NEED(seen == (1u << x.rank) - 1, "axes");
  return nullptr;
}
void run_transpose(Node& n, int) {
  const Tensor &x = *n.input(0), &y = *n.output();
  int64_t from[kMaxRank], to[kMaxRank], own[kMaxRank];
  strides_of(x, own);
  strides_of(y, to);
  for (int i = 0; i < y.rank; i++) from[i] = own[n.attrs[i]];
  int64_t size = type_size(y.type);
  int64_t lead = y.rank ? y.dims[0] : 1;
  if (y.rank < 2 || lead < 2)
    return copy_strided(size, y.rank, y.dims, x.data, from, y.data, to);
  parallel(*n.model, lead, larger(1, 16384 * lead / larger(1, y.count)),
           [&](int64_t begin, int64_t end, int) {
             int64_t dims[kMaxRank];
             memcpy(dims, y.dims, sizeof(dims));
             dims[0] = end - begin;
             copy_strided(size, y.rank, dims, x.data + begin * from[0] * size, from,
                          y.data + begin * to[0] * size, to);
           });
}

// attrs: for each axis first place and step; steps may be negative.
const char* check_slice(Node& n, int) {
  TRY(arity(n, 1, 1, 1));
  TRY(same_type(n, 1));
  const Tensor &x = *n.input(0), &y = *n.output();
  NEED(x.rank == y.rank && n.attrs.size == 2 * x.rank, "ranks do not fit");
  for (int i = 0; i < x.rank; i++) {
    if (!y.dims[i]) continue;
    NEED(within(n, 2 * i, 0, x.dims[i] - 1) && within(n, 2 * i + 1, -(1 << 30), 1 << 30), "places");
    int64_t reach = y.dims[i] - 1, step = n.attrs[2 * i + 1], last;
    NEED(!__builtin_mul_overflow(reach, step, &last) &&
             !__builtin_add_overflow(last, n.attrs[2 * i], &last) && last >= 0 && last < x.dims[i],
         "places lie outside");
  }
  return nullptr;
}
void run_slice(Node& n, int) {
  const Tensor &x = *n.input(0), &y = *n.output();
  if (!y.count) return;
  int64_t from[kMaxRank], to[kMaxRank], own[kMaxRank], size = type_size(y.type), start = 0;
  strides_of(x, own);
  strides_of(y, to);
  for (int i = 0; i < y.rank; i++) {
    from[i] = own[i] * n.attrs[2 * i + 1];
    start += own[i] * n.attrs[2 * i];
  }
  copy_strided(size, y.rank, y.dims, x.data + start * size, from, y.data, to);
}

// x and the number around it; attrs: for each axis padding before (may be negative) and how far
// apart elements are.
const char* check_pad(Node& n, int) {
  TRY(arity(n, 2, 2, 1));
  TRY(same_type(n, 2));
  const Tensor &x = *n.input(0), &y = *n.output();
  NEED(x.rank == y.rank && n.attrs.size == 2 * x.rank && n.input(1)->count == 1, "ranks");
  for (int i = 0; i < x.rank; i++)
    NEED(within(n, 2 * i, -(int64_t{1} << 40), int64_t{1} << 40) &&
             within(n, 2 * i + 1, 1, 1 << 20),
         "attributes");
  return nullptr;
}
void run_pad(Node& n, int) {
  const Tensor &x = *n.input(0), &y = *n.output();
  int64_t size = type_size(y.type), from[kMaxRank], to[kMaxRank], dims[kMaxRank], a = 0, b = 0;
  fill(y.data, y.count, size, n.input(1)->data);
  strides_of(x, from);
  strides_of(y, to);
  for (int i = 0; i < x.rank; i++) {
    int64_t low = n.attrs[2 * i], gap = n.attrs[2 * i + 1];
    int64_t first = low < 0 ? (-low + gap - 1) / gap : 0;  // the first element that is inside
    int64_t place = low + first * gap;
    int64_t room = y.dims[i] > place ? (y.dims[i] - place + gap - 1) / gap : 0;
    dims[i] = larger(0, smaller(x.dims[i] - first, room));
    a += first * from[i];
    b += place * to[i];
    to[i] *= gap;
    if (!dims[i]) return;
  }
  copy_strided(size, x.rank, dims, x.data + a * size, from, y.data + b * size, to);
}

// attrs: axis.
const char* check_concat(Node& n, int) {
  TRY(arity(n, static_cast<int>(n.in.size), INT32_MAX, 1));
  const Tensor& y = *n.output();
  NEED(n.in.size >= 1 && within(n, 0, 0, y.rank - 1), "the axis");
  TRY(same_type(n, static_cast<int>(n.in.size)));
  int64_t total = 0;
  for (int o = 0; o < n.in.size; o++) {
    const Tensor& x = *n.input(o);
    NEED(x.rank == y.rank, "ranks do not fit");
    for (int i = 0; i < y.rank; i++)
      NEED(i == n.attrs[0] || x.dims[i] == y.dims[i], "shapes do not fit");
    total += x.dims[n.attrs[0]];
  }
  NEED(total == y.dims[n.attrs[0]], "sizes do not add up");
  return nullptr;
}
void run_concat(Node& n, int) {
  const Tensor& y = *n.output();
  auto axis = static_cast<int>(n.attrs[0]);
  int64_t size = type_size(y.type), lead = y.product(0, axis), at = 0;
  int64_t row = y.product(axis, y.rank) * size;
  for (int o = 0; o < n.in.size; o++) {
    const Tensor& x = *n.input(o);
    int64_t part = x.product(axis, x.rank) * size;
    if (part)
      for (int64_t i = 0; i < lead; i++) memcpy(y.data + i * row + at, x.data + i * part, part);
    at += part;
  }
}

// Counts along attrs[0].
const char* check_iota(Node& n, int) {
  TRY(arity(n, 0, 0, 1));
  NEED(within(n, 0, 0, n.output()->rank - 1) && n.output()->type != BL_BOOL, "the axis");
  return nullptr;
}
void run_iota(Node& n, int) {
  const Tensor& y = *n.output();
  auto axis = static_cast<int>(n.attrs[0]);
  int64_t inner = y.product(axis + 1, y.rank), size = y.dims[axis];
  for (int64_t i = 0; i < y.count; i++) {
    int64_t v = i / inner % size;
    switch (y.type) {
      case BL_FLOAT32: y.as<float>()[i] = static_cast<float>(v); break;
      case BL_FLOAT64: y.as<double>()[i] = static_cast<double>(v); break;
      case BL_INT64: y.as<int64_t>()[i] = v; break;
      case BL_INT32:
      case BL_UINT32: y.as<uint32_t>()[i] = static_cast<uint32_t>(v); break;
      default: y.as<uint8_t>()[i] = static_cast<uint8_t>(v);
    }
  }
}

// attrs: a size, as a number of the result's type.
const char* check_size(Node& n, int) {
  TRY(arity(n, 0, 0, 1));
  NEED(n.attrs.size == 1 && n.output()->count == 1 && n.output()->type != BL_BOOL, "attributes");
  return nullptr;
}
void run_size(Node& n, int) {
  const Tensor& y = *n.output();
  int64_t v = n.attrs[0];
  switch (y.type) {
    case BL_FLOAT32: *y.as<float>() = static_cast<float>(v); break;
    case BL_FLOAT64: *y.as<double>() = static_cast<double>(v); break;
    case BL_INT64: *y.as<int64_t>() = v; break;
    case BL_INT32:
    case BL_UINT32: *y.as<uint32_t>() = static_cast<uint32_t>(v); break;
    default: *y.as<uint8_t>() = static_cast<uint8_t>(v);
  }
}

// A window at places that are known at run time only; they are moved into the array as XLA does.
// dynamic_slice(x, place of each axis...), dynamic_update(x, update, places...).
const char* check_dynamic(Node& n, int update) {
  NEED(n.has(0) && n.out.size == 1, "operands");
  const Tensor &x = *n.input(0), &y = *n.output();
  TRY(arity(n, 1 + update + x.rank, 1 + update + x.rank, 1));
  TRY(same_type(n, 1 + update));
  const Tensor& window = update ? *n.input(1) : y;
  NEED(window.rank == x.rank, "ranks do not fit");
  for (int i = 0; i < x.rank; i++) {
    const Tensor& at = *n.input(1 + update + i);
    NEED(window.dims[i] <= x.dims[i] && at.count == 1 && is_whole(at), "shapes do not fit");
  }
  NEED(!update || same_shape(x, y), "shapes do not fit");
  return nullptr;
}
void run_dynamic(Node& n, int update) {
  const Tensor &x = *n.input(0), &y = *n.output(), &window = update ? *n.input(1) : y;
  int64_t size = type_size(y.type), large[kMaxRank], small[kMaxRank], start = 0;
  strides_of(x, large);
  strides_of(window, small);
  for (int i = 0; i < x.rank; i++) {
    int64_t at = whole(*n.input(1 + update + i), 0);
    start += larger(0, smaller(at, x.dims[i] - window.dims[i])) * large[i];
  }
  if (update) {
    if (y.count) memcpy(y.data, x.data, y.bytes());
    copy_strided(size, x.rank, window.dims, window.data, small, y.data + start * size, large);
  } else {
    copy_strided(size, x.rank, window.dims, x.data + start * size, large, y.data, small);
  }
}

}  // namespace lite
