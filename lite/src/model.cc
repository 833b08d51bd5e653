// Loading: reads the file into graphs and checks everything that does not depend on sizes.
#include "model.h"

#include <stdarg.h>
#include <stdio.h>

#include "op.h"

namespace lite {

bool Model::fail(const char* format, ...) {
  if (error[0]) return false;  // the first reason is the one
  va_list rest;
  va_start(rest, format);
  vsnprintf(error, sizeof(error), format, rest);
  va_end(rest);
  return false;
}

namespace {

float half_to_float(uint16_t h) {
  uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16, rest = h & 0x7fff, bits;
  if (rest >= 0x7c00) bits = 0x7f800000 | (rest & 0x3ff) << 13;
  else if (rest >= 0x400) bits = (rest << 13) + 0x38000000;
  else {
    float small = rest * 0x1p-24f;
    memcpy(&bits, &small, 4);
  }
  bits |= sign;
  float f;
  memcpy(&f, &bits, 4);
  return f;
}

struct Loader {
  Model& m;
  Buffer b;
  const uint8_t* constants;
  uint64_t constants_size;

  bool text(const Table& t, int id, Text* out) {
    Items s = t.items(id, 1);
    return text(s, out);
  }
  bool text(const Items& s, Text* out) {
    if (!keep(s.size)) return false;
    out->data = static_cast<char*>(malloc(s.size + 1));
    if (!out->data) return m.fail("there is no memory");
    if (s.size) memcpy(out->data, b.data + s.at, s.size);
    out->data[s.size] = 0;
    return true;
  }
  // What a file makes us keep grows with its size, however its tables share their contents.
  uint64_t kept = 0;
  bool keep(int64_t bytes) {
    kept += bytes;
    return kept <= 8 * b.size || m.fail("the file is damaged: its tables overlap");
  }

  template <class T>
  bool copy(const Items& from, Array<T>* to) {
    if (!keep(from.size * sizeof(T))) return false;
    if (!to->make(from.size)) return m.fail("there is no memory");
    for (int64_t i = 0; i < from.size; i++) (*to)[i] = from.get<T>(i);
    return true;
  }

  bool declared(int64_t size) {
    if (size >= kExpression + kExpressions) return true;
    return size - kExpression < m.expressions.size;
  }

  bool names(const Table& t, int id, Array<Text>* out) {
    Items list = t.items(id, 4);
    if (!out->make(list.size)) return m.fail("there is no memory");
    for (int64_t i = 0; i < list.size; i++) {
      Table place = t.child(list, i);
      int64_t n = b.read<uint32_t>(place.at);
      if (b.bad || place.at + 4 + n > b.size) return m.fail("the file is damaged: a name");
      if (!text(Items{&b, place.at + 4, n}, &(*out)[i])) return false;
    }
    return true;
  }

  bool widen(Value& v, int storage, int axis, uint64_t offset) {
    Tensor& t = v.tensor;
    if (t.type != BL_FLOAT32) return m.fail("the file is damaged: a packed constant");
    uint64_t width = storage == 1 ? 2 : 1;
    int64_t channels = storage == 2 && t.rank > axis ? t.dims[axis] : 1;
    uint64_t values = (t.count * width + 3) / 4 * 4;
    uint64_t bytes = values + (storage == 2 ? channels * 4 : 0);
    if (storage > 2 || offset > constants_size || constants_size - offset < bytes)
      return m.fail("the file is damaged: a constant lies outside");
    if ((m.constants_size += t.bytes()) > m.memory_limit)
      return m.fail("constants take more than memory_limit");
    v.owned = aligned_memory(t.bytes());
    if (!v.owned) return m.fail("there is no memory");
    t.data = v.owned;
    float* out = t.as<float>();
    const uint8_t* from = constants + offset;
    if (storage == 1) {
      for (int64_t i = 0; i < t.count; i++) {
        uint16_t h;
        memcpy(&h, from + 2 * i, 2);
        out[i] = half_to_float(h);
      }
      return true;
    }
    int64_t inner = t.rank > axis ? t.product(axis + 1, t.rank) : 1;
    for (int64_t i = 0; i < t.count; i++) {
      float scale;
      memcpy(&scale, from + values + 4 * (i / inner % channels), 4);
      out[i] = static_cast<int8_t>(from[i]) * scale;
    }
    return true;
  }

