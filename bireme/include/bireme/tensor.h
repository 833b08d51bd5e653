// paddle::Tensor: a shape, a type and a place over memory that XLA or this library owns.
#pragma once

#include <cstdlib>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "bireme/types.h"

namespace bireme {

// Where a kernel runs, and the results' own memory that new tensors may use. A kernel makes its
// results with paddle::empty; lending them the final memory saves a copy.
struct Runtime {
  struct Room {
    void* data;
    size_t bytes;
    bool taken;
  };
  std::vector<Room> rooms;
  paddle::PlaceType place = paddle::PlaceType::kCPU;
  void* stream = nullptr;
  void* (*allocate)(Runtime*, size_t) = nullptr;                          // null: the heap
  void (*copy)(Runtime*, void* to, const void* from, size_t) = nullptr;  // null: memcpy
  void (*upload)(Runtime*, void* to, const void* from, size_t) = nullptr;
  void* owner = nullptr;

  static Runtime*& Current() {
    static thread_local Runtime* current = nullptr;
    return current;
  }

  std::shared_ptr<void> Take(size_t bytes) {
    for (Room& room : rooms) {
      if (!room.taken && room.bytes == bytes && bytes > 0) {
        room.taken = true;
        return std::shared_ptr<void>(room.data, [](void*) {});
      }
    }
    return Scratch(bytes);
  }

  std::shared_ptr<void> Scratch(size_t bytes) {
    if (allocate != nullptr) {
      return std::shared_ptr<void>(allocate(this, bytes), [](void*) {});
    }
    const size_t rounded = ((bytes > 0 ? bytes : 1) + 63) / 64 * 64;
    void* data = std::aligned_alloc(64, rounded);
    if (data == nullptr) PD_THROW("no memory for a tensor of ", bytes, " bytes");
    return std::shared_ptr<void>(data, [](void* p) { std::free(p); });
  }

  void Copy(void* to, const void* from, size_t bytes) {
    if (bytes == 0 || to == from) return;
    copy != nullptr ? copy(this, to, from, bytes) : (void)std::memcpy(to, from, bytes);
  }

  static Runtime& Get() {
    static thread_local Runtime plain;
    Runtime* current = Current();
    return current != nullptr ? *current : plain;
  }
};

}  // namespace bireme

namespace paddle {

class Tensor final {
 public:
  Tensor() = default;
  explicit Tensor(const Place& place) : body_(std::make_shared<Body>()) { body_->place = place; }
  Tensor(const Place& place, const std::vector<int64_t>& shape) : Tensor(place) {
    body_->shape = shape;
  }
  Tensor(std::vector<int64_t> shape, DataType type, Place place, std::shared_ptr<void> memory)
      : body_(std::make_shared<Body>()) {
    body_->shape = std::move(shape);
    body_->type = type;
    body_->place = place;
    body_->data = memory.get();
    body_->memory = std::move(memory);
  }

  std::vector<int64_t> shape() const { return Get().shape; }
  int64_t numel() const {
    return std::accumulate(Get().shape.begin(), Get().shape.end(), int64_t{1},
                           std::multiplies<int64_t>());
  }
  int64_t size() const { return numel(); }
  DataType dtype() const { return Get().type; }
  DataType type() const { return Get().type; }
  const Place& place() const { return Get().place; }
  bool is_cpu() const { return Get().place == PlaceType::kCPU; }
  bool is_gpu() const { return Get().place == PlaceType::kGPU; }
  bool is_dense_tensor() const { return true; }
  bool is_contiguous() const { return true; }
  bool defined() const { return body_ != nullptr; }
  bool initialized() const { return body_ != nullptr && body_->memory != nullptr; }
  bool is_initialized() const { return initialized(); }
  explicit operator bool() const { return initialized(); }
  void reset() { body_.reset(); }
  size_t bytes() const { return static_cast<size_t>(numel()) * SizeOf(dtype()); }

  template <typename T>
  T* data() {
    return Typed<T>();
  }
  template <typename T>
  const T* data() const {
    return Typed<T>();
  }
  void* data() { return Get().data; }
  const void* data() const { return Get().data; }

