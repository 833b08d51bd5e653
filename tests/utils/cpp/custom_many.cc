// Attributes, lists of tensors, optional tensors, several results, and writing in place.
#include <cmath>
#include <string>
#include <vector>

#include "paddle/extension.h"

// --- every kind of attribute -------------------------------------------------------------------

std::vector<paddle::Tensor> Attributes(const paddle::Tensor& x, bool flag, int whole,
                                       float fraction, int64_t big, const std::string& text,
                                       const std::vector<int>& wholes,
                                       const std::vector<float>& fractions,
                                       const std::vector<int64_t>& bigs,
                                       const std::vector<std::string>& texts) {
  auto out = paddle::full({9}, 0, paddle::DataType::FLOAT64);
  double* p = out.data<double>();
  p[0] = flag;
  p[1] = whole;
  p[2] = fraction;
  p[3] = static_cast<double>(big);
  p[4] = static_cast<double>(text.size());
  for (int v : wholes) p[5] += v;
  for (float v : fractions) p[6] += v;
  for (int64_t v : bigs) p[7] += static_cast<double>(v);
  for (const auto& v : texts) p[8] = p[8] * 10 + static_cast<double>(v.size());
  return {out};
}

std::vector<std::vector<int64_t>> AttributesShape(const std::vector<int64_t>& x, bool, int, float,
                                                  int64_t, const std::string&,
                                                  const std::vector<int>&,
                                                  const std::vector<float>&,
                                                  const std::vector<int64_t>&,
                                                  const std::vector<std::string>&) {
  return {{9}};
}
std::vector<paddle::DataType> AttributesType(paddle::DataType x) {
  return {paddle::DataType::FLOAT64};
}

PD_BUILD_OP(custom_attributes)
    .Inputs({"X"})
    .Outputs({"Out"})
    .Attrs({"flag: bool", "whole: int", "fraction: float", "big: int64_t", "text: std::string",
            "wholes: std::vector<int>", "fractions: std::vector<float>",
            "bigs: std::vector<int64_t>", "texts: std::vector<std::string>"})
    .SetKernelFn(PD_KERNEL(Attributes))
    .SetInferShapeFn(PD_INFER_SHAPE(AttributesShape))
    .SetInferDtypeFn(PD_INFER_DTYPE(AttributesType));

// --- a list of tensors, joined ---------------------------------------------------------------

std::vector<paddle::Tensor> Join(const std::vector<paddle::Tensor>& xs) {
  int64_t rows = 0;
  for (const auto& x : xs) rows += x.shape()[0];
  auto shape = xs[0].shape();
  shape[0] = rows;
  auto out = paddle::empty(shape, xs[0].dtype(), xs[0].place());
  float* to = out.data<float>();
  for (const auto& x : xs) {
    std::copy(x.data<float>(), x.data<float>() + x.numel(), to);
    to += x.numel();
  }
  return {out};
}
std::vector<paddle::Tensor> JoinBackward(const std::vector<paddle::Tensor>& xs,
                                         const paddle::Tensor& grad) {
  std::vector<paddle::Tensor> grads;
  int64_t row = 0;
  for (const auto& x : xs) {
    grads.push_back(grad.slice(row, row + x.shape()[0]));
    row += x.shape()[0];
  }
  return grads;
}
std::vector<std::vector<int64_t>> JoinShape(const std::vector<std::vector<int64_t>>& xs) {
  std::vector<int64_t> shape = xs[0];
  for (size_t i = 1; i < xs.size(); ++i) shape[0] += xs[i][0];
  return {shape};
}
std::vector<paddle::DataType> JoinType(const std::vector<paddle::DataType>& xs) { return {xs[0]}; }

PD_BUILD_OP(custom_join)
    .Inputs({paddle::Vec("X")})
    .Outputs({"Out"})
    .SetKernelFn(PD_KERNEL(Join))
    .SetInferShapeFn(PD_INFER_SHAPE(JoinShape))
    .SetInferDtypeFn(PD_INFER_DTYPE(JoinType));
PD_BUILD_GRAD_OP(custom_join)
    .Inputs({paddle::Vec("X"), paddle::Grad("Out")})
    .Outputs({paddle::Grad(paddle::Vec("X"))})
    .SetKernelFn(PD_KERNEL(JoinBackward));

// --- an optional tensor, and an attribute in the gradient --------------------------------------

