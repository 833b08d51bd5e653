// Planning for the sizes of one run: symbols, shapes, the checks of all ops, and where in one arena
// every value lies. A value's memory is another's again after its last use.
#include "op.h"
#include "threads.h"

namespace lite {

// Postfix code: a number or symbol follows the first two.
enum { kNumber, kSymbol, kAdd, kSub, kMul, kFloorDiv, kMod, kMax, kMin, kNegate };

static bool apply(int64_t op, int64_t a, int64_t b, int64_t* r) {
  switch (op) {
    case kAdd: return !__builtin_add_overflow(a, b, r);
    case kSub: return !__builtin_sub_overflow(a, b, r);
    case kMul: return !__builtin_mul_overflow(a, b, r);
    case kMax: *r = larger(a, b); return true;
    case kMin: *r = smaller(a, b); return true;
    case kFloorDiv:
    case kMod: {
      if (b <= 0) return false;
      int64_t rest = a % b;
      if (rest < 0) rest += b;
      if (op == kMod) *r = rest;
      else if (__builtin_sub_overflow(a, rest, r)) return false;
      else *r /= b;
      return true;
    }
  }
  return false;
}

bool evaluate(const Model& m, int64_t declared, int64_t* size) {
  *size = declared;
  if (declared >= kExpression + kExpressions) return true;
  const Array<int64_t>& code = m.expressions[declared - kExpression].code;
  int64_t stack[16];
  int top = 0;
  for (int64_t at = 0; at < code.size; at++) {
    int64_t op = code[at];
    if (op == kNumber || op == kSymbol) {
      if (++at >= code.size || top == 16) return false;
      int64_t given = code[at];
      if (op == kSymbol && (given < 0 || given >= m.symbols.size)) return false;
      stack[top++] = op == kNumber ? given : m.symbols[given].size;
    } else if (op == kNegate) {
      if (top < 1 || __builtin_sub_overflow(int64_t{0}, stack[top - 1], &stack[top - 1]))
        return false;
    } else {
      if (top < 2 || !apply(op, stack[top - 2], stack[top - 1], &stack[top - 2])) return false;
      top--;
    }
  }
  *size = stack[0];
  return top == 1;
}

namespace {

bool shape_values(Model& m, Graph& g) {
  for (Value& v : g.values) {
    Tensor& t = v.tensor;
    if (v.kind == kConstant) continue;
    t.count = 1;
    for (int i = 0; i < t.rank; i++) {
      if (!evaluate(m, v.declared[i], &t.dims[i]) || t.dims[i] < 0 ||
          __builtin_mul_overflow(t.count, t.dims[i], &t.count) || t.count > (int64_t{1} << 40))
        return m.fail("with these sizes of the inputs a value has no size");
    }
  }
  return true;
}

bool check_nodes(Model& m, Graph& g) {
  for (Node& n : g.nodes) {
    for (int64_t i = 0; i < n.attrs.size; i++)
      if (!evaluate(m, n.declared[i], &n.attrs[i]))
        return m.fail("with these sizes of the inputs an attribute of %s has no value", n.op->name);
    n.scratch = n.shared = 0;
    if (const char* wrong = n.op->check(n, n.op->kind))
      return m.fail("node %lld, %s: %s", (long long)(&n - g.nodes.data), n.op->name, wrong);
    if (n.scratch < 0 || n.scratch > m.memory_limit || n.shared < 0 || n.shared > m.memory_limit)
      return m.fail("node %lld, %s: needs more than memory_limit",
                    (long long)(&n - g.nodes.data), n.op->name);
    m.scratch_each = larger(m.scratch_each, rounded(n.scratch));
    m.scratch_shared = larger(m.scratch_shared, rounded(n.shared));
  }
  return true;
}

void lifetimes(Graph& g) {
  auto count = static_cast<int32_t>(g.nodes.size);
  for (int32_t i = 0; i < g.values.size; i++) {
    g.values[i].root = i;
    g.values[i].last = -1;
  }
  for (int32_t at = 0; at < count; at++) {
    Node& n = g.nodes[at];
    if (!strcmp(n.op->name, "reshape")) g.values[n.out[0]].root = g.values[n.in[0]].root;
    for (int32_t i : n.in)
      if (i >= 0) g.values[g.values[i].root].last = at;
    for (int32_t o : n.out) {
      Value& root = g.values[g.values[o].root];
      root.last = root.last < at ? at : root.last;
    }
  }
  for (int32_t o : g.outputs) g.values[g.values[o].root].last = count;
}

struct Block {
  int64_t place, bytes;
  int32_t last;
};

// First fit, in the order of the nodes, among the blocks that are in use.
bool place_values(Model& m, Graph& g) {
  Array<Block> used;  // by place
  if (!used.make(g.values.size)) return m.fail("there is no memory");
  int64_t live = 0, high = 0;
  for (int32_t at = 0; at < g.nodes.size; at++) {
    int64_t kept = 0;
    for (int64_t i = 0; i < live; i++)
      if (used[i].last >= at) used[kept++] = used[i];
    live = kept;
    for (int32_t o : g.nodes[at].out) {
      Value& v = g.values[o];
      if (v.root != o) continue;
      int64_t bytes = rounded(v.tensor.bytes()), place = 0, i = 0;
      for (; i < live && used[i].place - place < bytes; i++)
        place = used[i].place + used[i].bytes;
      memmove(&used[i + 1], &used[i], (live - i) * sizeof(Block));
      used[i] = {place, bytes, v.last};
      live++;
      v.place = place;
      high = larger(high, place + bytes);
      if (high > m.memory_limit) return m.fail("values take more than memory_limit");
    }
  }
  g.base = m.arena_size;
  m.arena_size += high;
  return m.arena_size <= m.memory_limit || m.fail("values take more than memory_limit");
}

bool solve(Model& m, const int64_t* const* dims) {
  Graph& g = m.graphs[0];
  for (Symbol& s : m.symbols) {
    int64_t size = dims[s.input][s.axis];
    if (size < 0 || size % s.factor)
      return m.fail("axis %d of %s must be a multiple of %lld, not %lld", s.axis,
                    m.input_names[s.input].data, (long long)s.factor, (long long)size);
    s.size = size / s.factor;
  }
  for (int64_t i = 0; i < g.inputs.size; i++) {
    const Value& v = g.values[g.inputs[i]];
    for (int axis = 0; axis < v.tensor.rank; axis++) {
      int64_t want;
      if (!evaluate(m, v.declared[axis], &want) || want != dims[i][axis])
        return m.fail("axis %d of %s must be %lld here, not %lld", axis, m.input_names[i].data,
                      (long long)want, (long long)dims[i][axis]);
    }
  }
  return true;
}

}  // namespace

bool plan(Model& m, const int64_t* const* dims) {
  m.planned = m.ran = false;
  m.arena_size = m.scratch_each = m.scratch_shared = 0;
  if (!solve(m, dims)) return false;
  for (Graph& g : m.graphs)
    if (!shape_values(m, g)) return false;
  for (Graph& g : m.graphs) {
    if (!check_nodes(m, g)) return false;
    lifetimes(g);
    if (!place_values(m, g)) return false;
  }
  free(m.arena);
  int64_t total = m.arena_size + m.scratch_shared + m.threads * m.scratch_each;
  m.arena = total <= m.memory_limit ? aligned_memory(total) : nullptr;
  if (!m.arena) return m.fail("values need %lld bytes, which there are not", (long long)total);
  m.scratch = m.arena + m.arena_size;
  for (Graph& g : m.graphs)
    for (int32_t i = 0; i < g.values.size; i++) {
      Value& v = g.values[i];
      if (v.kind == kComputed && v.root == i) v.tensor.data = m.arena + g.base + v.place;
    }
  return m.planned = true;
}

bool run_graph(Model& m, Graph& g) {
  for (Node& n : g.nodes) {
    n.op->run(n, n.op->kind);
    if (m.error[0]) return false;
  }
  return true;
}

}  // namespace lite
