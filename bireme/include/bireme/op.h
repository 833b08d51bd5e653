// PD_BUILD_OP: what an operator takes, gives and does, and how its function is called.
#pragma once

#include <cerrno>
#include <deque>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "bireme/tensor.h"

namespace bireme {

// An attribute's values as text; each reader asks for the type that the kernel declares.
struct Attribute {
  std::vector<std::string> items;
};

template <typename T>
T ReadItem(const std::string& text) {
  if constexpr (std::is_same_v<T, std::string>) {
    return text;
  } else if constexpr (std::is_same_v<T, bool>) {
    return text == "1";
  } else if constexpr (std::is_integral_v<T>) {
    const long long value = std::strtoll(text.c_str(), nullptr, 10);
    if (static_cast<long long>(static_cast<T>(value)) != value) {
      PD_THROW("the attribute's value ", text, " does not fit the kernel's type");
    }
    return static_cast<T>(value);
  } else {
    return static_cast<T>(std::strtod(text.c_str(), nullptr));
  }
}

// One declared input: a tensor, a list of them (Vec), or nothing (Optional that was not given).
template <typename Item>
struct Slot {
  bool is_list = false;
  bool present = true;
  std::vector<Item> items;
};

// What the readers below walk through: inputs in order, then attributes in order.
template <typename Item>
struct Arguments {
  std::vector<Slot<Item>> inputs;
  std::vector<Attribute> attributes;
  std::vector<Item*> outputs;  // for kernels that take Tensor*
  size_t input = 0, attribute = 0, output = 0;

  Slot<Item>& NextInput(bool list) {
    if (input >= inputs.size() || inputs[input].is_list != list) {
      PD_THROW("the function's parameters do not fit the inputs that the operator declares");
    }
    return inputs[input++];
  }
  const Attribute& NextAttribute() {
    if (attribute >= attributes.size()) {
      PD_THROW("the function takes more attributes than the operator declares");
    }
    return attributes[attribute++];
  }
};

template <typename T>
struct IsVector : std::false_type {};
template <typename T>
struct IsVector<std::vector<T>> : std::true_type {
  using Element = T;
};
template <typename T>
struct IsOptional : std::false_type {};
template <typename T>
struct IsOptional<std::optional<T>> : std::true_type {
  using Element = T;
};

// The value for a parameter of type T among arguments whose inputs are Items.
template <typename T, typename Item>
T Read(Arguments<Item>& from) {
  if constexpr (std::is_same_v<T, Item>) {
    if constexpr (std::is_same_v<Item, std::vector<int64_t>>) {
      // A list of integers after the last input is an attribute.
      if (from.input >= from.inputs.size()) {
        std::vector<int64_t> values;
        for (const std::string& item : from.NextAttribute().items) {
          values.push_back(ReadItem<int64_t>(item));
        }
        return values;
      }
    }
    Slot<Item>& slot = from.NextInput(false);
    return slot.present ? slot.items.at(0) : Item();
  } else if constexpr (std::is_same_v<T, std::vector<Item>>) {
    return from.NextInput(true).items;
  } else if constexpr (std::is_same_v<T, Item*>) {
    if (from.output >= from.outputs.size()) PD_THROW("the function takes too many results");
    return from.outputs[from.output++];
  } else if constexpr (IsOptional<T>::value) {
    using Inner = typename IsOptional<T>::Element;
    if constexpr (std::is_same_v<Inner, Item>) {
      Slot<Item>& slot = from.NextInput(false);
      return slot.present ? T(slot.items.at(0)) : T();
    } else {
      static_assert(std::is_same_v<Inner, std::vector<Item>>, "not a type of input");
      Slot<Item>& slot = from.NextInput(true);
      return slot.present ? T(slot.items) : T();
    }
  } else if constexpr (IsVector<T>::value) {
    T values;
    for (const std::string& item : from.NextAttribute().items) {
      values.push_back(ReadItem<typename IsVector<T>::Element>(item));
    }
    return values;
  } else {
    static_assert(std::is_arithmetic_v<T> || std::is_same_v<T, std::string>,
                  "operators take tensors, bool, int, int64_t, float, double, std::string, and "
                  "vectors of these");
    return ReadItem<T>(from.NextAttribute().items.at(0));
  }
}

template <typename T>
using Plain = std::remove_cv_t<std::remove_reference_t<T>>;

// Calls a function with parameters read from `from`, in order.
template <auto function, typename Item, typename Return, typename... Parameters>
Return CallWith(Return (*)(Parameters...), Arguments<Item>& from) {
  std::tuple<Plain<Parameters>...> values{Read<Plain<Parameters>>(from)...};
  return std::apply([](auto&... each) { return function(each...); }, values);
}

using Shape = std::vector<int64_t>;
using Tensors = std::vector<paddle::Tensor>;
using KernelFunction = Tensors (*)(Arguments<paddle::Tensor>&);
using ShapeFunction = std::vector<Shape> (*)(Arguments<Shape>&);
using TypeFunction = std::vector<paddle::DataType> (*)(Arguments<paddle::DataType>&);

template <auto function>
Tensors RunKernel(Arguments<paddle::Tensor>& from) {
  using Return = decltype(CallWith<function>(function, from));
  if constexpr (std::is_void_v<Return>) {
    CallWith<function>(function, from);
    return {};
  } else {
    return CallWith<function>(function, from);
  }
}
template <auto function>
std::vector<Shape> RunShape(Arguments<Shape>& from) {
  return CallWith<function>(function, from);
}
template <auto function>
std::vector<paddle::DataType> RunType(Arguments<paddle::DataType>& from) {
  return CallWith<function>(function, from);
}

}  // namespace bireme

