"""Normalisation layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from bireme.api.keywords import second_names
from bireme.api.types import DTypeLike, PlaceLike
from bireme.core import dtype as dt
from bireme.core.errors import InvalidArgument, ShapeMismatch
from bireme.core.tensor import Tensor
from bireme.nn import functional as F
from bireme.nn.attributes import ParamAttr, ParamAttrLike
from bireme.nn.initializer import Constant, Normal
from bireme.nn.layer.layer import Layer
from bireme.ops.norm import batch_norm


class _BatchNormBase(Layer):
    """Running statistics, scale and shift; subclasses say which shapes they take."""

    _ranks: tuple[int, ...] = ()
    _layouts: dict[str, str] = {}  # noqa: RUF012 (a constant of each subclass)

    def __init__(
        self,
        num_features: int,
        momentum: float = 0.9,
        epsilon: float = 1e-5,
        weight_attr: ParamAttrLike | None = None,
        bias_attr: ParamAttrLike | None = None,
        data_format: str = "NCHW",
        use_global_stats: bool | None = None,
        name: str | None = None,
    ) -> None:
        # Statistics of half-precision networks are kept in float32.
        kind = dt.default_float()
        super().__init__(dtype="float32" if kind is dt.float16 else kind.name)
        if data_format not in self._layouts:
            raise InvalidArgument(
                f"[{type(self).__name__}] data_format must be one of {list(self._layouts)}. "
                f"Received: {data_format!r}"
            )
        self._num_features = num_features
        self._momentum = momentum
        self._epsilon = epsilon
        self._data_format = data_format
        self._layout = self._layouts[data_format]
        self._use_global_stats = use_global_stats
        self._name = name
        _make_batch_norm(self, num_features, weight_attr, bias_attr, *_statistics_names(name))

    def _check_rank(self, input: Tensor) -> None:
        if input._value.aval.ndim not in self._ranks:
            wanted = " or ".join(f"{r}D" for r in self._ranks)
            raise ShapeMismatch(
                f"[{type(self).__name__}] expected {wanted} input. Received: shape {input.shape}"
            )

    def forward(self, input: Tensor) -> Tensor:
        self._check_rank(input)
        return batch_norm(
            input,
            self._mean,
            self._variance,
            self.weight,
            self.bias,
            self.training,
            self._momentum,
            self._epsilon,
            self._layout,
            self._use_global_stats,
        )

    def extra_repr(self) -> str:
        text = (
            f"num_features={self._num_features}, momentum={self._momentum}, epsilon={self._epsilon}"
        )
        if self._data_format != "NCHW":
            text += f", data_format={self._data_format}"
        return text if self._name is None else f"{text}, name={self._name}"


def _statistics_names(name: str | None) -> tuple[str | None, str | None]:
    return (None, None) if name is None else (f"{name}_mean", f"{name}_variance")


def _make_batch_norm(
    layer: Any,
    channels: int,
    weight_attr: ParamAttrLike | None,
    bias_attr: ParamAttrLike | None,
    mean_name: str | None,
    variance_name: str | None,
    do_model_average: bool = True,
) -> None:
    shape, kind = [channels], layer._dtype
    layer.weight = layer.create_parameter(
        shape, weight_attr, kind, default_initializer=Constant(1.0)
    )
    layer.bias = layer.create_parameter(shape, bias_attr, kind, is_bias=True)
    for attribute, name, start in (("_mean", mean_name, 0.0), ("_variance", variance_name, 1.0)):
        settings = ParamAttr(name, Constant(start), 1.0, None, False, do_model_average)
        setattr(layer, attribute, layer.create_parameter(shape, settings, kind))


class BatchNorm1D(_BatchNormBase):
    """Batch normalisation of [N, C] or [N, C, L]."""

    _ranks = (2, 3)
    _layouts = {"NC": "NCHW", "NCL": "NCHW", "NCHW": "NCHW", "NLC": "NHWC", "NHWC": "NHWC"}  # noqa: RUF012

    def __init__(
        self,
        num_features: int,
        momentum: float = 0.9,
        epsilon: float = 1e-5,
        weight_attr: ParamAttrLike | None = None,
        bias_attr: ParamAttrLike | None = None,
        data_format: str = "NCL",
        use_global_stats: bool | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(
            num_features,
            momentum,
            epsilon,
            weight_attr,
            bias_attr,
            data_format,
            use_global_stats,
            name,
        )


class BatchNorm2D(_BatchNormBase):
    """Batch normalisation of [N, C, H, W]."""

    _ranks = (4,)
    _layouts = {"NCHW": "NCHW", "NHWC": "NHWC"}  # noqa: RUF012


class BatchNorm3D(_BatchNormBase):
    """Batch normalisation of [N, C, D, H, W]."""

    _ranks = (5,)
    _layouts = {"NCHW": "NCHW", "NCDHW": "NCHW", "NHWC": "NHWC", "NDHWC": "NHWC"}  # noqa: RUF012

    def __init__(
        self,
        num_features: int,
        momentum: float = 0.9,
        epsilon: float = 1e-5,
        weight_attr: ParamAttrLike | None = None,
        bias_attr: ParamAttrLike | None = None,
        data_format: str = "NCDHW",
        use_global_stats: bool | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(
            num_features,
            momentum,
            epsilon,
            weight_attr,
            bias_attr,
            data_format,
            use_global_stats,
            name,
        )


class BatchNorm(Layer):
    """Batch normalisation of any rank, with an optional activation."""

    def __init__(
        self,
        num_channels: int,
        act: str | None = None,
        is_test: bool = False,
        momentum: float = 0.9,
        epsilon: float = 1e-5,
        param_attr: ParamAttrLike | None = None,
        bias_attr: ParamAttrLike | None = None,
        dtype: DTypeLike = "float32",
        data_layout: str = "NCHW",
        in_place: bool = False,
        moving_mean_name: str | None = None,
        moving_variance_name: str | None = None,
        do_model_average_for_mean_and_var: bool = True,
        use_global_stats: bool = False,
        trainable_statistics: bool = False,
    ) -> None:
        kind = dt.as_dtype(dtype)
        super().__init__(dtype="float32" if kind is dt.float16 else kind.name)
        _make_batch_norm(
            self,
            num_channels,
            param_attr,
            bias_attr,
            moving_mean_name,
            moving_variance_name,
            do_model_average_for_mean_and_var,
        )
        self._act = act
        # Values are immutable on this engine: an in-place result only reuses memory, which the
        # planner does anyway.
        self._in_place = in_place
        self._data_layout = data_layout
        self._momentum = momentum
        self._epsilon = epsilon
        self._use_global_stats = use_global_stats
        self._trainable_statistics = trainable_statistics
        self.training = not is_test

    def forward(self, input: Tensor) -> Tensor:
        out = F.batch_norm(
            input,
            self._mean,
            self._variance,
            self.weight,
            self.bias,
            self.training or self._trainable_statistics,
            self._momentum,
            self._epsilon,
            self._data_layout,
            self._use_global_stats or None,  # here False leaves it to the mode
        )
        return out if self._act is None else getattr(F, self._act)(out)


class LayerNorm(Layer):
    """Normalisation over the last dimensions."""

    @second_names(eps="epsilon")
    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        epsilon: float = 1e-5,
        *,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: PlaceLike | None = None,
        dtype: DTypeLike | None = None,
        weight_attr: ParamAttrLike | None = None,
        bias_attr: ParamAttrLike | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(dtype=dtype or dt.get_default_dtype())
        whole = isinstance(normalized_shape, int | np.integer)
        sizes = [normalized_shape] if whole else normalized_shape
        self._normalized_shape = tuple(int(n) for n in sizes)
        self._epsilon = epsilon
        shape = [math.prod(self._normalized_shape)]
        self.weight = self.create_parameter(
            shape,
            weight_attr if elementwise_affine else False,
            self._dtype,
            default_initializer=Constant(1.0),
            device=device,
        )
        self.bias = self.create_parameter(
            shape,
            bias_attr if elementwise_affine and bias else False,
            self._dtype,
            is_bias=True,
            default_initializer=Constant(0.0),
            device=device,
        )

    def forward(self, input: Tensor) -> Tensor:
        return F.layer_norm(input, self._normalized_shape, self.weight, self.bias, self._epsilon)

    def extra_repr(self) -> str:
        return f"normalized_shape={list(self._normalized_shape)}, epsilon={self._epsilon}"


class RMSNorm(Layer):
    """Division by the root mean square over the last dimensions, times a learned scale."""

    @second_names(eps="epsilon")
    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        epsilon: float = 1e-6,
        weight_attr: ParamAttrLike | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(dtype=dt.get_default_dtype())
        whole = isinstance(normalized_shape, int | np.integer)
        sizes = [normalized_shape] if whole else normalized_shape
        self._normalized_shape = tuple(int(n) for n in sizes)
        self._epsilon = epsilon
        self.weight = self.create_parameter(
            self._normalized_shape, weight_attr, default_initializer=Constant(1.0)
        )

    def forward(self, input: Tensor) -> Tensor:
        return F.rms_norm(input, self._normalized_shape, self.weight, self._epsilon)

    def extra_repr(self) -> str:
        return f"normalized_shape={list(self._normalized_shape)}, epsilon={self._epsilon}"


class GroupNorm(Layer):
    """Normalisation over groups of channels."""

    @second_names(eps="epsilon")
    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        epsilon: float = 1e-5,
        *,
        affine: bool = True,
        device: PlaceLike | None = None,
        dtype: DTypeLike | None = None,
        weight_attr: ParamAttrLike | None = None,
        bias_attr: ParamAttrLike | None = None,
        data_format: str = "NCHW",
        name: str | None = None,
    ) -> None:
        super().__init__(dtype=dtype or dt.get_default_dtype())
        if data_format not in ("NC", "NCL", "NCHW", "NCDHW", "NLC", "NHWC", "NDHWC"):
            raise InvalidArgument(f"[GroupNorm] unknown data_format. Received: {data_format!r}")
        self._num_groups = num_groups
        self._num_channels = num_channels
        self._epsilon = epsilon
        self._data_format = "NCHW" if data_format[1] == "C" else "NHWC"
        self.weight = self._affine(weight_attr if affine else False, False, device)
        self.bias = self._affine(bias_attr if affine else False, True, device)

    def _affine(self, attr: ParamAttrLike | None, is_bias: bool, device: PlaceLike | None) -> Any:
        made = self.create_parameter(
            [self._num_channels],
            attr,
            self._dtype,
            is_bias=is_bias,
            default_initializer=Constant(0.0 if is_bias else 1.0),
            device=device,
        )
        if made is not None:
            made.stop_gradient = isinstance(attr, ParamAttr) and attr.learning_rate == 0.0
        return made

    def forward(self, input: Tensor) -> Tensor:
        return F.group_norm(
            input, self._num_groups, self._epsilon, self.weight, self.bias, self._data_format
        )

    def extra_repr(self) -> str:
        return (
            f"num_groups={self._num_groups}, num_channels={self._num_channels}, "
            f"epsilon={self._epsilon}"
        )


class _InstanceNorm(Layer):
    _ranks: tuple[int, ...] = ()

    def __init__(
        self,
        num_features: int,
        epsilon: float,
        momentum: float,
        weight_attr: ParamAttrLike | None,
        bias_attr: ParamAttrLike | None,
        data_format: str,
    ) -> None:
        super().__init__()
        if (weight_attr is False) != (bias_attr is False):
            raise InvalidArgument(
                f"[{type(self).__name__}] weight_attr and bias_attr must both be False, or neither"
            )
        self._momentum = momentum
        self._epsilon = epsilon
        self._num_features = num_features
        self._data_format = data_format
        self.scale = self.create_parameter(
            [num_features], weight_attr, default_initializer=Constant(1.0)
        )
        self.bias = self.create_parameter(
            [num_features], bias_attr, is_bias=True, default_initializer=Constant(0.0)
        )

    def forward(self, input: Tensor) -> Tensor:
        if input._value.aval.ndim not in self._ranks:
            wanted = " or ".join(f"{r}D" for r in self._ranks)
            raise ShapeMismatch(
                f"[{type(self).__name__}] expected {wanted} input. Received: shape {input.shape}"
            )
        return F.instance_norm(
            input,
            weight=self.scale,
            bias=self.bias,
            momentum=self._momentum,
            eps=self._epsilon,
            data_format=self._data_format,
        )

    def extra_repr(self) -> str:
        return f"num_features={self._num_features}, epsilon={self._epsilon}"


class InstanceNorm1D(_InstanceNorm):
    """Normalisation of each channel of each sequence."""

    _ranks = (2, 3)

    def __init__(
        self,
        num_features: int,
        epsilon: float = 1e-5,
        momentum: float = 0.9,
        weight_attr: ParamAttrLike | None = None,
        bias_attr: ParamAttrLike | None = None,
        data_format: str = "NCL",
        name: str | None = None,
    ) -> None:
        super().__init__(num_features, epsilon, momentum, weight_attr, bias_attr, data_format)


class InstanceNorm2D(_InstanceNorm):
    """Normalisation of each channel of each image."""

    _ranks = (4,)

    def __init__(
        self,
        num_features: int,
        epsilon: float = 1e-5,
        momentum: float = 0.9,
        weight_attr: ParamAttrLike | None = None,
        bias_attr: ParamAttrLike | None = None,
        data_format: str = "NCHW",
        name: str | None = None,
    ) -> None:
        super().__init__(num_features, epsilon, momentum, weight_attr, bias_attr, data_format)


class InstanceNorm3D(_InstanceNorm):
    """Normalisation of each channel of each volume."""

    _ranks = (5,)

    def __init__(
        self,
        num_features: int,
        epsilon: float = 1e-5,
        momentum: float = 0.9,
        weight_attr: ParamAttrLike | None = None,
        bias_attr: ParamAttrLike | None = None,
        data_format: str = "NCDHW",
        name: str | None = None,
    ) -> None:
        super().__init__(num_features, epsilon, momentum, weight_attr, bias_attr, data_format)


class LocalResponseNorm(Layer):
    """Division by the strength of neighbouring channels."""

    def __init__(
        self,
        size: int,
        alpha: float = 0.0001,
        beta: float = 0.75,
        k: float = 1.0,
        data_format: str = "NCHW",
        name: str | None = None,
    ) -> None:
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k
        self.data_format = data_format
        self.name = name

    def forward(self, input: Tensor) -> Tensor:
        return F.local_response_norm(
            input, self.size, self.alpha, self.beta, self.k, self.data_format
        )

    def extra_repr(self) -> str:
        text = f"size={self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
        if self.data_format != "NCHW":
            text += f", data_format={self.data_format}"
        return text if self.name is None else f"{text}, name={self.name}"


class SpectralNorm(Layer):
    """A weight divided by its largest singular value, by power iteration."""

    def __init__(
        self,
        weight_shape: Sequence[int],
        dim: int = 0,
        power_iters: int = 1,
        eps: float = 1e-12,
        dtype: DTypeLike = "float32",
    ) -> None:
        super().__init__(dtype=dtype)
        if math.prod(weight_shape) <= 0:
            raise InvalidArgument(
                f"[SpectralNorm] weight_shape must have no empty dimension. Received: "
                f"{list(weight_shape)}"
            )
        if not 0 <= dim < len(weight_shape):
            raise InvalidArgument(
                f"[SpectralNorm] dim must be in [0, {len(weight_shape)}). Received: {dim}"
            )
        self._dim = dim
        self._power_iters = power_iters
        self._eps = eps
        self._weight_shape = list(weight_shape)
        rows = weight_shape[dim]
        sizes = (("weight_u", rows), ("weight_v", math.prod(weight_shape) // rows))
        for name, size in sizes:
            vector = self.create_parameter(
                [size], None, dtype, default_initializer=Normal(0.0, 1.0)
            )
            vector.stop_gradient = True
            setattr(self, name, vector)

    def forward(self, x: Tensor) -> Tensor:
        from bireme.nn.utils.spectral import divide_by_sigma, power_iteration

        # As in Paddle, every call starts from the stored vectors and leaves them as they are.
        settings = (self._dim, self._power_iters, self._eps)
        u, v = power_iteration(x, self.weight_u, self.weight_v, *settings)
        return divide_by_sigma(x, u, v, self._dim)


__all__ = [
    "BatchNorm",
    "BatchNorm1D",
    "BatchNorm2D",
    "BatchNorm3D",
    "GroupNorm",
    "InstanceNorm1D",
    "InstanceNorm2D",
    "InstanceNorm3D",
    "LayerNorm",
    "LocalResponseNorm",
    "RMSNorm",
    "SpectralNorm",
]
