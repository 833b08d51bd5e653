"""paddle.base.dygraph: tensors of arrays and the mode of eager calls, under their older names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bireme.api.types import PlaceLike
from bireme.autograd import grad, no_grad
from bireme.core.place import default_place
from bireme.device import set_device
from bireme.jit import to_static
from bireme.ops.creation import to_tensor
from bireme.static.program import disable_static, enable_static, in_dynamic_mode

to_variable = to_tensor


@contextmanager
def guard(place: PlaceLike | None = None) -> Iterator[None]:
    """Eager calls, on `place`, inside a `with` block."""
    before, static = default_place(), not in_dynamic_mode()
    if static:
        disable_static()
    if place is not None:
        set_device(place)
    try:
        yield
    finally:
        if place is not None:
            set_device(before)
        if static:
            enable_static()


__all__ = ["grad", "guard", "no_grad", "to_static", "to_tensor", "to_variable"]
