// Threads that wait awake for the next piece of work.
//
// The kernels of a small net take microseconds each, less than it takes to wake a thread of XLA's
// pool. The members of the team spin for a moment after each kernel, so within a run they are
// there at once; soon after the last kernel of a run they sleep.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#if defined(__linux__)
#include <pthread.h>
#endif

namespace bireme {

class Team {
 public:
  // The process's team, of so many threads with the caller. It is never destroyed: its threads end
  // with the process.
  static Team& Get(int64_t threads) {
    static Team* team = new Team(threads - 1);
    return *team;
  }

  // Whether a kernel has just used the team.
  static bool Awake() { return awake_.load(std::memory_order_relaxed) > 0; }

  // Calls work(i) for i in [0, count) on the caller and the members that come along. False, with
  // nothing done, if another kernel has the team.
  template <typename Work>
  bool Run(int64_t count, const Work& work) {
    if (busy_.exchange(true, std::memory_order_acquire)) return false;
    body_ = [](const void* w, int64_t i) { (*static_cast<const Work*>(w))(i); };
    work_ = &work;
    count_ = count;
    taken_.store(0, std::memory_order_relaxed);
    back_.store(0, std::memory_order_relaxed);
    round_.fetch_add(1, std::memory_order_relaxed);
    inside_.store(0, std::memory_order_seq_cst);  // opens the door
    if (asleep_.load(std::memory_order_seq_cst) > 0) {
      { std::lock_guard<std::mutex> hold(mutex_); }  // nobody is between looking and sleeping
      wake_.notify_all();
    }
    for (int64_t i = 0; taken_.fetch_add(1, std::memory_order_relaxed) < count; ++i) work(i);
    // Closed once nobody is inside, so that nobody looks at `work` after this function.
    Patience patience;
    int64_t nobody = 0;
    while (!inside_.compare_exchange_weak(nobody, kClosed, std::memory_order_acq_rel)) {
      nobody = 0;
      patience.Wait();
    }
    busy_.store(false, std::memory_order_release);
    return true;
  }

 private:
  static constexpr int64_t kClosed = -1;
  static constexpr std::chrono::microseconds kSpin{1000};

  // Waiting awake: a little, then with the core offered to others that want to run.
  class Patience {
   public:
    // True now and then: time to look at the clock.
    bool Wait() {
      if (++count_ % 64 == 0) {
        std::this_thread::yield();
        return true;
      }
#if defined(__x86_64__)
      __builtin_ia32_pause();
#elif defined(__aarch64__)
      asm volatile("yield");
#endif
      return false;
    }

   private:
    int64_t count_ = 0;
  };

  explicit Team(int64_t members) {
    for (int64_t i = 0; i < members; ++i) std::thread([this] { Member(); }).detach();
  }

  // The caller takes the first pieces and the members the last ones, so that in the next kernel a
  // thread finds most of what it has written in its own cache.
  void TakeLast() {
    const int64_t count = count_;
    while (taken_.fetch_add(1, std::memory_order_relaxed) < count)
      body_(work_, count - 1 - back_.fetch_add(1, std::memory_order_relaxed));
  }

  void Member() {
#if defined(__linux__)
    pthread_setname_np(pthread_self(), "bireme_team");
#endif
    int64_t last = 0;  // the round that this member has seen
    awake_.fetch_add(1, std::memory_order_relaxed);
    for (;;) {
      Await(last);
      int64_t inside = inside_.load(std::memory_order_acquire);
      while (inside != kClosed &&
             !inside_.compare_exchange_weak(inside, inside + 1, std::memory_order_acq_rel)) {
      }
      if (inside == kClosed) continue;  // too late: the others did it all
      last = round_.load(std::memory_order_relaxed);
      TakeLast();
      inside_.fetch_sub(1, std::memory_order_release);
    }
  }

  bool News(int64_t last) const {
    return inside_.load(std::memory_order_seq_cst) != kClosed &&
           round_.load(std::memory_order_relaxed) != last;
  }

  // Until there is a round that is not `last`: awake at first, then asleep.
  void Await(int64_t last) {
    const auto until = std::chrono::steady_clock::now() + kSpin;
    Patience patience;
    while (!News(last)) {
      if (!patience.Wait() || std::chrono::steady_clock::now() < until) continue;
      std::unique_lock<std::mutex> hold(mutex_);
      awake_.fetch_sub(1, std::memory_order_relaxed);
      asleep_.fetch_add(1, std::memory_order_seq_cst);
      wake_.wait(hold, [&] { return News(last); });
      asleep_.fetch_sub(1, std::memory_order_seq_cst);
      awake_.fetch_add(1, std::memory_order_relaxed);
      return;
    }
  }

  static inline std::atomic<int64_t> awake_{0};  // members that are not asleep
  alignas(64) std::atomic<int64_t> inside_{kClosed};  // members at work, or kClosed
  std::atomic<int64_t> round_{0};
  alignas(64) std::atomic<int64_t> taken_{0};  // pieces that somebody has
  std::atomic<int64_t> back_{0};               // of them, from the end
  alignas(64) std::atomic<bool> busy_{false};
  std::atomic<int64_t> asleep_{0};
  void (*body_)(const void*, int64_t) = nullptr;
  const void* work_ = nullptr;
  int64_t count_ = 0;
  std::mutex mutex_;
  std::condition_variable wake_;
};

}  // namespace bireme
