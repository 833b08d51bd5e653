"""Types of arguments that many functions share, in the words of Paddle's documentation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from bireme.core.dtype import DType
    from bireme.core.place import Place
    from bireme.core.tensor import Tensor

# Quoted: these are for type checkers, and naming a tensor here imports none.
DTypeLike: TypeAlias = "str | DType | npt.DTypeLike"
PlaceLike: TypeAlias = "str | Place"
DeviceLike: TypeAlias = "int | str | Place"
TensorLike: TypeAlias = "Tensor | npt.ArrayLike"
# One number, also as a tensor with one element.
Scalar: TypeAlias = "complex | Tensor | np.generic"
# What arithmetic takes beside a tensor: numbers and arrays. Lists are no operands.
Operand: TypeAlias = "Tensor | complex | np.ndarray | np.generic"

Axis: TypeAlias = "int | Sequence[int]"
IntOrTensor: TypeAlias = "int | Tensor"
# Integers that tensors may hold: axes, starts and ends, numbers of repeats.
Ints: TypeAlias = "int | Tensor | Sequence[int | Tensor]"
Shape: TypeAlias = "int | Tensor | Sequence[int | Tensor]"

# One tensor, or nested sequences and dicts of them: a layer's states, a batch.
TensorTree: TypeAlias = "Tensor | Sequence[TensorTree] | Mapping[str, TensorTree]"

# A size per spatial axis: one number for all of them, or a number for each.
IntOrSingle: TypeAlias = "int | Sequence[int]"
IntOrPair: TypeAlias = "int | Sequence[int]"
IntOrTriple: TypeAlias = "int | Sequence[int]"
# A size per spatial axis of what comes out; None leaves that one as it is.
OutputSize: TypeAlias = "int | Tensor | Sequence[int | Tensor | None]"
# Of convolutions and poolings: 'SAME', 'VALID', a number, one per axis or one per side.
Padding: TypeAlias = "str | int | Sequence[int] | Sequence[Sequence[int]]"
# What to do with a loss per sample.
Reduction: TypeAlias = Literal["mean", "sum", "none"]
# What lies beyond the border of a convolution's input.
PaddingMode: TypeAlias = Literal["zeros", "reflect", "replicate", "circular"]
# Where the channels are.
DataFormat1D: TypeAlias = Literal["NCL", "NLC"]
DataFormat2D: TypeAlias = Literal["NCHW", "NHWC"]
DataFormat3D: TypeAlias = Literal["NCDHW", "NDHWC"]
