// A model as loaded: graphs of values and nodes, and what is planned for the sizes now in use.
#pragma once

#include "base.h"
#include "flat.h"

namespace lite {

struct Kernels;
struct Pool;
struct Model;
struct Graph;
struct Op;

constexpr int64_t kExpression = INT64_MIN;  // + i: the i-th expression
constexpr int64_t kExpressions = 1 << 24;

struct Text {
  char* data = nullptr;
  ~Text() { free(data); }
};

struct Value {
  Tensor tensor;
  int64_t declared[kMaxRank] = {};  // sizes, or kExpression + i
  uint8_t kind = 0;
  char* owned = nullptr;  // a constant that was widened
  int32_t root = 0;       // the value whose memory this one shows
  int32_t first = -1, last = -1;
  int64_t place = -1;  // in the arena

  ~Value() { free(owned); }
};

enum { kComputed = 0, kInput = 1, kConstant = 2 };

struct Node {
  const Op* op = nullptr;
  Array<int32_t> in, out;
  Array<int64_t> declared;  // attributes, some as expressions
  Array<int64_t> attrs;
  Array<double> numbers;
  Array<int32_t> graphs;
  Graph* graph = nullptr;
  Model* model = nullptr;
  int64_t scratch = 0;  // bytes that each thread needs
  int64_t shared = 0;   // bytes for all of them together

  inline Tensor* input(int i) const;
  inline Tensor* output(int i = 0) const;
  bool has(int i) const { return i < in.size && in[i] >= 0; }
};

struct Graph {
  Array<Value> values;
  Array<Node> nodes;
  Array<int32_t> inputs, outputs;
  bool taken = false;
  int64_t base = 0;  // of its part of the arena
};

struct Symbol {
  Text name;
  int32_t input = 0, axis = 0;
  int64_t factor = 1, size = -1;
};

struct Expression {
  Array<int64_t> code;
};

struct Model {
  Array<Graph> graphs;
  Array<Expression> expressions;
  Array<Symbol> symbols;
  Array<Text> input_names, output_names;
  const Kernels* kernels = nullptr;
  Pool* pool = nullptr;
  int threads = 1;
  int64_t memory_limit = int64_t{64} << 30, step_limit = 0, steps = 0;
  bool planned = false, ran = false;
  char* arena = nullptr;
  int64_t arena_size = 0, constants_size = 0;
  char* scratch = nullptr;  // shared part, then one part for each thread
  int64_t scratch_each = 0, scratch_shared = 0;
  char error[400] = {};

  bool fail(const char* format, ...) __attribute__((format(printf, 2, 3)));
  char* scratch_of(int thread) const { return scratch + scratch_shared + thread * scratch_each; }
};

inline Tensor* Node::input(int i) const { return has(i) ? &graph->values[in[i]].tensor : nullptr; }
inline Tensor* Node::output(int i) const { return &graph->values[out[i]].tensor; }

bool load(Model& model, const uint8_t* data, uint64_t size);
bool evaluate(const Model& model, int64_t declared, int64_t* size);
bool plan(Model& model, const int64_t* const* dims);
bool run_graph(Model& model, Graph& graph);

}  // namespace lite
