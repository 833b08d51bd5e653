"""The workloads as hand-written, jitted JAX steps: plain `jax.numpy`, float32, donated state.

This is the mark to reach: what a user gets who writes the whole step as one pure function.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from bench.jax_images import mobilenet, unet
from bench.workloads import (
    LSTM,
    MLP,
    Arrays,
    Encoder,
    MobileNet,
    ResNet,
    Size,
    UNet,
    make_batches,
    make_weights,
    resnet_blocks,
)

Params = dict[str, jax.Array]
# Parameters, buffers (running statistics), key, inputs, labels -> loss, new buffers.
Forward = Callable[[Params, Params, jax.Array, jax.Array, jax.Array], tuple[jax.Array, Params]]


def _linear(p: Params, name: str, x: jax.Array) -> jax.Array:
    return x @ p[f"{name}.weight"] + p[f"{name}.bias"]


def _cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    log_p = jax.nn.log_softmax(logits)
    return -jnp.mean(jnp.take_along_axis(log_p, labels[:, None], axis=1))


def _mlp(size: MLP, p: Params, buffers: Params, key: jax.Array, x: jax.Array, y: jax.Array):
    for i in range(size.depth - 1):
        x = jax.nn.relu(_linear(p, f"hidden.{i}", x))
    return jnp.mean((_linear(p, "output", x) - y) ** 2), buffers


def _dropout(x: jax.Array, rate: float, key: jax.Array) -> jax.Array:
    if rate == 0:
        return x
    return jnp.where(jax.random.bernoulli(key, 1 - rate, x.shape), x / (1 - rate), 0)


def _layer_norm(p: Params, name: str, x: jax.Array) -> jax.Array:
    mean = x.mean(-1, keepdims=True)
    variance = x.var(-1, keepdims=True)
    normal = (x - mean) * lax.rsqrt(variance + 1e-5)
    return normal * p[f"{name}.weight"] + p[f"{name}.bias"]


def _attention(size: Encoder, p: Params, name: str, x: jax.Array, key: jax.Array) -> jax.Array:
    n, t, width = x.shape
    split = (n, t, size.heads, width // size.heads)
    q, k, v = (_linear(p, f"{name}.{kind}_proj", x).reshape(split) for kind in "qkv")
    scores = jnp.einsum("nqhd,nkhd->nhqk", q, k) / math.sqrt(split[-1])
    chances = _dropout(jax.nn.softmax(scores), size.dropout, key)
    mixed = jnp.einsum("nhqk,nkhd->nqhd", chances, v).reshape(n, t, width)
    return _linear(p, f"{name}.out_proj", mixed)


def _encoder(
    size: Encoder, p: Params, buffers: Params, key: jax.Array, tokens: jax.Array, labels: jax.Array
):
    x = p["token.weight"][tokens] + p["position.weight"][: tokens.shape[1]]
    for i in range(size.layers):
        name = f"encoder.layers.{i}"
        keys = jax.random.split(jax.random.fold_in(key, i), 4)
        mixed = _attention(size, p, f"{name}.self_attn", x, keys[0])
        x = _layer_norm(p, f"{name}.norm1", x + _dropout(mixed, size.dropout, keys[1]))
        inner = jax.nn.gelu(_linear(p, f"{name}.linear1", x), approximate=False)
        inner = _linear(p, f"{name}.linear2", _dropout(inner, size.dropout, keys[2]))
        x = _layer_norm(p, f"{name}.norm2", x + _dropout(inner, size.dropout, keys[3]))
    logits = _linear(p, "head", x)
    return _cross_entropy(logits.reshape(-1, size.vocabulary), labels.reshape(-1)), buffers


def _conv(p: Params, name: str, x: jax.Array, stride: int, groups: int = 1) -> jax.Array:
    kernel = p[f"{name}.weight"]
    pad = kernel.shape[0] // 2
    out = lax.conv_general_dilated(
        x,
        kernel,
        (stride, stride),
        [(pad, pad), (pad, pad)],
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )
    return out + p[f"{name}.bias"] if f"{name}.bias" in p else out


def _batch_norm(p: Params, buffers: Params, new: Params, name: str, x: jax.Array) -> jax.Array:
    mean = x.mean((0, 1, 2))
    variance = x.var((0, 1, 2))
    for kind, value in (("_mean", mean), ("_variance", variance)):
        new[f"{name}.{kind}"] = 0.9 * buffers[f"{name}.{kind}"] + 0.1 * lax.stop_gradient(value)
    scale = p[f"{name}.weight"] * lax.rsqrt(variance + 1e-5)
    return (x - mean) * scale + p[f"{name}.bias"]


def _resnet(
    size: ResNet, p: Params, buffers: Params, key: jax.Array, x: jax.Array, labels: jax.Array
):
    new: Params = {}
    norm = partial(_batch_norm, p, buffers, new)
    x = jax.nn.relu(norm("bn1", _conv(p, "conv1", x, 2)))
    x = lax.reduce_window(
        x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), ((0, 0), (1, 1), (1, 1), (0, 0))
    )
    for name, _, _, stride in resnet_blocks(size):
        y = jax.nn.relu(norm(f"{name}.bn1", _conv(p, f"{name}.conv1", x, stride)))
        y = norm(f"{name}.bn2", _conv(p, f"{name}.conv2", y, 1))
        if f"{name}.short_conv.weight" in p:
            x = norm(f"{name}.short_bn", _conv(p, f"{name}.short_conv", x, stride))
        x = jax.nn.relu(x + y)
    return _cross_entropy(_linear(p, "fc", x.mean((1, 2))), labels), new


def _mobilenet(
    size: MobileNet, p: Params, buffers: Params, key: jax.Array, x: jax.Array, labels: jax.Array
):
    new: Params = {}
    norm = partial(_batch_norm, p, buffers, new)
    logits = mobilenet(size, partial(_conv, p), norm, partial(_linear, p), x)
    return _cross_entropy(logits, labels), new


def _unet(size: UNet, p: Params, buffers: Params, key: jax.Array, x: jax.Array, labels: jax.Array):
    new: Params = {}
    logits = unet(size, partial(_conv, p), partial(_batch_norm, p, buffers, new), p, x)
    return _cross_entropy(logits.reshape(-1, size.classes), labels.reshape(-1)), new


def _lstm_layer(p: Params, layer: int, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Outputs [time, batch, width] and the last hidden state."""
    width = p[f"lstm.weight_hh_l{layer}"].shape[1]
    bias = p[f"lstm.bias_ih_l{layer}"] + p[f"lstm.bias_hh_l{layer}"]
    from_input = x @ p[f"lstm.weight_ih_l{layer}"].T + bias
    recurrent = p[f"lstm.weight_hh_l{layer}"].T

    def advance(carry, now):
        hidden, cell = carry
        i, f, g, o = jnp.split(now + hidden @ recurrent, 4, axis=-1)
        cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
        hidden = jax.nn.sigmoid(o) * jnp.tanh(cell)
        return (hidden, cell), hidden

    zero = jnp.zeros((x.shape[1], width), x.dtype)
    (hidden, _), outputs = lax.scan(advance, (zero, zero), from_input)
    return outputs, hidden


