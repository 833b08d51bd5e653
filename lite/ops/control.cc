// Choices and loops: nodes that run graphs of their own.
#include "common.h"

namespace lite {

static Graph& inner(const Node& n, int i) { return n.model->graphs[n.graphs[i]]; }

static bool alike(const Tensor& a, const Tensor& b) { return same_shape(a, b) && a.type == b.type; }

static const Tensor& value_of(Graph& g, int32_t i) { return g.values[i].tensor; }

// The shape of one row of `t`.
static bool is_row(const Tensor& row, const Tensor& t) {
  return t.rank == row.rank + 1 && row.type == t.type &&
         memcmp(row.dims, t.dims + 1, row.rank * sizeof(int64_t)) == 0;
}

static void take(const Tensor& to, const Tensor& from) {
  if (to.count) memmove(to.data, from.data, to.bytes());
}

static bool step(Model& m) {
  if (m.step_limit && ++m.steps > m.step_limit) return m.fail("more turns of loops than step_limit");
  return true;
}

// cond(which, operands...): runs graph number `which`, moved into range.
const char* check_cond(Node& n, int) {
  NEED(n.graphs.size >= 1 && n.has(0) && n.input(0)->count == 1 && is_whole(*n.input(0)), "operands");
  for (int g = 0; g < n.graphs.size; g++) {
    Graph& branch = inner(n, g);
    NEED(branch.inputs.size == n.in.size - 1 && branch.outputs.size == n.out.size, "operands");
    for (int i = 0; i < branch.inputs.size; i++)
      NEED(n.has(i + 1) && alike(value_of(branch, branch.inputs[i]), *n.input(i + 1)),
           "operands do not fit a branch");
    for (int i = 0; i < n.out.size; i++)
      NEED(alike(value_of(branch, branch.outputs[i]), *n.output(i)), "results do not fit a branch");
  }
  return nullptr;
}

void run_cond(Node& n, int) {
  int64_t which = larger(0, smaller(whole(*n.input(0), 0), n.graphs.size - 1));
  Graph& branch = inner(n, static_cast<int>(which));
  for (int i = 0; i < branch.inputs.size; i++)
    branch.values[branch.inputs[i]].tensor.data = n.input(i + 1)->data;
  if (!run_graph(*n.model, branch)) return;
  for (int i = 0; i < n.out.size; i++) take(*n.output(i), value_of(branch, branch.outputs[i]));
}

// while(values of the test, values of the body, state...); attrs: how many of the first and second.
// Graphs: test, body.
const char* check_while(Node& n, int) {
  NEED(n.graphs.size == 2 && within(n, 0, 0, n.in.size) &&
           within(n, 1, 0, n.in.size - n.attrs[0]),
       "attributes");
  int64_t tests = n.attrs[0], bodies = n.attrs[1], state = n.in.size - tests - bodies;
  Graph &test = inner(n, 0), &body = inner(n, 1);
  NEED(state == n.out.size && test.inputs.size == tests + state && test.outputs.size == 1 &&
           body.inputs.size == bodies + state && body.outputs.size == state,
       "operands");
  for (int i = 0; i < n.in.size; i++) NEED(n.has(i), "operands");
  const Tensor& flag = value_of(test, test.outputs[0]);
  NEED(flag.type == BL_BOOL && flag.count == 1, "the test is no boolean");
  for (int64_t i = 0; i < tests; i++)
    NEED(alike(value_of(test, test.inputs[i]), *n.input(static_cast<int>(i))), "operands");
  for (int64_t i = 0; i < bodies; i++)
    NEED(alike(value_of(body, body.inputs[i]), *n.input(static_cast<int>(tests + i))), "operands");
  for (int64_t i = 0; i < state; i++) {
    const Tensor& out = *n.output(static_cast<int>(i));
    NEED(alike(out, *n.input(static_cast<int>(tests + bodies + i))) &&
             alike(out, value_of(test, test.inputs[tests + i])) &&
             alike(out, value_of(body, body.inputs[bodies + i])) &&
             alike(out, value_of(body, body.outputs[i])),
         "the state does not fit");
  }
  return nullptr;
}

void run_while(Node& n, int) {
  int64_t tests = n.attrs[0], bodies = n.attrs[1], state = n.out.size;
  Graph &test = inner(n, 0), &body = inner(n, 1);
  for (int64_t i = 0; i < tests; i++)
    test.values[test.inputs[i]].tensor.data = n.input(static_cast<int>(i))->data;
  for (int64_t i = 0; i < bodies; i++)
    body.values[body.inputs[i]].tensor.data = n.input(static_cast<int>(tests + i))->data;
  for (int64_t i = 0; i < state; i++) {
    Tensor& own = *n.output(static_cast<int>(i));
    take(own, *n.input(static_cast<int>(tests + bodies + i)));
    test.values[test.inputs[tests + i]].tensor.data = own.data;
    body.values[body.inputs[bodies + i]].tensor.data = own.data;
  }
  while (run_graph(*n.model, test) && *value_of(test, test.outputs[0]).as<uint8_t>()) {
    if (!step(*n.model) || !run_graph(*n.model, body)) return;
    for (int64_t i = 0; i < state; i++)
      take(*n.output(static_cast<int>(i)), value_of(body, body.outputs[i]));
  }
}

// scan(fixed, state, rows...): the body for each row; attrs: how many are fixed, how many are state,
// whether from behind, and how many rows there are. Results: state, then rows.
const char* check_scan(Node& n, int) {
  NEED(n.graphs.size == 1 && within(n, 0, 0, n.in.size) &&
           within(n, 1, 0, smaller(n.in.size - n.attrs[0], n.out.size)) && within(n, 2, 0, 1) &&
           within(n, 3, 0, INT64_MAX),
       "attributes");
  Graph& body = inner(n, 0);
  int64_t fixed = n.attrs[0], state = n.attrs[1];
  NEED(body.inputs.size == n.in.size && body.outputs.size == n.out.size, "operands");
  for (int i = 0; i < n.in.size; i++) {
    NEED(n.has(i), "operands");
    const Tensor &outer = *n.input(i), &own = value_of(body, body.inputs[i]);
    NEED(i < fixed + state ? alike(outer, own) : is_row(own, outer) && outer.dims[0] == n.attrs[3],
         "operands do not fit the body");
  }
  for (int i = 0; i < n.out.size; i++) {
    const Tensor &outer = *n.output(i), &own = value_of(body, body.outputs[i]);
    NEED(i < state ? alike(outer, own) && alike(outer, *n.input(static_cast<int>(fixed + i)))
                   : is_row(own, outer) && outer.dims[0] == n.attrs[3],
         "results do not fit the body");
  }
  return nullptr;
}

void run_scan(Node& n, int) {
  Graph& body = inner(n, 0);
  int64_t fixed = n.attrs[0], state = n.attrs[1], length = n.attrs[3];
  for (int i = 0; i < fixed; i++) body.values[body.inputs[i]].tensor.data = n.input(i)->data;
  for (int i = 0; i < state; i++) {
    take(*n.output(i), *n.input(static_cast<int>(fixed + i)));
    body.values[body.inputs[fixed + i]].tensor.data = n.output(i)->data;
  }
  for (int64_t turn = 0; turn < length; turn++) {
    int64_t row = n.attrs[2] ? length - 1 - turn : turn;
    for (auto i = static_cast<int>(fixed + state); i < n.in.size; i++) {
      Tensor& own = body.values[body.inputs[i]].tensor;
      own.data = n.input(i)->data + row * own.bytes();
    }
    if (!step(*n.model) || !run_graph(*n.model, body)) return;
    for (int i = 0; i < n.out.size; i++) {
      const Tensor& made = value_of(body, body.outputs[i]);
      if (i < state) take(*n.output(i), made);
      else if (made.count) memcpy(n.output(i)->data + row * made.bytes(), made.data, made.bytes());
    }
  }
}

}  // namespace lite
