"""Batch normalisation over the batch of all devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bireme.core.tensor import Tensor
from bireme.nn.attributes import ParamAttrLike
from bireme.nn.layer.layer import Layer
from bireme.nn.layer.norm import _BatchNormBase
from bireme.ops.creation import full
from bireme.ops.joining import concat

# The sum of a tensor over the processes of a job, differentiable; set by bireme.distributed where
# there are several.
total: Callable[[Tensor], Tensor] | None = None


class SyncBatchNorm(_BatchNormBase):
    """Batch norm of any rank whose statistics cover the whole batch, wherever its parts are.

    A tensor that is sharded over devices is one tensor to every op here, so the statistics of a
    sharded batch are the global ones. In a job of several processes, which see a part of the batch
    each, sums are exchanged.
    """

    _ranks = (2, 3, 4, 5)
    _layouts = {  # noqa: RUF012 (a constant)
        **dict.fromkeys(("NCHW", "NCDHW", "NC", "NCL"), "NCHW"),
        **dict.fromkeys(("NHWC", "NDHWC", "NLC"), "NHWC"),
    }

    def __init__(
        self,
        num_features: int,
        momentum: float = 0.9,
        epsilon: float = 1e-05,
        weight_attr: ParamAttrLike | None = None,
        bias_attr: ParamAttrLike | None = None,
        data_format: str = "NCHW",
        name: str | None = None,
    ) -> None:
        super().__init__(
            num_features, momentum, epsilon, weight_attr, bias_attr, data_format, None, name
        )

    def forward(self, input: Tensor) -> Tensor:
        if total is None or not self.training:
            return super().forward(input)
        self._check_rank(input)
        axis = 1 if self._layout == "NCHW" else input.ndim - 1
        axes = [i for i in range(input.ndim) if i != axis]
        spread = [1 if i in axes else -1 for i in range(input.ndim)]
        wide = input.astype(self._mean.dtype)
        count = input.size // self._num_features
        # Two exchanges: a variance from sums of squares alone loses its digits.
        sums = concat([wide.sum(axes), full([1], count, dtype=wide.dtype)])
        sums = total(sums)
        everything = sums[-1]
        mean = sums[:-1] / everything
        centred = wide - mean.reshape(spread)
        variance = total((centred * centred).sum(axes)) / everything
        out = centred * (variance + self._epsilon).rsqrt().reshape(spread)
        if self.weight is not None:
            out = out * self.weight.reshape(spread)
        if self.bias is not None:
            out = out + self.bias.reshape(spread)
        keep = self._momentum
        for kept, new in ((self._mean, mean), (self._variance, variance)):
            kept._put((kept.detach() * keep + new.detach() * (1 - keep))._value)
        return out.astype(input.dtype)

    @classmethod
    def convert_sync_batchnorm(cls, layer: Layer) -> Layer:
        """The network with every batch norm in it turned into this one, weights kept."""
        made: Any = layer
        if isinstance(layer, _BatchNormBase) and not isinstance(layer, cls):
            old: Any = layer
            made = cls(
                old._num_features,
                old._momentum,
                old._epsilon,
                None if old.weight is not None else False,
                None if old.bias is not None else False,
                old._data_format,
                old._name,
            )
            made.weight, made.bias = old.weight, old.bias
            made._mean, made._variance = old._mean, old._variance
            made.training = old.training
        for name, child in list(layer.named_children()):
            made.add_sublayer(name, cls.convert_sync_batchnorm(child))
        return made


__all__ = ["SyncBatchNorm"]