def _lstm(size: LSTM, p: Params, buffers: Params, key: jax.Array, x: jax.Array, labels: jax.Array):
    x = x.swapaxes(0, 1)
    for layer in range(size.layers):
        x, hidden = _lstm_layer(p, layer, x)
    return _cross_entropy(_linear(p, "head", hidden), labels), buffers


_FORWARD: dict[type, Callable[..., Any]] = {
    MLP: _mlp,
    Encoder: _encoder,
    ResNet: _resnet,
    MobileNet: _mobilenet,
    UNet: _unet,
    LSTM: _lstm,
}


def _sgd(size: MLP, p: Params, grads: Params, state: Any) -> tuple[Params, Any]:
    return jax.tree.map(lambda w, g: w - size.learning_rate * g, p, grads), state


def _momentum(
    size: ResNet | MobileNet | UNet, p: Params, grads: Params, velocity: Any
) -> tuple[Params, Any]:
    velocity = jax.tree.map(
        lambda v, g, w: size.momentum * v + g + size.weight_decay * w, velocity, grads, p
    )
    return jax.tree.map(lambda w, v: w - size.learning_rate * v, p, velocity), velocity


def _adam(
    size: Encoder | LSTM, decay: float, p: Params, grads: Params, state: Any
) -> tuple[Params, Any]:
    first, second, t = state
    t = t + 1
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, grads)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, grads)
    rate = size.learning_rate / (1 - 0.9**t)
    unbias = 1 / jnp.sqrt(1 - 0.999**t)

    def update(w, m, v):
        w = w * (1 - size.learning_rate * decay)
        return w - rate * m / (jnp.sqrt(v) * unbias + 1e-8)

    return jax.tree.map(update, p, first, second), (first, second, t)