  // Memory for elements of type T, made on first use.
  template <typename T>
  T* mutable_data() {
    Body& body = Get();
    if (body.memory == nullptr) {
      body.type = TypeOf<T>::value;
      if (body.place == PlaceType::kUNK) body.place = bireme::Runtime::Get().place;
      body.memory = bireme::Runtime::Get().Take(bytes());
      body.data = body.memory.get();
    }
    return Typed<T>();
  }
  template <typename T>
  T* mutable_data(const Place& place) {
    if (!initialized()) Get().place = place;
    return mutable_data<T>();
  }

  void reshape(const std::vector<int64_t>& shape) {
    const int64_t before = numel();
    std::vector<int64_t> old = std::exchange(Get().shape, shape);
    if (initialized() && numel() != before) {
      Get().shape = std::move(old);
      PD_THROW("reshape: ", before, " elements do not fit the new shape");
    }
  }

  // Rows begin to end of the first dimension, in the same memory.
  Tensor slice(int64_t begin, int64_t end) const {
    const Body& body = Get();
    if (body.shape.empty() || begin < 0 || end < begin || end > body.shape[0]) {
      PD_THROW("slice: rows ", begin, " to ", end, " are not in the tensor");
    }
    Tensor part(body.shape, body.type, body.place, body.memory);
    const size_t row = body.shape[0] == 0 ? 0 : bytes() / static_cast<size_t>(body.shape[0]);
    part.body_->shape[0] = end - begin;
    part.body_->data = static_cast<char*>(body.data) + row * static_cast<size_t>(begin);
    return part;
  }

  Tensor contiguous() const { return *this; }
  Tensor cast(DataType target) const;
  Tensor copy_to(const Place& target, bool = true) const {
    if (target != place()) PD_THROW("copy_to: a kernel's tensors stay in the kernel's place");
    bireme::Runtime& runtime = bireme::Runtime::Get();
    Tensor made(shape(), dtype(), place(), runtime.Take(bytes()));
    runtime.Copy(made.data(), data(), bytes());
    return made;
  }
  template <typename T>
  Tensor copy_to(const Place& target) const {
    return copy_to(target);
  }

#ifdef PADDLE_WITH_CUDA
  cudaStream_t stream() const {
    return static_cast<cudaStream_t>(bireme::Runtime::Get().stream);
  }
#endif

 private:
  struct Body {
    std::vector<int64_t> shape;
    DataType type = DataType::UNDEFINED;
    Place place;
    std::shared_ptr<void> memory;
    void* data = nullptr;
  };

  Body& Get() const {
    if (body_ == nullptr) PD_THROW("an empty tensor was used");
    return *body_;
  }

  template <typename T>
  T* Typed() const {
    if (Get().type != TypeOf<std::remove_const_t<T>>::value) {
      PD_THROW("the tensor's elements are ", Get().type, ", but data<",
               TypeOf<std::remove_const_t<T>>::value, ">() was asked for");
    }
    return static_cast<T*>(Get().data);
  }

  template <typename From, typename To>
  void Convert(To* out) const {
    const From* in = data<From>();
    for (int64_t i = 0, n = numel(); i < n; ++i) out[i] = static_cast<To>(in[i]);
  }

  std::shared_ptr<Body> body_;
};

using IntArray = std::vector<int64_t>;

inline Tensor empty(const IntArray& shape, DataType dtype = DataType::FLOAT32,
                    const Place& place = Place()) {
  bireme::Runtime& runtime = bireme::Runtime::Get();
  if (place != PlaceType::kUNK && place != runtime.place) {
    PD_THROW("empty: a kernel can make tensors in its own place only");
  }
  const size_t count = static_cast<size_t>(
      std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<int64_t>()));
  return Tensor(shape, dtype, runtime.place, runtime.Take(count * SizeOf(dtype)));
}

inline Tensor empty_like(const Tensor& x, DataType dtype = DataType::UNDEFINED,
                         const Place& place = Place()) {
  return empty(x.shape(), dtype == DataType::UNDEFINED ? x.dtype() : dtype, place);
}

}  // namespace paddle

#include "bireme/dispatch.h"

