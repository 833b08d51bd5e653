"""Turning a network into one that trains, or runs, quantised."""

from __future__ import annotations

import copy
from collections.abc import Callable

from bireme import nn
from bireme.core.errors import InvalidArgument
from bireme.nn.quant.format import ConvertibleQuantedLayer, LinearQuanterDequanter
from bireme.quantization.base import BaseQuanter
from bireme.quantization.config import QuantConfig


class Quantization:
    """What QAT and PTQ share."""

    def __init__(self, config: QuantConfig) -> None:
        self._config = copy.deepcopy(config)

    def _prepared(self, model: nn.Layer) -> nn.Layer:
        config = self._config
        config._specify(model)
        _replace(model, config._get_qat_layer, lambda layer: True)
        _replace(model, config._get_observe_wrapper, lambda layer: not config._is_qat_layer(layer))
        return model

    def convert(
        self, model: nn.Layer, inplace: bool = False, remain_weight: bool = False
    ) -> nn.Layer:
        """Fix the scales: weights become integers that are multiplied by them when used.

        `remain_weight` keeps the weights as they were, with both steps at every call.
        """
        model = model if inplace else copy.deepcopy(model)
        for name, child in list(model.named_children()):
            if isinstance(child, ConvertibleQuantedLayer):
                quanter = getattr(child, "weight_quanter", None)
                if not child.converted and quanter is not None and quanter.scales() is not None:
                    child._convert(remain_weight=remain_weight)
            elif isinstance(child, BaseQuanter):
                model._sub_layers[name] = LinearQuanterDequanter.from_quanter(child)
            else:
                self.convert(child, inplace=True, remain_weight=remain_weight)
        return model

    def __repr__(self) -> str:
        return self._config.details()


def _replace(
    model: nn.Layer,
    find: Callable[[nn.Layer], nn.Layer | None],
    enter: Callable[[nn.Layer], bool],
) -> None:
    for name, child in list(model.named_children()):
        other = find(child)
        if other is not None:
            model._sub_layers[name] = other
        elif enter(child):
            _replace(child, find, enter)


class QAT(Quantization):
    """Quantisation-aware training: the network learns with rounded weights and activations."""

    def quantize(self, model: nn.Layer, inplace: bool = False) -> nn.Layer:
        """A copy of the model (or the model itself) to train further, then to `convert`."""
        if not model.training:
            raise InvalidArgument("[QAT] the model is in evaluation mode; call model.train() first")
        return self._prepared(model if inplace else copy.deepcopy(model))


class PTQ(Quantization):
    """Post-training quantisation: observers watch some batches, nothing is trained."""

    def quantize(self, model: nn.Layer, inplace: bool = False) -> nn.Layer:
        """A copy of the model (or the model itself) to feed some batches, then to `convert`."""
        if model.training:
            raise InvalidArgument("[PTQ] the model is in training mode; call model.eval() first")
        return self._prepared(model if inplace else copy.deepcopy(model))
