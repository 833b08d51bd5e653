"""Batch normalisation over the batch of all devices."""

from __future__ import annotations

from typing import Any

from bireme.nn.layer.layer import Layer
from bireme.nn.layer.norm import _BatchNormBase


class SyncBatchNorm(_BatchNormBase):
    """Batch norm of any rank whose statistics cover the whole batch, wherever its parts are.

    A tensor that is sharded over devices is one tensor to every op here, so the statistics of a
    sharded batch are the global ones; nothing else needs to be exchanged.
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
        weight_attr: Any = None,
        bias_attr: Any = None,
        data_format: str = "NCHW",
        name: str | None = None,
    ) -> None:
        super().__init__(
            num_features, momentum, epsilon, weight_attr, bias_attr, data_format, None, name
        )

    @classmethod
    def convert_sync_batchnorm(cls, layer: Layer) -> Any:
        """The network with every batch norm in it turned into this one, weights kept."""
        made: Any = layer
        if isinstance(layer, _BatchNormBase) and not isinstance(layer, cls):
            old: Any = layer
            made = cls(
                old._num_features, old._momentum, old._epsilon,
                None if old.weight is not None else False,
                None if old.bias is not None else False,
                old._data_format, old._name,
            )  # fmt: skip
            made.weight, made.bias = old.weight, old.bias
            made._mean, made._variance = old._mean, old._variance
            made.training = old.training
        for name, child in list(layer.named_children()):
            made.add_sublayer(name, cls.convert_sync_batchnorm(child))
        return made


__all__ = ["SyncBatchNorm"]
