"""Batch normalisation of the stored values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bireme.core.tensor import Tensor
from bireme.nn.attributes import ParamAttrLike
from bireme.nn.layer.layer import Layer
from bireme.nn.layer.norm import BatchNorm1D
from bireme.ops.sparse_math import require_sparse

if TYPE_CHECKING:
    from bireme.ops.sparse_tensor import SparseTensor


class BatchNorm(BatchNorm1D):
    """Normalises the stored values [count, channels]; places without a value do not count."""

    _layouts = {"NDHWC": "NHWC", "NHWC": "NHWC"}  # noqa: RUF012

    def __init__(
        self,
        num_features: int,
        momentum: float = 0.9,
        epsilon: float = 1e-5,
        weight_attr: ParamAttrLike | None = None,
        bias_attr: ParamAttrLike | None = None,
        data_format: str = "NDHWC",
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
        self._attributes = (weight_attr, bias_attr)

    def forward(self, input: Tensor) -> SparseTensor:
        given = require_sparse(type(self).__name__, input)
        return given._with(super().forward(given.values()))


class SyncBatchNorm(BatchNorm):
    """BatchNorm with statistics over all devices: where the values are spread over a mesh, the
    compiled program adds them up across it."""

    _layouts = {  # noqa: RUF012
        "NC": "NHWC", "NCL": "NHWC", "NCHW": "NHWC", "NCDHW": "NHWC", "NLC": "NHWC",
        "NHWC": "NHWC", "NDHWC": "NHWC",
    }  # fmt: skip

    def __init__(
        self,
        num_features: int,
        momentum: float = 0.9,
        epsilon: float = 1e-5,
        weight_attr: ParamAttrLike | None = None,
        bias_attr: ParamAttrLike | None = None,
        data_format: str = "NCHW",
        name: str | None = None,
    ) -> None:
        super().__init__(
            num_features, momentum, epsilon, weight_attr, bias_attr, data_format, None, name
        )

    @classmethod
    def convert_sync_batchnorm(cls, layer: Layer) -> Layer:
        """`layer` with every sparse BatchNorm inside it replaced; weights are shared."""
        made = layer
        if type(layer) is BatchNorm:
            weight_attr, bias_attr = layer._attributes
            made = cls(
                layer._num_features,
                layer._momentum,
                layer._epsilon,
                weight_attr,
                bias_attr,
                layer._data_format,
                layer._name,
            )
            made.weight, made.bias = layer.weight, layer.bias
            made._mean, made._variance = layer._mean, layer._variance
            made.training = layer.training
        for name, child in layer.named_children():
            made.add_sublayer(name, cls.convert_sync_batchnorm(child))
        return made
