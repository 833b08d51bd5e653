"""What to write instead of a keyword that a function does not have, as programs for PyTorch do.

Constructors and functions that are more than one op look at the TypeError of a call that failed;
ops are called too often to be wrapped, so for them the hint is added when an uncaught error is
shown (by `device/process.py`, where it may show errors). Calls that succeed pay nothing.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import re
import sys
from collections.abc import Callable, Collection, Iterable
from types import FunctionType
from typing import Any

from bireme.core.errors import TypeMismatch

# PyTorch's keywords, and Paddle's; the first that a function has is named.
_NAMES: dict[str, tuple[str, ...]] = {
    "alpha": ("negative_slope", "scale"),
    "bias": ("bias_attr",),
    "d_model": ("embed_dim",),
    "device": ("place",),
    "dim": ("axis", "dims"),
    "dim1": ("axis1",),
    "dim2": ("axis2",),
    "dimension": ("axis", "dim"),
    "dims": ("axis", "perm", "axes", "shape", "repeat_times"),
    "embedding_dim": ("embed_dim",),
    "end": ("stop",),
    "eps": ("epsilon",),
    "exponent": ("y",),
    "ignore_idx": ("ignore_index",),
    "in_planes": ("in_channels",),
    "index": ("indices",),
    "indices": ("index",),
    "input": ("x", "logit"),
    "inputs": ("x",),
    "keepdim": ("keepdims",),
    "keepdims": ("keepdim",),
    "kernel": ("kernel_size",),
    "l2": ("weight_decay",),
    "labels": ("label",),
    "lambd": ("threshold", "lam"),
    "last_step": ("last_epoch",),
    "lr": ("learning_rate",),
    "mat2": ("y",),
    "max_norm": ("clip_norm",),
    "milestones": ("boundaries",),
    "negative_slope": ("alpha",),
    "nhead": ("num_heads",),
    "nonlinearity": ("activation",),
    "norm": ("p",),
    "num_chans": ("num_channels", "num_features"),
    "ord": ("p",),
    "other": ("y",),
    "out": ("output",),
    "p": ("prob",),
    "padding": ("paddings",),
    "params": ("parameters",),
    "pct_start": ("phase_pct",),
    "prob": ("p",),
    "rate": ("p",),
    "repeats": ("repeat_times",),
    "return_indices": ("return_mask",),
    "sections": ("num_or_indices", "num_or_sections"),
    "shape": ("size",),
    "size": ("shape",),
    "source": ("value", "values"),
    "split_size": ("num_or_sections",),
    "split_size_or_sections": ("num_or_sections",),
    "src": ("updates", "values"),
    "steps": ("num",),
    "target": ("label", "labels"),
    "targets": ("label", "labels"),
    "tensor": ("x", "data"),
    "tensors": ("x", "inputs"),
    "total_iters": ("total_steps",),
    "vec2": ("y",),
    "weight": ("weight_attr",),
    "weight_decay": ("lamb_weight_decay",),
    "x1": ("x", "input1"),
    "x2": ("y", "input2"),
}
# Where more than the name differs: a parameter that the function has, and what to write.
_ADVICE: dict[str, tuple[tuple[str, str], ...]] = {
    "affine": (("weight_attr", "write weight_attr=False, bias_attr=False for affine=False"),),
    "batch_first": (
        ("time_major", "Paddle's default is batch first; write time_major=True for the other"),
        ("embed_dim", "inputs are always [batch, sequence, features] here"),
        ("d_model", "inputs are always [batch, sequence, features] here"),
    ),
    "betas": (("beta1", "write beta1= and beta2="),),
    "bias": (("bias_attr", "write bias_attr=False for bias=False"),),
    "bidirectional": (("direction", "write direction='bidirectional'"),),
    "elementwise_affine": (
        ("weight_attr", "write weight_attr=False, bias_attr=False for elementwise_affine=False"),
    ),
    "optimizer": (
        ("learning_rate", "give the scheduler to the optimizer: SGD(learning_rate=scheduler, …)"),
    ),
    "pin_memory": (("use_shared_memory", "leave it out: batches go to the device as they are"),),
    "requires_grad": (("stop_gradient", "write stop_gradient=, which is its opposite"),),
    "track_running_stats": (("use_global_stats", "see use_global_stats="),),
}
_UNEXPECTED = re.compile(r"^(?:.*\.)?(\w+)\(\) got an unexpected keyword argument '(\w+)'")

_TWICE = re.compile(r"^(?:.*\.)?\w+\(\) got multiple values for argument '(\w+)'")


def keyword_hint(keyword: str, taken: Collection[str]) -> str | None:
    """What to write instead of `keyword` for a function that takes others; None if unknown."""
    for needed, advice in _ADVICE.get(keyword, ()):
        if needed in taken:
            return advice
    for mine in _NAMES.get(keyword, ()):
        if mine in taken:
            return f"write {mine}="
    near = difflib.get_close_matches(keyword, taken, 1, 0.7)
    return f"write {near[0]}=" if near else None


def unexpected(error: TypeError, name: str, *functions: Callable[..., Any]) -> TypeError:
    """What to raise for the error of a call of the first of `functions`, which the others may have
    called: better words for a keyword that they do not take, and anything else as it is."""
    trace = error.__traceback__
    if trace is None or trace.tb_next is not None:  # it was raised further in
        return error
    twice = _TWICE.match(str(error))
    if twice is not None:
        return TypeMismatch(
            f"[{name}] {twice[1]!r} was given twice: by its place and by name. Received: both"
        )
    found = _UNEXPECTED.match(str(error))
    if found is None:
        return error
    taken = sorted({p for f in functions for p in _parameters(f)})
    hint = keyword_hint(found[2], taken) or (f"it takes {', '.join(taken)}" if taken else None)
    return TypeMismatch(_sentence(name, found[2], hint)) if hint else error


def _sentence(name: str, keyword: str, hint: str) -> str:
    return f"[{name}] got an unexpected keyword argument '{keyword}': {hint}"


def _parameters(function: Callable[..., Any]) -> list[str]:
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.name != "self" and p.kind not in several]


def explain_constructors(classes: Iterable[Any]) -> None:
    """Have the constructors of our classes, and of their bases, name the right keyword."""
    for cls in {b for c in classes if isinstance(c, type) for b in c.__mro__}:
        init = vars(cls).get("__init__")
        # Not of what the engine makes by itself at every call, such as tensors.
        ours = cls.__module__.startswith("bireme.") and not cls.__module__.startswith("bireme.core")
        ours_alone = ours and type(init) is FunctionType
        if ours_alone and not hasattr(init, "explained"):
            cls.__init__ = _explained(init)  # type: ignore[misc]


def _explained(init: FunctionType) -> Any:
    @functools.wraps(init)
    def call(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            init(self, *args, **kwargs)
        except TypeError as e:
            better = unexpected(e, type(self).__name__, init, type(self).__init__)
            if better is e:
                raise
            raise better from None

    call.explained = True  # type: ignore[attr-defined]
    return call


def at_display(error: BaseException) -> BaseException:
    """The error to show for one that nobody caught: calls of ops by PyTorch's keywords, which
    cannot be explained when they fail, are explained here."""
    found = _UNEXPECTED.match(str(error)) if type(error) is TypeError else None
    said = None if found is None else _op_called(found[1], found[2])
    return error if said is None else TypeMismatch(said)


def _op_called(name: str, keyword: str) -> str | None:
    """What to say of an op's keyword, if there is an op of that name without it."""
    function = _public(name)
    taken = [] if function is None else _parameters(function)
    hint = None if keyword in taken else keyword_hint(keyword, taken)
    return hint and _sentence(name, keyword, hint)


def _public(name: str) -> Callable[..., Any] | None:
    """The function of that name that a program has most likely called."""
    for module in ("bireme", "bireme.nn.functional", "bireme.linalg"):
        found = vars(sys.modules[module]).get(name) if module in sys.modules else None
        if inspect.isfunction(found):
            return found
    return None
