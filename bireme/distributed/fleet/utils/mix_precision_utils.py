"""Gradients summed up in float32 beside low-precision parameters, as `param.main_grad`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bireme.autograd import no_grad
from bireme.core.tensor import Parameter, Tensor
from bireme.distributed.fleet.utils.hybrid_parallel_util import obtain_optimizer_parameters_list
from bireme.nn.layer.layer import Layer

_SUM = "main_grad"  # the attribute that programs read


class MixPrecisionLayer(Layer):
    """A layer whose parameters collect their gradients in float32, step after step."""

    def __init__(self, layers: Layer, dtype: str = "float16"):
        super().__init__(layers.full_name() + "_mix_precision")
        self._layers = layers
        self._dtype = dtype
        for parameter in layers.parameters():
            if not hasattr(parameter, _SUM):
                setattr(parameter, _SUM, None)
                parameter.register_hook(_summed_into(parameter))

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self._layers(*inputs, **kwargs)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return self._layers.state_dict(*args, **kwargs)

    def set_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return self._layers.set_state_dict(*args, **kwargs)


def _summed_into(parameter: Parameter) -> Callable[[Tensor], None]:
    def collect(grad: Tensor) -> None:
        with no_grad():
            wide = grad.astype("float32")
            have = getattr(parameter, _SUM)
            setattr(parameter, _SUM, wide if have is None else have + wide)

    return collect


class MixPrecisionOptimizer:
    """An optimizer that reads `main_grad` for the gradient."""

    def __init__(self, optimizer: Any):
        self._inner_opt = optimizer
        self._parameter_list = obtain_optimizer_parameters_list(optimizer)

    def step(self) -> None:
        """Update with the summed gradients."""
        for parameter in self._parameter_list:
            main = getattr(parameter, _SUM, None)
            if main is not None:
                parameter.grad = main
        self._inner_opt.step()
        for parameter in self._parameter_list:
            parameter.grad = None

    def clear_grad(self, set_to_zero: bool = True) -> None:
        """Begin new sums: of zeros, or of nothing."""
        for parameter in self._parameter_list:
            main = getattr(parameter, _SUM, None)
            if main is not None:
                setattr(parameter, _SUM, main * 0 if set_to_zero else None)
            parameter.clear_gradient(set_to_zero)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner_opt, name)


__all__ = ["MixPrecisionLayer", "MixPrecisionOptimizer"]