namespace bireme {

// Runs `fill(pointer, count)` on host memory that ends up in `made`.
template <typename T, typename Fill>
void Write(paddle::Tensor* made, const Fill& fill) {
  Runtime& runtime = Runtime::Get();
  const size_t count = static_cast<size_t>(made->numel());
  if (runtime.upload == nullptr) {
    fill(made->data<T>(), count);
    return;
  }
  std::unique_ptr<T[]> host(new T[count]);
  fill(host.get(), count);
  runtime.upload(&runtime, made->data(), host.get(), count * sizeof(T));
}

}  // namespace bireme

#define BIREME_ALL_CASES(...)                                                 \
  BIREME_CASE(BOOL, bool, data_t, __VA_ARGS__)                                \
  BIREME_FLOATING(data_t, __VA_ARGS__) BIREME_HALF(data_t, __VA_ARGS__)       \
      BIREME_INTEGRAL(data_t, __VA_ARGS__) BIREME_COMPLEX(data_t, __VA_ARGS__)

namespace paddle {

inline Tensor full(const IntArray& shape, double value, DataType dtype = DataType::FLOAT32,
                   const Place& place = Place()) {
  Tensor made = empty(shape, dtype, place);
  BIREME_DISPATCH(dtype, "full", BIREME_ALL_CASES([&] {
                    bireme::Write<data_t>(&made, [&](data_t* out, size_t count) {
                      for (size_t i = 0; i < count; ++i) out[i] = static_cast<data_t>(value);
                    });
                  }));
  return made;
}
inline Tensor full_like(const Tensor& x, double value, DataType dtype = DataType::UNDEFINED,
                        const Place& place = Place()) {
  return full(x.shape(), value, dtype == DataType::UNDEFINED ? x.dtype() : dtype, place);
}
inline Tensor zeros(const IntArray& shape, DataType dtype = DataType::FLOAT32,
                    const Place& place = Place()) {
  return full(shape, 0, dtype, place);
}
inline Tensor zeros_like(const Tensor& x, DataType dtype = DataType::UNDEFINED,
                         const Place& place = Place()) {
  return full_like(x, 0, dtype, place);
}
inline Tensor ones(const IntArray& shape, DataType dtype = DataType::FLOAT32,
                   const Place& place = Place()) {
  return full(shape, 1, dtype, place);
}
inline Tensor ones_like(const Tensor& x, DataType dtype = DataType::UNDEFINED,
                        const Place& place = Place()) {
  return full_like(x, 1, dtype, place);
}

inline Tensor Tensor::cast(DataType target) const {
  if (!is_cpu()) PD_THROW("cast: of tensors on the CPU only");
  if (dtype() == DataType::COMPLEX64 || dtype() == DataType::COMPLEX128 ||
      target == DataType::COMPLEX64 || target == DataType::COMPLEX128) {
    PD_THROW("cast: between real types only");
  }
  Tensor made = empty(shape(), target, place());
  const auto real_cases = [&](auto* out) {
    BIREME_DISPATCH(dtype(), "cast",
                    BIREME_CASE(BOOL, bool, data_t, [&] { Convert<data_t>(out); })
                        BIREME_FLOATING(data_t, [&] { Convert<data_t>(out); })
                            BIREME_HALF(data_t, [&] { Convert<data_t>(out); })
                                BIREME_INTEGRAL(data_t, [&] { Convert<data_t>(out); }));
  };
  BIREME_DISPATCH(target, "cast",
                  BIREME_CASE(BOOL, bool, data_t, [&] { real_cases(made.data<data_t>()); })
                      BIREME_FLOATING(data_t, [&] { real_cases(made.data<data_t>()); })
                          BIREME_HALF(data_t, [&] { real_cases(made.data<data_t>()); })
                              BIREME_INTEGRAL(data_t, [&] { real_cases(made.data<data_t>()); }));
  return made;
}

namespace experimental {
using paddle::empty;
using paddle::empty_like;
using paddle::full;
using paddle::full_like;
using paddle::ones;
using paddle::ones_like;
using paddle::zeros;
using paddle::zeros_like;
}  // namespace experimental

}  // namespace paddle
