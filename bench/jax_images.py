"""The forward passes of MobileNetV3-small and the U-Net in plain JAX, on channels-last images.

`conv(name, x, stride, groups)`, `norm(name, x)` and `linear(name, x)` look their weights up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from bench.workloads import MobileNet, UNet

Apply = Callable[..., jax.Array]


def mobilenet(size: MobileNet, conv: Apply, norm: Apply, linear: Apply, x: jax.Array) -> jax.Array:
    def conv_norm(name: str, x: jax.Array, stride: int = 1, groups: int = 1) -> jax.Array:
        return norm(f"{name}.norm", conv(f"{name}.conv", x, stride, groups))

    x = jax.nn.hard_swish(conv_norm("stem", x, 2))
    for b in size.blocks():
        activate = jax.nn.hard_swish if b.smooth else jax.nn.relu
        y = activate(conv_norm(f"{b.name}.expand", x)) if b.inner != b.n_in else x
        y = activate(conv_norm(f"{b.name}.depthwise", y, b.stride, b.inner))
        if b.excite:
            mean = y.mean((1, 2), keepdims=True)
            inner = jax.nn.relu(conv(f"{b.name}.squeeze", mean, 1, 1))
            y = y * jax.nn.hard_sigmoid(conv(f"{b.name}.excite", inner, 1, 1))
        y = conv_norm(f"{b.name}.project", y)
        x = x + y if b.stride == 1 and b.n_in == b.n_out else y
    x = jax.nn.hard_swish(conv_norm("last", x)).mean((1, 2))
    return linear("fc", jax.nn.hard_swish(linear("hidden", x)))


def unet(size: UNet, conv: Apply, norm: Apply, p: Any, x: jax.Array) -> jax.Array:
    def double(name: str, x: jax.Array) -> jax.Array:
        for part in ("first", "second"):
            x = jax.nn.relu(norm(f"{name}.{part}.norm", conv(f"{name}.{part}.conv", x, 1, 1)))
        return x

    seen = []
    for i in range(len(size.channels)):
        if i:
            x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        x = double(f"down.{i}", x)
        seen.append(x)
    seen.pop()
    for i in range(len(size.channels) - 1):
        # Windows of the stride's size do not overlap: every pixel becomes a square.
        squares = jnp.einsum("nhwi,yxoi->nhywxo", x, p[f"grow.{i}.weight"])
        n, h, _, w, _, o = squares.shape
        grown = squares.reshape(n, 2 * h, 2 * w, o) + p[f"grow.{i}.bias"]
        x = double(f"up.{i}", jnp.concatenate([seen.pop(), grown], -1))
    return conv("head", x, 1, 1)
