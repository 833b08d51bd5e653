"""Gradients of gated layers on GPUs: silu(x) * y reads its three arrays once for both results.

The compiler alone makes a kernel for each gradient, and both read two of the arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bireme.core.aval import Aval
from bireme.core.graph import Node
from bireme.core.kernels import fusion, kernel
from bireme.core.op import Call
from bireme.host import jax_door, thresholds
from bireme.host.arrays import Array, Namespace
from bireme.kernels import nvidia
from bireme.kernels.fusing import Fuser, fused_op

_NAME = "gate_gradients"
_BLOCK = 4096


@dataclass(frozen=True)
class Silu:
    """silu(x)."""

    x: int


@dataclass(frozen=True)
class Through:
    """What this gradient of silu(x) becomes at x."""

    x: int
    grad: int


def _large(t: Any) -> bool:
    return (
        isinstance(t, Aval)
        and t.is_static
        and t.dtype.is_floating
        and t.dtype.itemsize <= 4
        and t.size >= thresholds.GPU_GATE
        and t.size % _BLOCK == 0
    )


@jax_door.traced_once("interpret")
def gradients(grad: Array, x: Array, y: Array, *, interpret: bool = False) -> tuple[Any, Any]:
    """The gradients of silu(x) * y by x and y. All of one shape, a multiple of the block."""
    jax = jax_door.jax()
    jnp, pl = jax.numpy, jax_door.pallas()

    def body(grad_ref: Any, x_ref: Any, y_ref: Any, x_out: Any, y_out: Any) -> None:
        g, a, b = (r[:].astype(jnp.float32) for r in (grad_ref, x_ref, y_ref))
        s = 1 / (1 + jnp.exp(-a))
        x_out[:] = (g * b * s * (1 + a * (1 - s))).astype(x_out.dtype)
        y_out[:] = (g * a * s).astype(y_out.dtype)

    block = pl.BlockSpec((_BLOCK,), lambda i: (i,))
    flat = [jnp.reshape(a, (-1,)) for a in (grad, x, y)]
    by_x, by_y = pl.pallas_call(
        body,
        grid=(x.size // _BLOCK,),
        in_specs=[block] * 3,
        out_specs=[block] * 2,
        out_shape=[jax.ShapeDtypeStruct((x.size,), a.dtype) for a in (x, y)],
        interpret=interpret,
        name="gate_gradients",
        **({} if interpret else jax_door.pallas_options(8)),
    )(*flat)
    return jnp.reshape(by_x, x.shape), jnp.reshape(by_y, y.shape)


@fused_op("gate_gradients", ("grad", "x", "y"), lambda grad, x, y: (x, y))
def gate_gradients(xp: Namespace, grad: Array, x: Array, y: Array) -> tuple[Any, Any]:
    """The gradients of silu(x) * y by x and y."""
    g, a, b = (v.astype(xp.float32) for v in (grad, x, y))
    s = 1 / (1 + xp.exp(-a))
    by_x, by_y = g * b * s * (1 + a * (1 - s)), g * a * s
    return by_x.astype(x.dtype), by_y.astype(y.dtype)


@kernel("gate_gradients", name=_NAME, platform="gpu", ready=lambda: nvidia.available())
def _gate_gradients(call: Call, grad: Any, x: Any, y: Any) -> Any:
    return gradients(grad, x, y, interpret=nvidia.interpreted())


@fusion(
    "silu",
    name=_NAME,
    platform="gpu",
    ready=lambda: nvidia.available(),
    accepts=lambda call: _large(call.types[0]) and not any(call.casts),
)
def _silu(f: Fuser, node: Node) -> list[int]:
    made = f.copy(node)
    f.facts[made[0]] = Silu(node.args[0])  # type: ignore[arg-type]
    return made


def _accepts_product(call: Call) -> bool:
    forward: Call = call.attrs["forward"]
    x, y = forward.types
    return call.attrs["needs"] == (0, 1) and _large(x) and x is y and not any(forward.casts)


@fusion(
    "multiply_grad",
    name=_NAME,
    platform="gpu",
    ready=lambda: nvidia.available(),
    accepts=_accepts_product,
)
def _multiply_grad(f: Fuser, node: Node) -> list[int]:
    grad, x, y = node.args
    outs = f.copy(node)
    for at, (opened, other) in enumerate(((x, y), (y, x))):
        gate = f.fact(opened, Silu)
        if gate is not None:
            through, outs[1 - at] = f.emit(gate_gradients, [grad, gate.x, other])
            f.facts[outs[at]] = Through(gate.x, through)
            break
    return outs


@fusion(
    "silu_grad",
    name=_NAME,
    platform="gpu",
    ready=lambda: nvidia.available(),
    accepts=lambda call: _large(call.attrs["forward"].types[0]),
)
def _silu_grad(f: Fuser, node: Node) -> list[int]:
    grad, x = node.args
    known = f.fact(grad, Through)
    if known is not None and known.x == x:
        return [known.grad]
    return f.copy(node)


@kernel(
    "swiglu_grad",
    name=_NAME,
    platform="gpu",
    ready=lambda: nvidia.available(),
    accepts=_accepts_product,
)
def _swiglu_grad(call: Call, grad: Any, x: Any, y: Any) -> Any:
    return gradients(grad, x, y, interpret=nvidia.interpreted())
