// A few threads that share loops. Without LITE_THREADS there is only the caller's.
#pragma once

#include "model.h"

namespace lite {

using Task = void (*)(void* context, int64_t begin, int64_t end, int thread);

Pool* make_pool(int threads);
void free_pool(Pool* pool);
// Splits 0..count into `parts` of about one size and runs them; `grain` is the least of a part.
void share(const Model& model, int64_t count, int64_t grain, Task task, void* context);

// share() for a callable of (begin, end, thread).
template <class F>
void parallel(const Model& model, int64_t count, int64_t grain, F&& f) {
  share(model, count, grain, [](void* c, int64_t b, int64_t e, int t) {
    (*static_cast<F*>(c))(b, e, t);
  }, &f);
}

}  // namespace lite
