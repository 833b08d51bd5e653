// Work sharing among the cold tier's threads, without XLA.
#pragma once

#include <cstdint>
#include <functional>

namespace bireme {

// Calls work(i) for i in [0, count) on so many threads; the caller is one of them, and waits only
// for what somebody has begun.
void Share(int64_t threads, int64_t count, const std::function<void(int64_t)>& work);

}  // namespace bireme