  bool value(const Table& t, Value& v) {
    v.tensor.type = t.number<uint8_t>(0);
    v.kind = t.number<uint8_t>(1);
    int storage = t.number<uint8_t>(2), axis = t.number<uint8_t>(3);
    Items shape = t.items(4, 8);
    uint64_t offset = t.number<uint64_t>(5);
    if (b.bad || !type_size(v.tensor.type) || v.kind > kConstant || shape.size > kMaxRank)
      return m.fail("the file is damaged: a value");
    v.tensor.rank = static_cast<int32_t>(shape.size);
    for (int i = 0; i < v.tensor.rank; i++) {
      v.declared[i] = shape.get<int64_t>(i);
      if (!declared(v.declared[i])) return m.fail("the file is damaged: an expression");
    }
    if (v.kind != kConstant) return true;
    Tensor& c = v.tensor;
    c.count = 1;
    for (int i = 0; i < c.rank; i++) {
      c.dims[i] = v.declared[i];
      if (c.dims[i] < 0 || __builtin_mul_overflow(c.count, c.dims[i], &c.count) ||
          c.count > (int64_t{1} << 40))
        return m.fail("the file is damaged: the shape of a constant");
    }
    if (storage) return widen(v, storage, axis, offset);
    if (offset % kAlign || offset > constants_size ||
        constants_size - offset < static_cast<uint64_t>(c.bytes()))
      return m.fail("the file is damaged: a constant lies outside");
    c.data = const_cast<char*>(reinterpret_cast<const char*>(constants + offset));
    return true;
  }

  bool node(const Table& t, Graph& g, Node& n, int64_t number) {
    Items name = t.items(0, 1);
    n.graph = &g;
    n.model = &m;
    if (!copy(t.items(1, 4), &n.in) || !copy(t.items(2, 4), &n.out) ||
        !copy(t.items(3, 8), &n.declared) || !copy(t.items(4, 8), &n.numbers) ||
        !copy(t.items(5, 4), &n.graphs) || !n.attrs.make(n.declared.size))
      return false;
    if (b.bad) return m.fail("the file is damaged: a node");
    n.op = find_op(reinterpret_cast<const char*>(b.data + name.at), name.size);
    if (!n.op)
      return m.fail("this library has no op %.*s", static_cast<int>(smaller(name.size, 60)),
                    reinterpret_cast<const char*>(b.data + name.at));
    for (int32_t i : n.in)
      if (i < -1 || i >= g.values.size || (i >= 0 && g.values[i].kind == kComputed &&
                                           g.values[i].first < 0))
        return m.fail("the file is damaged: node %lld reads what is not there", (long long)number);
    if (n.out.size < 1) return m.fail("the file is damaged: a node without results");
    for (int32_t i : n.out) {
      if (i < 0 || i >= g.values.size || g.values[i].kind != kComputed || g.values[i].first >= 0)
        return m.fail("the file is damaged: node %lld writes twice", (long long)number);
      g.values[i].first = static_cast<int32_t>(number);
    }
    for (int64_t a : n.declared)
      if (!declared(a)) return m.fail("the file is damaged: an expression");
    int64_t own = &g - m.graphs.data;
    for (int32_t i : n.graphs) {
      if (i <= own || i >= m.graphs.size || m.graphs[i].taken)
        return m.fail("the file is damaged: a graph inside a graph");
      m.graphs[i].taken = true;
    }
    return true;
  }