std::vector<paddle::Tensor> Scaled(const paddle::Tensor& x,
                                   const paddle::optional<paddle::Tensor>& shift, float factor) {
  auto out = paddle::empty_like(x);
  for (int64_t i = 0; i < x.numel(); ++i) {
    out.data<float>()[i] = x.data<float>()[i] * factor;
    if (shift) out.data<float>()[i] += shift->data<float>()[i];
  }
  return {out};
}
std::vector<paddle::Tensor> ScaledBackward(const paddle::Tensor& x,
                                           const paddle::optional<paddle::Tensor>& shift,
                                           const paddle::Tensor& grad, float factor) {
  auto grad_x = paddle::empty_like(x);
  for (int64_t i = 0; i < x.numel(); ++i) {
    grad_x.data<float>()[i] = grad.data<float>()[i] * factor;
  }
  if (shift) return {grad_x, grad};
  return {grad_x, paddle::Tensor()};
}
std::vector<std::vector<int64_t>> ScaledShape(
    const std::vector<int64_t>& x, const paddle::optional<std::vector<int64_t>>& shift, float) {
  return {x};
}
std::vector<paddle::DataType> ScaledType(paddle::DataType x,
                                         const paddle::optional<paddle::DataType>& shift, float) {
  return {x};
}
PD_BUILD_OP(custom_scaled)
    .Inputs({"X", paddle::Optional("Shift")})
    .Outputs({"Out"})
    .Attrs({"factor: float"})
    .SetKernelFn(PD_KERNEL(Scaled))
    .SetInferShapeFn(PD_INFER_SHAPE(ScaledShape))
    .SetInferDtypeFn(PD_INFER_DTYPE(ScaledType));
PD_BUILD_GRAD_OP(custom_scaled)
    .Inputs({"X", paddle::Optional("Shift"), paddle::Grad("Out")})
    .Outputs({paddle::Grad("X"), paddle::Grad(paddle::Optional("Shift"))})
    .Attrs({"factor: float"})
    .SetKernelFn(PD_KERNEL(ScaledBackward));

// --- two results, made in the order that asks for a swap of memory ----------------------------

std::vector<paddle::Tensor> SineCosine(const paddle::Tensor& x) {
  auto cosine = paddle::empty_like(x);
  auto sine = paddle::empty_like(x);
  PD_DISPATCH_FLOATING_AND_HALF_TYPES(x.type(), "sine_cosine", ([&] {
    for (int64_t i = 0; i < x.numel(); ++i) {
      const float v = static_cast<float>(x.data<data_t>()[i]);
      cosine.data<data_t>()[i] = static_cast<data_t>(std::cos(v));
      sine.data<data_t>()[i] = static_cast<data_t>(std::sin(v));
    }
  }));
  return {sine, cosine};
}
std::vector<paddle::Tensor> SineCosineBackward(const paddle::Tensor& sine,
                                               const paddle::Tensor& cosine,
                                               const paddle::Tensor& grad_sine,
                                               const paddle::Tensor& grad_cosine) {
  auto grad = paddle::experimental::zeros_like(sine);
  for (int64_t i = 0; i < sine.numel(); ++i) {
    grad.data<float>()[i] = grad_sine.data<float>()[i] * cosine.data<float>()[i] -
                            grad_cosine.data<float>()[i] * sine.data<float>()[i];
  }
  return {grad};
}
std::vector<std::vector<int64_t>> SineCosineShape(const std::vector<int64_t>& x) { return {x, x}; }
std::vector<paddle::DataType> SineCosineType(const paddle::DataType& x) { return {x, x}; }
PD_BUILD_OP(custom_sine_cosine)
    .Inputs({"X"})
    .Outputs({"Sine", "Cosine"})
    .SetKernelFn(PD_KERNEL(SineCosine))
    .SetInferShapeFn(PD_INFER_SHAPE(SineCosineShape))
    .SetInferDtypeFn(PD_INFER_DTYPE(SineCosineType));
PD_BUILD_GRAD_OP(custom_sine_cosine)
    .Inputs({"Sine", "Cosine", paddle::Grad("Sine"), paddle::Grad("Cosine")})
    .Outputs({paddle::Grad("X")})
    .SetKernelFn(PD_KERNEL(SineCosineBackward));

// --- in place ---------------------------------------------------------------------------------

void AddInPlace(paddle::Tensor& x, const paddle::Tensor& y) {
  for (int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] += y.data<float>()[i];
}
std::vector<paddle::Tensor> AddInPlaceBackward(const paddle::Tensor& x, const paddle::Tensor& y,
                                               const paddle::Tensor& grad) {
  return {grad.copy_to(grad.place(), true), grad.copy_to(grad.place(), true)};
}
PD_BUILD_OP(custom_add_)
    .Inputs({"X", "Y"})
    .Outputs({"Out"})
    .SetInplaceMap({{"X", "Out"}})
    .SetKernelFn(PD_KERNEL(AddInPlace));
PD_BUILD_GRAD_OP(custom_add_)
    .Inputs({"X", "Y", paddle::Grad("Out")})
    .Outputs({paddle::Grad("X"), paddle::Grad("Y")})
    .SetKernelFn(PD_KERNEL(AddInPlaceBackward));

// --- without a gradient, without rules: one input, one result --------------------------------

std::vector<paddle::Tensor> Doubled(const paddle::Tensor& x) {
  PD_CHECK(x.numel() != 13, "thirteen elements bring bad luck");
  auto out = paddle::Tensor(paddle::PlaceType::kCPU, x.shape());
  for (int64_t i = 0; i < x.numel(); ++i) out.mutable_data<float>()[i] = 2 * x.data<float>()[i];
  if (x.numel() == 0) out.mutable_data<float>();
  return {out.cast(paddle::DataType::FLOAT64).cast(paddle::DataType::FLOAT32)};
}
PD_BUILD_OP(custom_doubled).Inputs({"X"}).Outputs({"Out"}).SetKernelFn(PD_KERNEL(Doubled));
