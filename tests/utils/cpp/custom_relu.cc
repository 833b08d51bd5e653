// A custom operator as its users write it: nothing here knows which framework compiles it.
#include <vector>

#include "paddle/extension.h"

template <typename data_t>
void relu_forward_kernel(const data_t* x, data_t* out, int64_t count) {
  PD_CHECK(x != nullptr, "x is nullptr.");
  PD_CHECK(out != nullptr, "out is nullptr.");
  for (int64_t i = 0; i < count; ++i) {
    out[i] = std::max(static_cast<data_t>(0.), x[i]);
  }
}

template <typename data_t>
void relu_backward_kernel(const data_t* grad_out, const data_t* out, data_t* grad_x,
                          int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    grad_x[i] = grad_out[i] * (out[i] > static_cast<data_t>(0) ? 1. : 0.);
  }
}

std::vector<paddle::Tensor> ReluForward(const paddle::Tensor& x) {
  PD_CHECK(x.is_cpu(), "x must be a CPU Tensor.");
  auto out = paddle::empty_like(x);
  PD_DISPATCH_FLOATING_TYPES(x.type(), "relu_forward_kernel", ([&] {
                               relu_forward_kernel<data_t>(x.data<data_t>(), out.data<data_t>(),
                                                           x.numel());
                             }));
  return {out};
}

std::vector<paddle::Tensor> ReluBackward(const paddle::Tensor& x, const paddle::Tensor& out,
                                         const paddle::Tensor& grad_out) {
  auto grad_x = paddle::empty(x.shape(), x.dtype(), x.place());
  PD_DISPATCH_FLOATING_TYPES(out.type(), "relu_backward_kernel", ([&] {
                               relu_backward_kernel<data_t>(
                                   grad_out.data<data_t>(), out.data<data_t>(),
                                   grad_x.mutable_data<data_t>(x.place()), out.size());
                             }));
  return {grad_x};
}

std::vector<paddle::Tensor> ReluDoubleBackward(const paddle::Tensor& out,
                                               const paddle::Tensor& ddx) {
  auto ddout = paddle::empty(out.shape(), out.dtype(), out.place());
  PD_DISPATCH_FLOATING_TYPES(out.type(), "relu_double_backward", ([&] {
                               relu_backward_kernel<data_t>(ddx.data<data_t>(),
                                                            out.data<data_t>(),
                                                            ddout.data<data_t>(), out.size());
                             }));
  return {ddout};
}

std::vector<std::vector<int64_t>> ReluInferShape(const std::vector<int64_t>& x_shape) {
  return {x_shape};
}

std::vector<paddle::DataType> ReluInferDtype(const paddle::DataType& x_dtype) { return {x_dtype}; }

PD_BUILD_OP(custom_relu)
    .Inputs({"X"})
    .Outputs({"Out"})
    .SetKernelFn(PD_KERNEL(ReluForward))
    .SetInferShapeFn(PD_INFER_SHAPE(ReluInferShape))
    .SetInferDtypeFn(PD_INFER_DTYPE(ReluInferDtype));

PD_BUILD_GRAD_OP(custom_relu)
    .Inputs({"X", "Out", paddle::Grad("Out")})
    .Outputs({paddle::Grad("X")})
    .SetKernelFn(PD_KERNEL(ReluBackward));

PD_BUILD_DOUBLE_GRAD_OP(custom_relu)
    .Inputs({"Out", paddle::Grad(paddle::Grad("X"))})
    .Outputs({paddle::Grad(paddle::Grad("Out"))})
    .SetKernelFn(PD_KERNEL(ReluDoubleBackward));
