"""Autocast: products in half precision, sums and logarithms in float32.

Each op says itself where it belongs (`amp="white"` or `"black"`). The setting lives on the trace;
an op looks it up once per input types, so autocast costs nothing per call.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ContextDecorator
from typing import Any

from bireme.autograd.scoped import Scoped
from bireme.core import dtype as dt
from bireme.core.dtype import DType
from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.core.op import Op
from bireme.core.trace import state

_FLOATS = (dt.float16, dt.bfloat16, dt.float32)

# Names that scripts use in custom lists for what is one op here.
_SYNONYMS = {
    "matmul_v2": "matmul",
    "linear_v2": "linear",
    "mul": "matmul",
    "elementwise_add": "add",
    "elementwise_sub": "subtract",
    "elementwise_mul": "multiply",
    "elementwise_div": "divide",
    "elementwise_pow": "pow",
    "reduce_sum": "sum",
    "reduce_mean": "mean",
    "reduce_prod": "prod",
    "softmax_with_cross_entropy": "cross_entropy",
    "lookup_table_v2": "embedding",
    "depthwise_conv2d": "conv2d",
    "elementwise_floordiv": "floor_divide",
    "elementwise_max": "maximum",
    "elementwise_min": "minimum",
    "elementwise_mod": "remainder",
    "expand_v2": "expand",
    "flatten2": "flatten",
    "lookup_table": "embedding",
    "p_norm": "norm",
    "reshape2": "reshape",
    "squeeze2": "squeeze",
    "top_k": "topk",
    "transpose2": "transpose",
    "unsqueeze2": "unsqueeze",
}


def spellings(op: str) -> set[str]:
    """The names of an op in Paddle's programs, where they differ from its own."""
    return {name for name, own in _SYNONYMS.items() if own == op}


class Autocast:
    """What autocast does to each op. Interned: equal settings are one object, compared by `is`."""

    __slots__ = ("black", "dtype", "everything", "level", "white")

    def __init__(
        self,
        level: str,
        dtype: DType,
        white: frozenset[str],
        black: frozenset[str],
        everything: bool,
    ):
        self.level = level
        self.dtype = dtype
        self.white = white
        self.black = black
        self.everything = everything  # O2 without promotion: all that is not black

    def cast(self, op: Op, dtype: DType) -> DType:
        """The type in which `op` takes a tensor of `dtype`."""
        if dtype not in _FLOATS:
            return dtype
        name = op.name.strip("_")
        if name in self.black:
            return dt.float32
        if name in self.white:
            return self.dtype
        if op.amp == "white":
            return self.dtype
        if op.amp == "black":
            return dt.float32
        return self.dtype if self.everything else dtype


_settings: dict[Any, Autocast] = {}


class _LastUsed:
    """The dtype of the latest autocast, which GradScaler asks for after the block has ended."""

    dtype: DType | None = None


def _names(given: Any, what: str) -> frozenset[str]:
    if given is None:
        return frozenset()
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeMismatch(
            f"[auto_cast] {what} must be a list or set of op names. Received: {given!r}"
        )
    names = {str(n) for n in given}
    names |= {_SYNONYMS[n] for n in names if n in _SYNONYMS}
    if "matmul" in names:
        names.add("linear")  # F.linear is a product and a sum there, one op here
    return frozenset(names)


class auto_cast(Scoped, ContextDecorator):  # noqa: N801 (Paddle's name)
    """Run the ops inside the block in mixed precision.

    Level O1 runs products and convolutions in `dtype`; O2 expects a model from `decorate`, whose
    weights are in `dtype` already; O0 changes nothing.
    """

    _attribute = "amp"

    def __init__(
        self,
        enable: bool = True,
        custom_white_list: Iterable[str] | None = None,
        custom_black_list: Iterable[str] | None = None,
        level: str = "O1",
        dtype: str = "float16",
        use_promote: bool = True,
    ) -> None:
        if level not in ("O0", "OD", "O1", "O2"):
            raise InvalidArgument(
                f"[auto_cast] level must be O0, OD, O1 or O2. Received: {level!r}"
            )
        kind = dt.as_dtype(dtype)
        if kind not in (dt.float16, dt.bfloat16):
            raise InvalidArgument(
                f"[auto_cast] dtype must be 'float16' or 'bfloat16'. Received: {dtype!r}"
            )
        white = _names(custom_white_list, "custom_white_list")
        black = _names(custom_black_list, "custom_black_list")
        both = white & black
        if both:
            raise InvalidArgument(f"[auto_cast] these ops are in both custom lists: {sorted(both)}")
        everything = level == "O2" and not use_promote
        self._setting: Autocast | None = None
        if enable and level != "O0":
            key = (level, kind, white, black, everything)
            self._setting = _settings.get(key) or _settings.setdefault(key, Autocast(*key))
        super().__init__()

    def _recreate_cm(self) -> auto_cast:
        return self

    def __enter__(self) -> None:
        self._begin(self._setting)
        if self._setting is not None:
            _LastUsed.dtype = self._setting.dtype


amp_guard = auto_cast


def autocast(
    device_type: str | None = None,
    dtype: str = "float16",
    enabled: bool = True,
    cache_enabled: bool = True,
) -> auto_cast:
    """`auto_cast` with PyTorch's arguments. It holds for all devices, and
    casts are shared by the compiler in any case."""
    return auto_cast(enable=enabled, dtype=dtype)


def is_autocast_enabled(device_type: str | None = None) -> bool:
    """Whether autocast is on in this thread, on whichever device."""
    return state.trace.amp is not None


def get_autocast_dtype(device_type: str | None = None) -> DType:
    """The type that autocast uses here, on all devices; float32 where it is off."""
    setting = state.trace.amp
    return dt.float32 if setting is None else setting.dtype


def amp_state() -> dict[str, Any] | None:
    """The settings of the autocast that is on, None where there is none."""
    setting = state.trace.amp
    if setting is None:
        return None
    lists = {"custom_white_list": set(setting.white), "custom_black_list": set(setting.black)}
    return {"enable": True, "level": setting.level, "dtype": setting.dtype.name, **lists}


__all__ = ["amp_guard", "auto_cast", "autocast", "get_autocast_dtype", "is_autocast_enabled"]
