"""Pruning a model's weights and keeping them pruned while it trains."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.autograd.modes import no_grad
from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.core.tensor import Tensor, constant
from bireme.incubate.asp.masks import ALGORITHMS, create_mask
from bireme.nn import Layer, naming

if TYPE_CHECKING:
    from bireme.optimizer.optimizer import Optimizer


# (weight, m, n, algorithm, parameter's name) -> (pruned weight, mask)
PruningFunction = Callable[[np.ndarray, int, int, str, str], tuple[np.ndarray, np.ndarray]]

_SUFFIX = ".asp_mask"
_excluded: list[str] = []
_masks: dict[str, Tensor] = {}  # of decorated optimizers' parameters, by name


def _default_pruning(
    weight: np.ndarray, m: int, n: int, algorithm: str, name: str
) -> tuple[np.ndarray, np.ndarray]:
    """Prune along the input features; small weights stay as they are."""
    along = {2: 0, 4: 1}.get(weight.ndim)
    if along is not None and weight.shape[along] < m:
        warnings.warn(
            f"[asp] {name} is not pruned: dimension {along} of {list(weight.shape)} is smaller "
            f"than {m}",
            stacklevel=4,
        )
        return weight, np.ones_like(weight)
    mask = create_mask(weight.T, algorithm, n, m).T
    return weight * mask, mask


_functions: dict[str, PruningFunction] = {
    "fc": _default_pruning,
    "linear": _default_pruning,
    "conv2d": _default_pruning,
}


def add_supported_layer(
    layer: Layer | type[Layer] | str, pruning_func: PruningFunction | None = None
) -> None:
    """Prune another kind of layer too: its class, an instance, or the name of a parameter.

    `pruning_func(weight, m, n, algorithm, name)` gives the pruned weight and its mask.
    """
    if isinstance(layer, str):
        name = layer
    elif isinstance(layer, Layer):
        name = naming.snake_case(type(layer).__name__)
    elif isinstance(layer, type) and issubclass(layer, Layer):
        name = naming.snake_case(layer.__name__)
    else:
        raise TypeMismatch(
            f"[add_supported_layer] takes a Layer, its class or a name. Received: {layer!r}"
        )
    _functions[name] = pruning_func or _default_pruning


def _no_program(function: str, main_program: object) -> None:
    if main_program is not None:
        raise InvalidArgument(
            f"[{function}] Bireme prunes Layers, not Programs; leave main_program out"
        )


def set_excluded_layers(param_names: Iterable[str], main_program: object = None) -> None:
    """Never prune parameters whose names contain one of these."""
    _no_program("set_excluded_layers", main_program)
    _excluded.extend(param_names)


def reset_excluded_layers(main_program: object = None) -> None:
    """Forget the exclusions."""
    _no_program("reset_excluded_layers", main_program)
    _excluded.clear()


def _pruning_function(name: str) -> PruningFunction | None:
    """How to prune a parameter of this name; None if it is not to be pruned."""
    if any(part in name for part in _excluded):
        return None
    if name in _functions:
        return _functions[name]
    layer, dot, kind = name.partition(".")
    if not dot or "w_" not in kind:
        return None
    return _functions.get(layer) or _functions.get(layer.rpartition("_")[0])


def decorate(optimizer: Optimizer) -> OptimizerWithSparsityGuarantee:
    """An optimizer whose steps leave pruned weights at zero."""
    for p in optimizer._all_parameters():
        if _pruning_function(p.name) is not None and p.name not in _masks:
            _masks[p.name] = constant(np.ones(tuple(p.shape), p.dtype.numpy))
            _masks[p.name].name = p.name + _SUFFIX
    return OptimizerWithSparsityGuarantee(optimizer)


def prune_model(
    model: Layer, n: int = 2, m: int = 4, mask_algo: str = "mask_1d", with_mask: bool = True
) -> dict[str, np.ndarray]:
    """Set n of every m weights to zero; returns the masks by parameter name.

    `mask_algo` is 'mask_1d', 'mask_2d_greedy' or 'mask_2d_best'. With `with_mask` training goes
    on without them, for which the optimizer has to be decorated before.
    """
    if mask_algo not in ALGORITHMS:
        raise InvalidArgument(
            f"[prune_model] mask_algo is one of {', '.join(ALGORITHMS)}. Received: {mask_algo!r}"
        )
    if not isinstance(model, Layer):
        raise TypeMismatch(f"[prune_model] takes a Layer. Received: {type(model).__name__}")
    if not 0 < n < m:
        raise InvalidArgument(f"[prune_model] needs 0 < n < m. Received: n={n}, m={m}")
    found: dict[str, np.ndarray] = {}
    for p in model.parameters():
        prune = _pruning_function(p.name)
        if prune is None:
            continue
        weight = p.numpy()
        pruned, mask = prune(weight, m, n, mask_algo, p.name)
        if with_mask:
            if p.name not in _masks:
                raise InvalidArgument(
                    f"[prune_model] {p.name} has no decorated optimizer; call "
                    "asp.decorate(optimizer) first, or pass with_mask=False"
                )
            _masks[p.name].set_value(mask)
        p.set_value(np.asarray(pruned).astype(weight.dtype))
        found[p.name] = mask
    return found


class OptimizerWithSparsityGuarantee:
    """Another optimizer whose steps end with a multiplication by the masks."""

    def __init__(self, optimizer: Optimizer):
        self._optimizer = optimizer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._optimizer, name)

    def _own_masks(self) -> list[tuple[Any, Tensor]]:
        params = self._optimizer._all_parameters()
        return [(p, _masks[p.name]) for p in params if p.name in _masks]

    @no_grad()
    def _apply(self) -> None:
        for p, mask in self._own_masks():
            p._put((p * mask)._value)

    def step(self) -> None:
        """One step of the optimizer, then the masks."""
        self._optimizer.step()
        self._apply()

    def minimize(
        self,
        loss: Tensor,
        startup_program: object = None,
        parameter_list: Iterable[Tensor | str] | None = None,
        no_grad_set: Iterable[Tensor | str] | None = None,
    ) -> tuple[list[Any], list[tuple[Any, Tensor]]]:
        """As `step`, from gradients that `loss.backward()` has computed before."""
        done = self._optimizer.minimize(loss, startup_program, parameter_list, no_grad_set)
        self._apply()
        return done

    def state_dict(self) -> dict[str, Any]:
        """The optimizer's state and the masks."""
        state = self._optimizer.state_dict()
        state.update({mask.name: mask for _, mask in self._own_masks()})
        return state

    def set_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from what `state_dict` returned."""
        state = dict(state_dict)
        for p, mask in self._own_masks():
            if mask.name not in state:
                raise InvalidArgument(f"[set_state_dict] the state has no mask of {p.name!r}")
            mask.set_value(state.pop(mask.name))
        self._optimizer.set_state_dict(state)


__all__ = [
    "OptimizerWithSparsityGuarantee",
    "add_supported_layer",
    "decorate",
    "prune_model",
    "reset_excluded_layers",
    "set_excluded_layers",
]
