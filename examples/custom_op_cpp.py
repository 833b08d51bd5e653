"""An operator in C++, with its gradient: written for Paddle, compiled when the program runs.

The header `paddle/extension.h` comes with Bireme. Sources in files work the same way:
`load(name="huber", sources=["huber.cc"])`.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import bireme as paddle
from bireme.utils.cpp_extension import load

SOURCE = """
#include <cmath>
#include <vector>

#include "paddle/extension.h"

std::vector<paddle::Tensor> HuberForward(const paddle::Tensor& x, float delta) {
  auto out = paddle::empty_like(x);
  PD_DISPATCH_FLOATING_TYPES(x.type(), "huber", ([&] {
    const data_t* in = x.data<data_t>();
    data_t* to = out.data<data_t>();
    for (int64_t i = 0; i < x.numel(); ++i) {
      const data_t size = std::abs(in[i]);
      to[i] = size <= delta ? in[i] * in[i] / 2 : delta * (size - delta / 2);
    }
  }));
  return {out};
}

std::vector<paddle::Tensor> HuberBackward(const paddle::Tensor& x, const paddle::Tensor& grad_out,
                                          float delta) {
  auto grad_x = paddle::empty_like(x);
  PD_DISPATCH_FLOATING_TYPES(x.type(), "huber_grad", ([&] {
    for (int64_t i = 0; i < x.numel(); ++i) {
      const data_t v = x.data<data_t>()[i];
      const data_t slope = v > delta ? delta : (v < -delta ? -delta : v);
      grad_x.data<data_t>()[i] = slope * grad_out.data<data_t>()[i];
    }
  }));
  return {grad_x};
}

PD_BUILD_OP(my_huber)
    .Inputs({"X"})
    .Outputs({"Out"})
    .Attrs({"delta: float"})
    .SetKernelFn(PD_KERNEL(HuberForward));

PD_BUILD_GRAD_OP(my_huber)
    .Inputs({"X", paddle::Grad("Out")})
    .Outputs({paddle::Grad("X")})
    .Attrs({"delta: float"})
    .SetKernelFn(PD_KERNEL(HuberBackward));
"""


def compiled():
    """The module with `my_huber`; after the first time it comes from a cache."""
    with TemporaryDirectory() as folder:
        source = Path(folder) / "huber.cc"
        source.write_text(SOURCE)
        return load(name="huber", sources=[str(source)], build_directory=folder)


def main(steps=200):
    """Fit a line to points of which some are far off; returns its slope (the true one is 3)."""
    ops = compiled()
    paddle.seed(0)
    x = paddle.randn([200, 1])
    y = 3 * x + 0.1 * paddle.randn([200, 1])
    y[:20] += 50.0
    line = paddle.nn.Linear(1, 1)
    adam = paddle.optimizer.Adam(0.1, parameters=line.parameters())
    for _ in range(steps):
        loss = ops.my_huber(line(x) - y, 0.5).mean()
        loss.backward()
        adam.step()
        adam.clear_grad()
    return line.weight.item()


if __name__ == "__main__":
    print(f"slope: {main():.3f}")
