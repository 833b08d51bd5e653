// The table of ops.
#include "common.h"

#ifndef LITE_OPS
#define LITE_OPS "ops.def"
#endif

namespace lite {

#define OP(name, check, run, kind)      \
  const char* check(Node& node, int); \
  void run(Node& node, int);
#include LITE_OPS
#undef OP

static const Op kOps[] = {
#define OP(name, check, run, kind) {#name, check, run, kind},
#include LITE_OPS
#undef OP
};

const Op* find_op(const char* name, int64_t length) {
  for (const Op& op : kOps) {
    auto own = static_cast<int64_t>(strlen(op.name));
    if (own == length && !memcmp(op.name, name, length)) return &op;
  }
  return nullptr;
}

}  // namespace lite
