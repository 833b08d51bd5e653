"""Ops that write to their first argument.

PyTorch's gradients go through such writes, also where a view is written and its base, or another
view, is used afterwards. Ours share contents only, so history is given to the family here.
"""

from __future__ import annotations

from typing import Any

from bireme.convert.torch.aten.types import cast
from bireme.convert.torch.program import TorchFileError
from bireme.core.tensor import Tensor
from bireme.core.trace import state
from bireme.core.value import keep
from bireme.core.views import assign, has_family, replace


def write(target: Tensor, made: Tensor, name: str) -> Tensor:
    """Give `target` the contents and the history of `made`; its family, too."""
    made = cast(made, target.dtype)
    former = target._value
    if list(made.shape) != list(target.shape):
        if has_family(target):
            raise TorchFileError(f"{name} changes the shape of a tensor that others look at")
        replace(target, made, None)
        keep(former)
        return target
    link = target._view
    root = None if link is None else link[0]()
    if not state.trace.tape or not has_family(target):
        assign(target, made, name)
        keep(former)
        return target
    if link is not None and root is not None:
        chain = link[1][link[2] :]
        stages = [root]
        for step, args in chain[:-1]:
            stages.append(step.make(stages[-1], *args))
        content: Any = made
        for stage, (step, args) in zip(reversed(stages), reversed(chain), strict=True):
            content = step.write(stage, content, *args)
    else:
        root, content = target, made
    _spread(root, content, name)
    return target


def _spread(root: Tensor, content: Tensor, name: str) -> None:
    """A base gets its contents, and each of its views is made anew from it."""
    views = [v for v in [r() for r in root._views or ()] if v is not None]
    members = [root, *views]
    former = [m._value for m in members]
    assign(root, content, name)  # the views get their contents
    for view in views:
        link = view._view
        if link is None or link[0]() is not root:
            continue  # it has left the family
        made: Any = root
        for step, args in link[1][link[2] :]:
            made = step.make(made, *args)
        view._node = made._node
        view._value = made._value
    for value in former:
        keep(value)
