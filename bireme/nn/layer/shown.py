"""A layer that shows its settings in `repr`."""

from __future__ import annotations

from typing import Any

from bireme.nn.layer.layer import Layer


class ShownLayer(Layer):
    """`_shown` names the attributes that `repr` lists; a user-given name comes last."""

    _shown: tuple[str, ...] = ()
    _name: str | None = None

    def extra_repr(self) -> str:
        parts = [f"{name.lstrip('_')}={_listed(getattr(self, name))}" for name in self._shown]
        if self._name:
            parts.append(f"name={self._name}")
        return ", ".join(parts)


def _listed(value: Any) -> Any:
    """Sizes are kept as tuples for the ops but shown as lists, as users wrote them."""
    return list(value) if isinstance(value, tuple) else value
