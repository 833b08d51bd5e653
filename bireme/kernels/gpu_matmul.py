"""Half-precision products on GPUs whose sizes are not multiples of 8.

Tensor cores read rows of 16 bytes. A vocabulary of 50257 words breaks that, and its three
products take twice their time; padded to a multiple of 64 they do not, and the padding itself
is fused into what makes the operands and uses the result.
"""

from __future__ import annotations

from typing import Any

from bireme.core import dtype as dt
from bireme.core import jax_door
from bireme.core.aval import Aval
from bireme.core.kernels import kernel
from bireme.core.op import Call

_UNIT = 8  # elements of 16 bits that are read at once
_TILE = 64
_LARGE = 1 << 20  # elements of a weight from which on it pays


def _unaligned(forward: Call) -> bool:
    x, y = forward.types[:2]
    if not (isinstance(x, Aval) and isinstance(y, Aval)) or min(x.ndim, y.ndim) < 2:
        return False
    if not (x.is_static and y.is_static) or y.size < _LARGE or x.size == 0:
        return False
    kind = forward.casts[1] or y.dtype
    return kind in (dt.bfloat16, dt.float16) and any(
        d % _UNIT for d in (*x.shape[-2:], *y.shape[-2:])
    )


class _Products:
    """jax.numpy, with products on padded operands."""

    def __init__(self, jnp: Any):
        self._jnp = jnp

    def __getattr__(self, name: str) -> Any:
        return getattr(self._jnp, name)

    def matmul(self, a: Any, b: Any, **options: Any) -> Any:
        if a.ndim < 2 or b.ndim < 2:
            return self._jnp.matmul(a, b, **options)
        rows, columns = a.shape[-2], b.shape[-1]
        out = self._jnp.matmul(self._pad(a), self._pad(b), **options)
        return out[..., :rows, :columns]

    def _pad(self, x: Any) -> Any:
        more = [(-d) % _TILE if d % _UNIT and d > _TILE else 0 for d in x.shape[-2:]]
        if not any(more):
            return x
        return self._jnp.pad(x, [(0, 0)] * (x.ndim - 2) + [(0, m) for m in more])


def _lower(call: Call, *arrays: Any) -> Any:
    return call.op.lower(_Products(jax_door.jnp()), call, list(arrays))


for _name in ("matmul", "linear"):
    kernel(_name, name="aligned_products", platform="gpu", accepts=_unaligned)(_lower)
    kernel(
        f"{_name}_grad",
        name="aligned_products",
        platform="gpu",
        accepts=lambda call: _unaligned(call.attrs["forward"]),
    )(_lower)
