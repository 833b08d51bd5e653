// Softmax and normalisation over the last axes.
#include <math.h>

#include "common.h"

namespace lite {

// attrs: the axis. With kind 1 the logarithm of it.
const char* check_softmax(Node& n, int) {
  TRY(arity(n, 1, 1, 1));
  TRY(all_float(n));
  NEED(same_shape(*n.input(0), *n.output()) && within(n, 0, 0, n.input(0)->rank - 1),
       "shapes do not fit");
  n.scratch = 2 * n.input(0)->dims[n.attrs[0]] * 4;
  return nullptr;
}

void run_softmax(Node& n, int logarithm) {
  const Tensor &x = *n.input(0), &y = *n.output();
  auto axis = static_cast<int>(n.attrs[0]);
  int64_t size = x.dims[axis], inner = x.product(axis + 1, x.rank);
  const Kernels& k = kernels_of(n);
  if (!x.count) return;
  parallel(*n.model, x.count / size, larger(1, 4096 / size), [&](int64_t from, int64_t to, int t) {
    auto* line = reinterpret_cast<float*>(n.model->scratch_of(t));
    for (int64_t o = from; o < to; o++) {
      int64_t at = o / inner * size * inner + o % inner;
      const float* given = x.as<float>() + at;
      float *taken = inner == 1 ? y.as<float>() + at : line + size, *out = y.as<float>() + at;
      if (inner != 1) {
        for (int64_t i = 0; i < size; i++) line[i] = given[i * inner];
        given = line;
      }
      float top = k.maximum(given, size);
      float sum = k.exp_sum(given, top, taken, size);
      if (logarithm) {
        float less = top + logf(sum);
        k.normalise(given, less, 1, nullptr, nullptr, taken, size);
      } else {
        k.normalise(taken, 0, 1 / sum, nullptr, nullptr, taken, size);
      }
      if (inner != 1)
        for (int64_t i = 0; i < size; i++) out[i * inner] = taken[i];
    }
  });
}

// norm(x, weight, bias): over the last attrs[0] axes, numbers: epsilon. With kind 1 by the root of
// the mean of squares alone, and without bias.
const char* check_norm(Node& n, int) {
  TRY(arity(n, 1, 3, 1));
  TRY(all_float(n));
  const Tensor& x = *n.input(0);
  NEED(same_shape(x, *n.output()) && within(n, 0, 0, x.rank) && n.numbers.size == 1,
       "shapes do not fit");
  int64_t size = x.product(static_cast<int>(x.rank - n.attrs[0]), x.rank);
  for (int i = 1; i < 3; i++)
    NEED(!n.has(i) || n.input(i)->count == size, "weight or bias does not fit");
  return nullptr;
}

void run_norm(Node& n, int root) {
  const Tensor &x = *n.input(0), &y = *n.output();
  int64_t size = x.product(static_cast<int>(x.rank - n.attrs[0]), x.rank);
  const float* weight = n.has(1) ? n.input(1)->as<float>() : nullptr;
  const float* bias = n.has(2) ? n.input(2)->as<float>() : nullptr;
  auto epsilon = static_cast<float>(n.numbers[0]);
  const Kernels& k = kernels_of(n);
  if (!x.count) return;
  parallel(*n.model, x.count / size, larger(1, 4096 / size), [&](int64_t from, int64_t to, int) {
    for (int64_t o = from; o < to; o++) {
      const float* p = x.as<float>() + o * size;
      float mean = root ? 0 : k.sum(p, size) / static_cast<float>(size);
      float variance = k.spread(p, mean, size) / static_cast<float>(size);
      k.normalise(p, mean, 1 / sqrtf(variance + epsilon), weight, bias, y.as<float>() + o * size,
                  size);
    }
  });
}

}  // namespace lite