#define PD_KERNEL(...) ::bireme::RunKernel<&__VA_ARGS__>
#define PD_INFER_SHAPE(...) ::bireme::RunShape<&__VA_ARGS__>
#define PD_INFER_DTYPE(...) ::bireme::RunType<&__VA_ARGS__>

namespace paddle {

// Marks in the names of inputs and results.
inline std::string Grad(const std::string& name) { return name + "@GRAD"; }
inline std::string Vec(const std::string& name) { return name + "@VECTOR"; }
inline std::string New(const std::string& name) { return name + "@NEW"; }
inline std::string Optional(const std::string& name) { return name + "@OPTIONAL"; }

struct OpMetaInfo {
  std::string name;
  int stage = 0;  // 0: the operator, 1: its gradient, 2: the gradient's
  std::vector<std::string> inputs, outputs, attributes;
  std::unordered_map<std::string, std::string> in_place;
  bireme::KernelFunction kernel = nullptr;
  bireme::ShapeFunction shapes = nullptr;
  bireme::TypeFunction types = nullptr;

  static std::deque<OpMetaInfo>& All() {
    static std::deque<OpMetaInfo> all;
    return all;
  }
};

class OpMetaInfoBuilder {
 public:
  OpMetaInfoBuilder(std::string name, int stage) {
    OpMetaInfo::All().emplace_back();
    info_ = &OpMetaInfo::All().back();
    info_->name = std::move(name);
    info_->stage = stage;
  }
  OpMetaInfoBuilder& Inputs(std::vector<std::string> names) {
    info_->inputs = std::move(names);
    return *this;
  }
  OpMetaInfoBuilder& Outputs(std::vector<std::string> names) {
    info_->outputs = std::move(names);
    return *this;
  }
  OpMetaInfoBuilder& Attrs(std::vector<std::string> declared) {
    info_->attributes = std::move(declared);
    return *this;
  }
  OpMetaInfoBuilder& SetInplaceMap(std::unordered_map<std::string, std::string> pairs) {
    info_->in_place = std::move(pairs);
    return *this;
  }
  OpMetaInfoBuilder& SetKernelFn(bireme::KernelFunction function) {
    info_->kernel = function;
    return *this;
  }
  OpMetaInfoBuilder& SetInferShapeFn(bireme::ShapeFunction function) {
    info_->shapes = function;
    return *this;
  }
  OpMetaInfoBuilder& SetInferDtypeFn(bireme::TypeFunction function) {
    info_->types = function;
    return *this;
  }

 private:
  OpMetaInfo* info_;
};

}  // namespace paddle

#define PD_BUILD_OP(op_name) \
  static ::paddle::OpMetaInfoBuilder bireme_op_##op_name = ::paddle::OpMetaInfoBuilder(#op_name, 0)
#define PD_BUILD_GRAD_OP(op_name)                           \
  static ::paddle::OpMetaInfoBuilder bireme_grad_##op_name = \
      ::paddle::OpMetaInfoBuilder(#op_name, 1)
#define PD_BUILD_DOUBLE_GRAD_OP(op_name)                           \
  static ::paddle::OpMetaInfoBuilder bireme_double_grad_##op_name = \
      ::paddle::OpMetaInfoBuilder(#op_name, 2)
