"""Linear, Embedding and other layers that fit no family."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import bireme
from bireme.api.keywords import second_names
from bireme.api.types import DTypeLike, IntOrPair, PlaceLike
from bireme.core import dtype as dt
from bireme.core.errors import InvalidArgument, ShapeMismatch
from bireme.core.tensor import Tensor
from bireme.nn import functional as F
from bireme.nn.attributes import ParamAttrLike
from bireme.nn.layer.layer import Layer
from bireme.nn.layer.shown import ShownLayer


class Identity(Layer):
    """Returns its input. Takes and forgets any arguments, to stand in for another layer."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Any) -> Any:
        return input


class Linear(Layer):
    """x @ weight + bias, with weight [in_features, out_features]."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        weight_attr: ParamAttrLike | None = None,
        bias_attr: ParamAttrLike | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(dtype=dt.get_default_dtype())
        self._weight_attr = weight_attr
        self._bias_attr = bias_attr
        self.weight = self.create_parameter([in_features, out_features], weight_attr)
        self.bias = self.create_parameter([out_features], bias_attr, is_bias=True)
        self.name = name

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        sizes = self.weight.shape
        name = f", name={self.name}" if self.name else ""
        kind = dt.as_dtype(self._dtype).name
        return f"in_features={sizes[0]}, out_features={sizes[1]}, dtype={kind}{name}"


class Bilinear(Layer):
    """x1 @ weight[i] @ x2 for each output feature i, plus bias."""

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        weight_attr: ParamAttrLike | None = None,
        bias_attr: ParamAttrLike | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(dtype=dt.get_default_dtype())
        self._in1_features = in1_features
        self._in2_features = in2_features
        self._out_features = out_features
        self._name = name
        self.weight = self.create_parameter([out_features, in1_features, in2_features], weight_attr)
        self.bias = self.create_parameter([1, out_features], bias_attr, is_bias=True)

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.bilinear(x1, x2, self.weight, self.bias)

    def extra_repr(self) -> str:
        name = f", name={self._name}" if self._name else ""
        return (
            f"in1_features={self._in1_features}, in2_features={self._in2_features}, "
            f"out_features={self._out_features}, dtype={dt.as_dtype(self._dtype).name}{name}"
        )


class Embedding(Layer):
    """A table of vectors, looked up by integer."""

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        *,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        _freeze: bool = False,
        device: PlaceLike | None = None,
        dtype: DTypeLike | None = None,
        weight_attr: ParamAttrLike | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(dtype=dtype or dt.get_default_dtype())
        if num_embeddings <= 0 or embedding_dim <= 0:
            raise InvalidArgument(
                f"[Embedding] sizes must be positive. Received: num_embeddings={num_embeddings}, "
                f"embedding_dim={embedding_dim}"
            )
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise InvalidArgument(
                f"[Embedding] padding_idx must be in [-{num_embeddings}, {num_embeddings}). "
                f"Received: {padding_idx}"
            )
        self._num_embeddings = num_embeddings
        self._embedding_dim = embedding_dim
        self._padding_idx = padding_idx
        self._max_norm = max_norm
        self._norm_type = norm_type
        self._scale_grad_by_freq = scale_grad_by_freq
        self._sparse = sparse
        self._name = name
        if _weight is not None:
            if list(_weight.shape) != [num_embeddings, embedding_dim]:
                raise ShapeMismatch(
                    f"[Embedding] _weight must have shape [{num_embeddings}, {embedding_dim}]. "
                    f"Received: {_weight.shape}"
                )
            self.weight = _weight
            self.weight.stop_gradient = _freeze
        else:
            self.weight = self.create_parameter(
                [num_embeddings, embedding_dim], weight_attr, dtype=self._dtype, device=device
            )
            if weight_attr is None:
                self.weight.stop_gradient = _freeze
        if padding_idx is not None:
            table = np.array(self.weight.numpy())
            table[padding_idx] = 0
            self.weight.set_value(table)

    @property
    def padding_idx(self) -> int | None:
        return self._padding_idx

    @padding_idx.setter
    def padding_idx(self, value: int | None) -> None:
        self._padding_idx = value

    def forward(self, x: Tensor) -> Tensor:
        return F.embedding(
            x,
            self.weight,
            self._padding_idx,
            self._max_norm,
            self._norm_type,
            self._sparse,
            self._scale_grad_by_freq,
        )

    def extra_repr(self) -> str:
        text = f"{self._num_embeddings}, {self._embedding_dim}"
        if self._padding_idx is not None:
            text += f", padding_idx={self._padding_idx}"
        text += f", sparse={self._sparse}, scale_grad_by_freq={self._scale_grad_by_freq}"
        return text if self._name is None else f"{text}, name={self._name}"


class CosineSimilarity(ShownLayer):
    """The cosine of the angle between x1 and x2 along `axis`."""

    _shown = ("_axis", "_eps")

    @second_names(dim="axis")
    def __init__(self, axis: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self._axis = axis
        self._eps = eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.cosine_similarity(x1, x2, axis=self._axis, eps=self._eps)


class PairwiseDistance(Layer):
    """The p-norm of x - y, row by row."""

    @second_names(eps="epsilon")
    def __init__(
        self,
        p: float = 2.0,
        epsilon: float = 1e-6,
        keepdim: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__()
        self.p = p
        self.epsilon = epsilon
        self.keepdim = keepdim
        self.name = name

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return F.pairwise_distance(x, y, self.p, self.epsilon, self.keepdim)

    def extra_repr(self) -> str:
        text = f"p={self.p}"
        if self.epsilon != 1e-6:
            text += f", epsilon={self.epsilon}"
        if self.keepdim is not False:
            text += f", keepdim={self.keepdim}"
        return text if self.name is None else f"{text}, name={self.name}"


class _Windows(Layer):
    kernel_sizes: Any
    dilations: Any
    paddings: Any
    strides: Any
    name: str | None

    def extra_repr(self) -> str:
        name = f", name={self.name}" if self.name else ""
        return (
            f"kernel_size={self.kernel_sizes}, dilation={self.dilations}, "
            f"padding={self.paddings}, stride={self.strides}{name}"
        )


class Unfold(_Windows):
    """Every window of an image as a column."""

    def __init__(
        self,
        kernel_sizes: IntOrPair,
        dilations: IntOrPair = 1,
        paddings: IntOrPair = 0,
        strides: IntOrPair = 1,
        name: str | None = None,
    ) -> None:
        super().__init__()
        self.kernel_sizes = kernel_sizes
        self.dilations = dilations
        self.paddings = paddings
        self.strides = strides
        self.name = name

    def forward(self, input: Tensor) -> Tensor:
        return F.unfold(
            input,
            kernel_sizes=self.kernel_sizes,
            strides=self.strides,
            paddings=self.paddings,
            dilations=self.dilations,
        )


class Fold(_Windows):
    """Columns of windows summed back into an image."""

    @second_names(
        output_size="output_sizes",
        kernel_size="kernel_sizes",
        stride="strides",
        padding="paddings",
        dilation="dilations",
    )
    def __init__(
        self,
        output_sizes: IntOrPair,
        kernel_sizes: IntOrPair,
        dilations: IntOrPair = 1,
        paddings: IntOrPair = 0,
        strides: IntOrPair = 1,
        name: str | None = None,
    ) -> None:
        super().__init__()
        self.output_sizes = output_sizes
        self.kernel_sizes = kernel_sizes
        self.dilations = dilations
        self.paddings = paddings
        self.strides = strides
        self.name = name

    def forward(self, input: Tensor) -> Tensor:
        return F.fold(
            input,
            output_sizes=self.output_sizes,
            kernel_sizes=self.kernel_sizes,
            strides=self.strides,
            paddings=self.paddings,
            dilations=self.dilations,
        )


class Flatten(Layer):
    """The dimensions from `start_axis` to `stop_axis` as one."""

    def __init__(self, start_axis: int = 1, stop_axis: int = -1) -> None:
        super().__init__()
        self.start_axis = start_axis
        self.stop_axis = stop_axis

    def forward(self, input: Tensor) -> Tensor:
        return bireme.flatten(input, self.start_axis, self.stop_axis)


class Unflatten(ShownLayer):
    """One dimension as several."""

    _shown = ("axis", "shape")

    def __init__(self, axis: int, shape: Sequence[int] | Tensor, name: str | None = None) -> None:
        super().__init__()
        self.axis = axis
        self.shape = shape
        self._name = name

    def forward(self, input: Tensor) -> Tensor:
        return bireme.unflatten(input, self.axis, self.shape)


__all__ = [
    "Bilinear",
    "CosineSimilarity",
    "Embedding",
    "Flatten",
    "Fold",
    "Identity",
    "Linear",
    "PairwiseDistance",
    "Unflatten",
    "Unfold",
]