  bool graph(const Table& t, Graph& g) {
    Items values = t.items(0, 4), nodes = t.items(1, 4);
    if (!keep(16 * (values.size + nodes.size))) return false;
    if (!g.values.make(values.size) || !g.nodes.make(nodes.size) ||
        !copy(t.items(2, 4), &g.inputs) || !copy(t.items(3, 4), &g.outputs))
      return m.fail("there is no memory");
    for (int64_t i = 0; i < values.size; i++)
      if (!value(t.child(values, i), g.values[i])) return false;
    for (int32_t i : g.inputs) {
      if (i < 0 || i >= values.size || g.values[i].kind != kInput || g.values[i].first >= 0)
        return m.fail("the file is damaged: an input");
      g.values[i].first = 0;
    }
    for (Value& v : g.values) {
      if (v.kind == kInput && v.first < 0) return m.fail("the file is damaged: a loose input");
      if (v.kind == kInput) v.first = -1;
    }
    for (int64_t i = 0; i < nodes.size; i++)
      if (!node(t.child(nodes, i), g, g.nodes[i], i)) return false;
    for (int32_t i : g.outputs)
      if (i < 0 || i >= values.size || (g.values[i].kind == kComputed && g.values[i].first < 0))
        return m.fail("the file is damaged: an output");
    return true;
  }

  bool symbols(const Table& root) {
    Items list = root.items(4, 4);
    if (!m.symbols.make(list.size)) return m.fail("there is no memory");
    const Graph& g = m.graphs[0];
    for (int64_t i = 0; i < list.size; i++) {
      Table t = root.child(list, i);
      Symbol& s = m.symbols[i];
      s.input = t.number<int32_t>(1);
      s.axis = t.number<int32_t>(2);
      s.factor = t.number<int64_t>(3, 1);
      if (!text(t, 0, &s.name)) return false;
      if (b.bad || s.input < 0 || s.input >= g.inputs.size || s.axis < 0 || s.factor < 1 ||
          s.axis >= g.values[g.inputs[s.input]].tensor.rank)
        return m.fail("the file is damaged: a symbol");
    }
    return true;
  }

  bool model() {
    if (b.size < 8 || memcmp(b.data + 4, "BLM1", 4)) return m.fail("this is no model of Bireme Lite");
    Table root{&b, b.read<uint32_t>(0)};
    int version = root.number<int32_t>(0);
    if (b.bad || version != 1)
      return m.fail("the model has version %d of the format; this library reads version 1", version);
    Items expressions = root.items(3, 4);
    if (expressions.size > kExpressions || !m.expressions.make(expressions.size))
      return m.fail("there is no memory");
    for (int64_t i = 0; i < expressions.size; i++)
      if (!copy(root.child(expressions, i).items(0, 8), &m.expressions[i].code)) return false;
    Items graphs = root.items(2, 4);
    if (b.bad || graphs.size < 1 || !m.graphs.make(graphs.size))
      return m.fail("the file is damaged: it has no graph");
    for (int64_t i = 0; i < graphs.size; i++)
      if (!graph(root.child(graphs, i), m.graphs[i])) return false;
    if (!symbols(root) || !names(root, 5, &m.input_names) || !names(root, 6, &m.output_names))
      return false;
    if (m.input_names.size != m.graphs[0].inputs.size ||
        m.output_names.size != m.graphs[0].outputs.size)
      return m.fail("the file is damaged: names");
    return !b.bad || m.fail("the file is damaged");
  }
};

}  // namespace

bool load(Model& m, const uint8_t* data, uint64_t size) {
  // The last eight bytes say how long the FlatBuffer is.
  uint64_t flat = 0;
  if (size >= 16) memcpy(&flat, data + size - 8, 8);
  if (size < 16 || flat > size - 8 || flat % kAlign)
    return m.fail("this is no model of Bireme Lite, or not all of it");
  Loader loader{m, {data, flat}, data + flat, size - 8 - flat};
  bool good = loader.model();
  if (good && loader.b.bad) good = m.fail("the file is damaged");
  return good;
}

}  // namespace lite