def _optimizer(size: Size, p: Params) -> tuple[Callable[..., tuple[Params, Any]], Any]:
    zeros = partial(jax.tree.map, jnp.zeros_like)
    if isinstance(size, MLP):
        return partial(_sgd, size), ()
    if isinstance(size, ResNet | MobileNet | UNet):
        return partial(_momentum, size), zeros(p)
    moments = (zeros(p), zeros(p), jnp.zeros((), jnp.float32))
    return partial(_adam, size, 0.01 if isinstance(size, Encoder) else 0.0), moments


def _is_buffer(name: str) -> bool:
    return name.endswith(("._mean", "._variance"))


def _channels_last(array: np.ndarray) -> np.ndarray:
    """Kernels OIHW -> HWIO; the rest as it is."""
    return np.transpose(array, (2, 3, 1, 0)) if array.ndim == 4 else array


class JaxTrainer:
    """One jitted function does forward, backward and update."""

    def __init__(self, size: Size, weights: Arrays | None = None):
        weights = make_weights(size) if weights is None else weights
        arrays = {name: jnp.asarray(_channels_last(w)) for name, w in weights.items()}
        self.params = {n: a for n, a in arrays.items() if not _is_buffer(n)}
        self.buffers = {n: a for n, a in arrays.items() if _is_buffer(n)}
        update, self.state = _optimizer(size, self.params)
        self.key = jax.random.key(7)
        forward = partial(_FORWARD[type(size)], size)
        self.batches = []
        for x, y in make_batches(size):
            if isinstance(size, ResNet | MobileNet | UNet):
                x = np.transpose(x, (0, 2, 3, 1))
            self.batches.append((jnp.asarray(x), jnp.asarray(y)))

        @partial(jax.jit, donate_argnums=(0, 1, 2, 3))
        def train(params, buffers, state, key, x, y):
            key, use = jax.random.split(key)
            (loss, buffers), grads = jax.value_and_grad(forward, has_aux=True)(
                params, buffers, use, x, y
            )
            params, state = update(params, grads, state)
            return loss, params, buffers, state, key

        self.train = train

    def step(self, i: int) -> jax.Array:
        return self._train(*self.batches[i % len(self.batches)])

    def step_of_length(self, length: int) -> jax.Array:
        x, y = self.batches[0]
        return self._train(x[:, :length], y[:, :length])

    def _train(self, x: jax.Array, y: jax.Array) -> jax.Array:
        loss, self.params, self.buffers, self.state, self.key = self.train(
            self.params, self.buffers, self.state, self.key, x, y
        )
        return loss

    def read(self, loss: jax.Array) -> float:
        return float(loss)

    def settle(self) -> bool:
        return False


def jax_trainer(size: Size, weights: Arrays | None = None) -> JaxTrainer:
    return JaxTrainer(size, weights)
