// Calls a kernel without XLA: pointers, sizes and a number of threads, for the cold tier.
//
// The handlers are functions of a call frame, a plain C struct. Here it is filled from C arrays;
// what handlers ask of XLA besides their operands (errors, threads) is answered by a small pool.

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "share.h"
#include "xla/ffi/api/c_api.h"

// XLA's header declares these two, and leaves to whoever calls handlers what they are.
struct XLA_FFI_Error {
  std::string message;
  XLA_FFI_Error_Code code;
};
#if XLA_FFI_API_MAJOR > 0 || XLA_FFI_API_MINOR >= 4  // jaxlib 0.11 renamed it
struct XLA_FFI_InvokeContext {
#else
struct XLA_FFI_ExecutionContext {
#endif
  int64_t threads;
};

namespace {

// Threads that sleep until there is work. They are never joined, and the pool never destroyed.
class Pool {
 public:
  static Pool& Get() {
    static Pool* pool = new Pool;
    return *pool;
  }

  void Schedule(int64_t threads, XLA_FFI_Task* task, void* data) {
    {
      std::lock_guard<std::mutex> hold(mutex_);
      tasks_.push_back({task, data});
      if (started_ < threads - 1) {
        ++started_;
        std::thread([this] { Work(); }).detach();
      }
    }
    wake_.notify_one();
  }

 private:
  struct Task {
    XLA_FFI_Task* run;
    void* data;
  };

