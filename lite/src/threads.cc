#include "threads.h"

#ifdef LITE_THREADS
#include <pthread.h>
#endif

namespace lite {

#ifdef LITE_THREADS

struct Pool {
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t wake = PTHREAD_COND_INITIALIZER, done = PTHREAD_COND_INITIALIZER;
  int64_t count = 0, parts = 0, next = 0, open = 0;
  Task task = nullptr;
  void* context = nullptr;
  bool ends = false;
  int threads = 0;  // beside the caller's
  struct Worker {
    Pool* pool;
    int number;
    pthread_t thread;
  };
  Array<Worker> workers;

  // Called and returns with the lock held.
  void work(int thread) {
    while (next < parts) {
      int64_t part = next++;
      Task now = task;
      void* with = context;
      int64_t begin = count * part / parts, end = count * (part + 1) / parts;
      pthread_mutex_unlock(&lock);
      now(with, begin, end, thread);
      pthread_mutex_lock(&lock);
      if (--open == 0) pthread_cond_broadcast(&done);
    }
  }
};

static void* worker_main(void* given) {
  auto* worker = static_cast<Pool::Worker*>(given);
  Pool& pool = *worker->pool;
  pthread_mutex_lock(&pool.lock);
  while (!pool.ends) {
    pool.work(worker->number);
    if (!pool.ends) pthread_cond_wait(&pool.wake, &pool.lock);
  }
  pthread_mutex_unlock(&pool.lock);
  return nullptr;
}

Pool* make_pool(int threads) {
  auto* pool = static_cast<Pool*>(malloc(sizeof(Pool)));
  if (!pool) return nullptr;
  new (pool) Pool();
  if (!pool->workers.make(threads - 1)) {
    pool->~Pool();
    free(pool);
    return nullptr;
  }
  for (int i = 0; i < threads - 1; i++) {
    pool->workers[i] = {pool, i + 1, {}};
    if (pthread_create(&pool->workers[i].thread, nullptr, worker_main, &pool->workers[i])) break;
    pool->threads++;
  }
  return pool;
}

void free_pool(Pool* pool) {
  if (!pool) return;
  pthread_mutex_lock(&pool->lock);
  pool->ends = true;
  pthread_cond_broadcast(&pool->wake);
  pthread_mutex_unlock(&pool->lock);
  for (int i = 0; i < pool->threads; i++) pthread_join(pool->workers[i].thread, nullptr);
  pool->~Pool();
  free(pool);
}

void share(const Model& model, int64_t count, int64_t grain, Task task, void* context) {
  Pool* pool = model.pool;
  int64_t parts = pool ? smaller(count / larger(grain, 1), 4 * (pool->threads + 1)) : 1;
  if (parts <= 1) {
    if (count > 0) task(context, 0, count, 0);
    return;
  }
  pthread_mutex_lock(&pool->lock);
  pool->count = count;
  pool->parts = parts;
  pool->open = parts;
  pool->next = 0;
  pool->task = task;
  pool->context = context;
  pthread_cond_broadcast(&pool->wake);
  pool->work(0);
  while (pool->open) pthread_cond_wait(&pool->done, &pool->lock);
  pthread_mutex_unlock(&pool->lock);
}

#else

struct Pool {};
Pool* make_pool(int) { return nullptr; }
void free_pool(Pool*) {}
void share(const Model&, int64_t count, int64_t, Task task, void* context) {
  if (count > 0) task(context, 0, count, 0);
}

#endif

}  // namespace lite
