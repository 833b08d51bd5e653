// What an op is: a name, a check of everything that its kernel relies on, and the kernel.
#pragma once

#include "model.h"

namespace lite {

struct Op {
  const char* name;
  // NULL, or what is wrong with this node. It may set `scratch` and `shared`.
  const char* (*check)(Node& node, int kind);
  void (*run)(Node& node, int kind);
  int kind;
};

const Op* find_op(const char* name, int64_t length);

#define NEED(condition, text) \
  do {                        \
    if (!(condition)) return text; \
  } while (0)

inline const char* arity(const Node& n, int least, int most, int outs) {
  NEED(n.in.size >= least && n.in.size <= most && n.out.size == outs, "wrong number of operands");
  for (int i = 0; i < least; i++) NEED(n.has(i), "an operand is missing");
  return nullptr;
}

inline const char* all_float(const Node& n) {
  for (int i = 0; i < n.in.size; i++)
    NEED(!n.has(i) || n.input(i)->type == BL_FLOAT32, "an operand is not float32");
  for (int i = 0; i < n.out.size; i++)
    NEED(n.output(i)->type == BL_FLOAT32, "a result is not float32");
  return nullptr;
}

#define TRY(call)                    \
  do {                               \
    if (const char* wrong = (call)) return wrong; \
  } while (0)

}  // namespace lite