  void Work() {
    for (;;) {
      Task task;
      {
        std::unique_lock<std::mutex> hold(mutex_);
        wake_.wait(hold, [this] { return !tasks_.empty(); });
        task = tasks_.front();
        tasks_.pop_front();
      }
      task.run(task.data);
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Task> tasks_;
  int64_t started_ = 0;
};

}  // namespace

namespace bireme {

void Share(int64_t threads, int64_t count, const std::function<void(int64_t)>& work) {
  struct Shared {
    std::atomic<int64_t> next{0}, done{0};
    std::function<void(int64_t)> work;
    int64_t count;
  };
  auto shared = std::make_shared<Shared>();
  shared->work = work;
  shared->count = count;
  const auto run = [](Shared& s) {
    for (int64_t i; (i = s.next.fetch_add(1)) < s.count;) {
      s.work(i);
      s.done.fetch_add(1, std::memory_order_release);
    }
  };
  for (int64_t h = 1; h < std::min(threads, count); ++h)
    Pool::Get().Schedule(
        threads,
        [](void* data) {
          auto* held = static_cast<std::function<void()>*>(data);
          (*held)();
          delete held;
        },
        new std::function<void()>([shared, run] { run(*shared); }));
  run(*shared);
  while (shared->done.load(std::memory_order_acquire) < count) std::this_thread::yield();
}

}  // namespace bireme

namespace {

XLA_FFI_Error* CreateError(XLA_FFI_Error_Create_Args* args) {
  return new XLA_FFI_Error{args->message, args->errc};
}

#if XLA_FFI_API_MAJOR > 0 || XLA_FFI_API_MINOR >= 4
void GetDetails(XLA_FFI_Error_GetDetails_Args* args) {
  args->message = args->error->message.c_str();
  args->errc = args->error->code;
}
#else
void GetMessage(XLA_FFI_Error_GetMessage_Args* args) { args->message = args->error->message.c_str(); }
#endif

void DestroyError(XLA_FFI_Error_Destroy_Args* args) { delete args->error; }

XLA_FFI_Error* Schedule(XLA_FFI_ThreadPool_Schedule_Args* args) {
  Pool::Get().Schedule(args->ctx->threads, args->task, args->data);
  return nullptr;
}

XLA_FFI_Error* NumThreads(XLA_FFI_ThreadPool_NumThreads_Args* args) {
  *args->num_threads = args->ctx->threads;
  return nullptr;
}

const XLA_FFI_Api* Api() {
  static const XLA_FFI_Api* api = [] {
    XLA_FFI_Api* made = new XLA_FFI_Api();
    made->struct_size = XLA_FFI_Api_STRUCT_SIZE;
    made->api_version.struct_size = XLA_FFI_Api_Version_STRUCT_SIZE;
    made->api_version.major_version = XLA_FFI_API_MAJOR;
    made->api_version.minor_version = XLA_FFI_API_MINOR;
    made->XLA_FFI_Error_Create = CreateError;
#if XLA_FFI_API_MAJOR > 0 || XLA_FFI_API_MINOR >= 4
    made->XLA_FFI_Error_GetDetails = GetDetails;
#else
    made->XLA_FFI_Error_GetMessage = GetMessage;
#endif
    made->XLA_FFI_Error_Destroy = DestroyError;
    made->XLA_FFI_ThreadPool_Schedule = Schedule;
    made->XLA_FFI_ThreadPool_NumThreads = NumThreads;
    return made;
  }();
  return api;
}

// An operand or a result, as the caller lays it out.
struct Array {
  void* data;
  const int64_t* dims;
  int64_t rank;
  int64_t type;  // an XLA_FFI_DataType
};

struct Number {
  const char* name;
  void* value;
  int64_t type;
};

std::vector<XLA_FFI_Buffer> Buffers(const Array* arrays, int64_t count) {
  std::vector<XLA_FFI_Buffer> made(count);
  for (int64_t i = 0; i < count; ++i) {
    made[i].struct_size = XLA_FFI_Buffer_STRUCT_SIZE;
    made[i].extension_start = nullptr;
    made[i].dtype = static_cast<XLA_FFI_DataType>(arrays[i].type);
    made[i].data = arrays[i].data;
    made[i].rank = arrays[i].rank;
    made[i].dims = const_cast<int64_t*>(arrays[i].dims);
  }
  return made;
}

}  // namespace

// Runs a handler. Numbers are sorted by name. False if it failed: then `message` says why.
extern "C" bool bireme_run_directly(XLA_FFI_Handler* handler, int64_t threads,
                                    const Array* operands, int64_t operand_count,
                                    const Array* results, int64_t result_count,
                                    const Number* numbers, int64_t number_count, char* message,
                                    int64_t message_size) {
  std::vector<XLA_FFI_Buffer> in = Buffers(operands, operand_count);
  std::vector<XLA_FFI_Buffer> out = Buffers(results, result_count);
  std::vector<XLA_FFI_ArgType> in_types(operand_count, XLA_FFI_ArgType_BUFFER);
  std::vector<XLA_FFI_RetType> out_types(result_count, XLA_FFI_RetType_BUFFER);
  std::vector<XLA_FFI_AttrType> number_types(number_count, XLA_FFI_AttrType_SCALAR);
  std::vector<void*> in_at(operand_count), out_at(result_count), numbers_at(number_count);
  std::vector<XLA_FFI_Scalar> scalars(number_count);
  std::vector<XLA_FFI_ByteSpan> names(number_count);
  std::vector<XLA_FFI_ByteSpan*> names_at(number_count);
  for (int64_t i = 0; i < operand_count; ++i) in_at[i] = &in[i];
  for (int64_t i = 0; i < result_count; ++i) out_at[i] = &out[i];
  for (int64_t i = 0; i < number_count; ++i) {
    scalars[i] = {static_cast<XLA_FFI_DataType>(numbers[i].type), numbers[i].value};
    names[i] = {numbers[i].name, std::char_traits<char>::length(numbers[i].name)};
    numbers_at[i] = &scalars[i];
    names_at[i] = &names[i];
  }
  XLA_FFI_ExecutionContext context{threads};
  XLA_FFI_CallFrame frame{};
  frame.struct_size = XLA_FFI_CallFrame_STRUCT_SIZE;
  frame.api = Api();
  frame.ctx = &context;
  frame.stage = XLA_FFI_ExecutionStage_EXECUTE;
  frame.args = {XLA_FFI_Args_STRUCT_SIZE, nullptr, operand_count, in_types.data(), in_at.data()};
  frame.rets = {XLA_FFI_Rets_STRUCT_SIZE, nullptr, result_count, out_types.data(), out_at.data()};
  frame.attrs = {XLA_FFI_Attrs_STRUCT_SIZE, nullptr, number_count,
                 number_types.data(),       names_at.data(), numbers_at.data()};
  XLA_FFI_Error* error = handler(&frame);
  if (error == nullptr) return true;
  const size_t length = std::min<size_t>(error->message.size(), message_size - 1);
  error->message.copy(message, length);
  message[length] = 0;
  delete error;
  return false;
}

// A product of row-major matrices, c [m, n] = a [m, k] times b [k, n] (or their transposes), by
// CBLAS's function for 64-bit sizes, shared among threads in blocks of rows or columns.
using Sgemm = void(int, int, int, int64_t, int64_t, int64_t, float, const float*, int64_t,
                   const float*, int64_t, float, float*, int64_t);

extern "C" void bireme_shared_product(Sgemm* sgemm, int64_t threads, bool turn_a, bool turn_b,
                                      int64_t m, int64_t n, int64_t k, const float* a, int64_t lda,
                                      const float* b, int64_t ldb, float* c) {
  constexpr int kRowMajor = 101, kPlain = 111, kTurned = 112;
  constexpr int64_t kStep = 16;  // a cache line of outputs
  const bool by_rows = m >= n;
  const int64_t length = by_rows ? m : n;
  const int64_t each = ((length + threads - 1) / threads + kStep - 1) / kStep * kStep;
  bireme::Share(threads, (length + each - 1) / each, [=](int64_t i) {
    const int64_t first = i * each, count = std::min(each, length - first);
    const float* from_a = by_rows ? a + (turn_a ? first : first * lda) : a;
    const float* from_b = by_rows ? b : b + (turn_b ? first * ldb : first);
    sgemm(kRowMajor, turn_a ? kTurned : kPlain, turn_b ? kTurned : kPlain, by_rows ? count : m,
          by_rows ? n : count, k, 1.0f, from_a, lda, from_b, ldb, 0.0f,
          c + (by_rows ? first * n : first), n);
  });
}
