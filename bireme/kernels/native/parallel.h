// Work sharing among XLA's threads, or a team that is awake.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>

#include "team.h"
#include "xla/ffi/api/ffi.h"

namespace bireme {

// Calls work(i) for i in [0, count) on XLA's own threads. The caller takes part, so progress never
// depends on the pool having a free thread, and it waits only for items that somebody has already
// begun.
template <typename Work>
void PoolFor(xla::ffi::ThreadPool& pool, int64_t count, const Work& work) {
  int64_t helpers = pool.num_threads() - 1;
  if (helpers > count - 1) helpers = count - 1;
  if (helpers <= 0) {
    for (int64_t i = 0; i < count; ++i) work(i);
    return;
  }
  struct Shared {
    std::atomic<int64_t> next{0};
    std::atomic<int64_t> done{0};
  };
  auto shared = std::make_shared<Shared>();
  const Work* body = &work;
  auto run = [shared, body, count]() {
    int64_t i;
    while ((i = shared->next.fetch_add(1)) < count) {
      (*body)(i);
      shared->done.fetch_add(1, std::memory_order_release);
    }
  };
  for (int64_t h = 0; h < helpers; ++h) pool.Schedule(decltype(run)(run));
  run();
  for (int spins = 0; shared->done.load(std::memory_order_acquire) < count; ++spins) {
    if (spins > 1000) std::this_thread::yield();
  }
}

// The same with a team that waits awake for the next call: for kernels that follow each other
// closely. While another kernel has the team, XLA's threads do the work.
template <typename Work>
void TeamFor(xla::ffi::ThreadPool& pool, int64_t count, const Work& work) {
  const int64_t threads = pool.num_threads();
  if (threads < 2 || count < 2) {
    for (int64_t i = 0; i < count; ++i) work(i);
  } else if (!Team::Get(threads).Run(count, work)) {
    PoolFor(pool, count, work);
  }
}

// For kernels of any program: with the team where it is awake, so that it need not be fought with
// for a core, and with XLA's threads otherwise.
template <typename Work>
void ParallelFor(xla::ffi::ThreadPool& pool, int64_t count, const Work& work) {
  Team::Awake() ? TeamFor(pool, count, work) : PoolFor(pool, count, work);
}

}  // namespace bireme
