"""All state of an optimizer in one flat tensor, for those who copy it away in one piece."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

from bireme.core import dtype as dt
from bireme.core.errors import TypeMismatch
from bireme.core.tensor import Tensor
from bireme.ops.joining import concat
from bireme.ops.manipulation import reshape

if TYPE_CHECKING:
    from bireme.optimizer.slots import Slot, Slots

Meta = dict[str, Any]


class FusedStates:
    """The part of Optimizer that knows the buffer.

    An update is one compiled program whose inputs are the states themselves, so the buffer is a
    copy, made when it is asked for. The entries of the meta dicts say which range of it is whose:
    `{"start", "end", "name", "shape"}`.
    """

    _state: Slots
    _slots: ClassVar[Any]
    _clock: ClassVar[Any]
    _use_fused = False
    _stale = False
    _version = 0
    _merged: dict[str, Tensor] | None = None
    _layout: tuple[dict[str, dict[str, Meta]], dict[str, Meta], dict[str, Meta]] | None = None

    def use_fusion_storage(self) -> None:
        """Let the fused_* properties show the state from now on."""
        self._use_fused = True
        self.need_refuse()

    def need_refuse(self) -> None:
        """Lay the buffer out anew when it is asked for next."""
        self._stale = self._use_fused

    def reset_need_refuse(self) -> None:
        self._stale = False

    def set_merged_model_params(self, merged_model_params: dict[str, Tensor] | None) -> None:
        """Tensors by name that the buffer holds after the state."""
        if merged_model_params is not None and not isinstance(merged_model_params, dict):
            raise TypeMismatch(
                f"[set_merged_model_params] takes a dict. Received: "
                f"{type(merged_model_params).__name__}"
            )
        self._merged = merged_model_params
        self.need_refuse()

    @property
    def fused_buffer_version(self) -> int:
        """How many times the buffer was laid out."""
        return self._version

    @property
    def fused_states_buffer(self) -> Tensor | None:
        """The accumulators, the master weights and the merged parameters in a row, in float32."""
        if self._refreshed() is None:
            return None
        parts = [reshape(t, [-1]) for _, _, t in self._members()]
        return concat(parts).detach()

    @property
    def fused_states_accumulators_meta(self) -> dict[str, dict[str, Meta]] | None:
        """Ranges by accumulator, then by parameter."""
        layout = self._refreshed()
        return None if layout is None else layout[0]

    @property
    def fused_states_master_weights_meta(self) -> dict[str, Meta] | None:
        layout = self._refreshed()
        return None if layout is None else layout[1]

    @property
    def fused_states_buffer_ipc_meta(self) -> None:
        """None: XLA shares no handle of its memory with other processes."""

    def state_dict(self) -> dict[str, Any]:
        raise NotImplementedError("the optimizer has it")

    def _members(self) -> list[tuple[str, str, Tensor]]:
        """(accumulator or kind, parameter, tensor) of everything in the buffer."""
        state = self.state_dict()
        kinds: tuple[Slot, ...] = (*self._slots, *self._clock)
        found: list[tuple[str, str, Tensor]] = []
        for kind in kinds:
            for param in self._state.params.values():
                tensor = state.get(self._state.name_of(param, kind.name))
                if tensor is not None:
                    found.append((kind.name, param.name, tensor))
        found += [("", name, t) for name, t in state.get("master_weights", {}).items()]
        found += [("merged", name, t) for name, t in (self._merged or {}).items()]
        wrong = [t for _, _, t in found if t.dtype is not dt.float32]
        if wrong:
            raise TypeMismatch(
                f"[fused_states_buffer] holds float32 only. Received: {wrong[0].name!r} of "
                f"{wrong[0].dtype.name}"
            )
        return found

    def _refreshed(self) -> Any:
        if not self._use_fused or not self._state.params:
            return None
        if self._layout is None or self._stale:
            accumulators: dict[str, dict[str, Meta]] = {}
            masters: dict[str, Meta] = {}
            merged: dict[str, Meta] = {}
            start = 0
            for kind, param, tensor in self._members():
                end = start + math.prod(tensor.shape)
                entry = {"start": start, "end": end, "name": tensor.name, "shape": tensor.shape}
                if kind == "merged":
                    merged[param] = entry
                elif kind:
                    accumulators.setdefault(kind, {})[param] = entry
                else:
                    masters[param] = entry
                start = end
            self._layout = accumulators, masters, merged
            self._version += 1
            self.reset_need_refuse()
        return self._layout
