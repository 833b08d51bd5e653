"""Reading and writing a layer's state: `state_dict`, `set_state_dict`."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from bireme.core.dtype import as_dtype
from bireme.core.errors import BiremeError, InvalidArgument, ShapeMismatch
from bireme.core.tensor import Tensor
from bireme.nn.layer.conversion import convert
from bireme.nn.layer.registry import HookRemover
from bireme.nn.sharded_weight import ShardedWeight, assembled

if TYPE_CHECKING:
    from bireme.nn.layer.registry import Registry


class IncompatibleKeys(NamedTuple):
    """What `load_state_dict` could not match."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return (
            f"IncompatibleKeys(missing_keys={self.missing_keys}, "
            f"unexpected_keys={self.unexpected_keys})"
        )

    __str__ = __repr__


class StateMismatch(BiremeError, RuntimeError):
    """A state dict whose keys do not fit the layer."""


class StateDict:
    """The part of Layer that saves and loads."""

    _parameters: Registry
    _buffers: Registry
    _sub_layers: Registry
    _non_persistable_buffer_names_set: set[str]
    _state_dict_hooks: dict[int, Any]

    def state_dict(
        self,
        destination: dict[str, Tensor] | None = None,
        include_sublayers: bool | str = True,
        structured_name_prefix: str = "",
        include_non_persistable_buffer: bool = False,
        use_hook: bool = True,
        keep_vars: bool | None = None,
        *,
        prefix: str | None = None,
    ) -> dict[str, Tensor]:
        """Every parameter and persistable buffer by its dotted name.

        With `prefix` it behaves as PyTorch's: tensors come detached unless `keep_vars`.
        """
        if isinstance(include_sublayers, str):  # positional (destination, prefix, keep_vars)
            keep_vars = bool(structured_name_prefix) if keep_vars is None else keep_vars
            prefix, include_sublayers = include_sublayers, True
        if prefix is not None:
            structured_name_prefix = prefix
        keep = prefix is None if keep_vars is None else keep_vars
        if destination is None:
            destination = OrderedDict()
        return self._collect_state(
            destination,
            include_sublayers,
            structured_name_prefix,
            include_non_persistable_buffer,
            use_hook,
            keep,
        )

    def sharded_state_dict(self, structured_name_prefix: str = "") -> dict[str, ShardedWeight]:
        """The state with the place of each tensor in the whole model. A layer that holds parts
        says so by overriding this (`distributed.shard_weight`); others hold whole tensors."""
        own = self.state_dict(include_sublayers=False)
        made = {}
        for name, tensor in own.items():
            key = structured_name_prefix + name
            made[key] = ShardedWeight.whole(key, tensor)
        for name, layer in self._sub_layers.items():
            if layer is not None:
                made.update(layer.sharded_state_dict(f"{structured_name_prefix}{name}."))
        return made

    def full(
        self, aoa_config: dict[str, list[str]] | None = None, **kwargs: Any
    ) -> Iterator[tuple[str, Tensor]]:
        """(name, whole tensor) of all state, in the order of names.

        Parts come from the processes of `process_group=`, or of the whole job, whose rows and
        columns are `h_group=` and `v_group=`; all of them iterate. `num_splits=` and `shard_idx=`
        give the entries `shard_idx`, `shard_idx + num_splits` … only. One tensor is put together
        at a time, whatever `memory_growth_threshold=` says.
        """
        known = {
            "h_group",
            "v_group",
            "process_group",
            "num_splits",
            "shard_idx",
            "memory_growth_threshold",
        }
        unknown = sorted(set(kwargs) - known)
        if unknown:
            raise InvalidArgument(f"[full] does not know the option {unknown[0]!r}")
        if aoa_config is not None:
            raise InvalidArgument("[full] aoa_config is not provided; rename what comes out")
        if (kwargs.get("h_group") is None) != (kwargs.get("v_group") is None):
            raise InvalidArgument("[full] h_group and v_group come together")
        group = kwargs.get("process_group")
        weights = self.sharded_state_dict()
        return (
            (name, assembled(weights[name], group))
            for i, name in enumerate(sorted(weights))
            if i % kwargs.get("num_splits", 1) == kwargs.get("shard_idx", 0)
        )

    def to_static_state_dict(
        self,
        destination: dict[str, Tensor] | None = None,
        include_sublayers: bool = True,
        structured_name_prefix: str = "",
        use_hook: bool = True,
        keep_vars: bool = True,
    ) -> dict[str, Tensor]:
        """As `state_dict`, with the buffers that are not saved."""
        return self.state_dict(
            destination, include_sublayers, structured_name_prefix, True, use_hook, keep_vars
        )

    def _collect_state(
        self,
        destination: dict[str, Tensor],
        include_sublayers: bool,
        prefix: str,
        all_buffers: bool,
        use_hook: bool,
        keep: bool,
    ) -> dict[str, Tensor]:
        for name, tensor in self._parameters.items():
            if tensor is not None:
                destination[prefix + name] = tensor if keep else tensor.detach()
        hidden = () if all_buffers else self._non_persistable_buffer_names_set
        for name, tensor in self._buffers.items():
            if tensor is not None and name not in hidden:
                destination[prefix + name] = tensor if keep else tensor.detach()
        if include_sublayers:
            for name, layer in self._sub_layers.items():
                if layer is not None:
                    layer._collect_state(
                        destination, True, f"{prefix}{name}.", all_buffers, use_hook, keep
                    )
        if use_hook:
            for hook in self._state_dict_hooks.values():
                changed = hook(destination)
                if changed is not None:
                    destination = changed
        return destination

    def register_state_dict_hook(self, hook: Callable[[dict[str, Any]], Any]) -> HookRemover:
        """Call `hook(state)` whenever the state is collected; it may return another dict."""
        return HookRemover(self._state_dict_hooks, hook, first=False)

    def set_state_dict(
        self, state_dict: dict[str, Any], use_structured_name: bool = True
    ) -> tuple[list[str], list[str]]:
        """Load parameters and buffers; returns (missing keys, unexpected keys).

        As in Paddle, a key that is missing or has another shape is warned about and skipped, so
        that a pretrained backbone loads under a new head. `load_state_dict` is strict.
        """
        missing, unexpected, reasons = self._load(state_dict, use_structured_name)
        for reason in reasons:
            warnings.warn(reason, stacklevel=2)
        return missing, unexpected

    set_dict = set_state_dict
    load_dict = set_state_dict

    def load_state_dict(
        self, state_dict: dict[str, Any], strict: bool = True, assign: bool = False
    ) -> IncompatibleKeys:
        """Load, and with `strict` raise unless every key fits.

        With `assign` parameters take over the dtypes of the state instead of keeping theirs.
        """
        missing, unexpected, _ = self._load(state_dict, True, strict, assign)
        if strict and (missing or unexpected):
            parts = [f"missing keys: {missing}"] if missing else []
            parts += [f"unexpected keys: {unexpected}"] if unexpected else []
            raise StateMismatch(
                f"the state does not fit {type(self).__name__}: {'; '.join(parts)}. Pass "
                "strict=False to load what fits"
            )
        return IncompatibleKeys(missing, unexpected)

    def _load(
        self,
        state: dict[str, Any],
        use_structured_name: bool,
        raise_on_shape: bool = False,
        assign: bool = False,
    ) -> tuple[list[str], list[str], list[str]]:
        missing: list[str] = []
        reasons: list[str] = []
        matched: dict[str, tuple[Tensor, Any]] = {}
        for key, tensor in self.state_dict(use_hook=False).items():
            name = key if use_structured_name else tensor.name
            if name not in state:
                missing.append(name)
                reasons.append(f"Skip loading for {key}. {name} is not found in the provided dict.")
                continue
            value = state[name]
            given = list(getattr(value, "shape", None) or _shape_of(value))
            if given != list(tensor.shape):
                missing.append(name)
                reason = (
                    f"Skip loading for {key}. {name} receives a shape {given}, but the expected "
                    f"shape is {list(tensor.shape)}."
                )
                if raise_on_shape:
                    raise ShapeMismatch(
                        f"[load_state_dict] {name!r} has shape {given} in the state but "
                        f"{list(tensor.shape)} in {type(self).__name__}"
                    )
                reasons.append(reason)
                continue
            matched[name] = (tensor, value)
        for tensor, value in matched.values():
            if assign:
                convert(tensor, as_dtype(value.dtype), None)
            tensor.set_value(value)
        return missing, [k for k in state if k not in matched], reasons


def _shape_of(value: Any) -> tuple[int, ...]:
    import numpy as np

    return np.shape(value)
