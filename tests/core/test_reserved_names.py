"""Names that gradient rules use for results and types cannot be inputs of an op."""

from __future__ import annotations

import pytest

from bireme.core.op import op


@pytest.mark.parametrize("name", ["out", "types", "needs"])
def test_an_input_with_a_reserved_name_is_refused(name: str) -> None:
    scope: dict[str, object] = {}
    exec(f"def wrong(xp, x, {name}):\n    return x + {name}\n", scope)
    with pytest.raises(TypeError, match=f"op 'wrong': an input must not be called.*\\b{name}\\b"):
        op(scope["wrong"])


def test_a_list_input_too() -> None:
    with pytest.raises(TypeError, match="call it x or y"):

        @op(inputs=("x", "*out"))
        def wrong(xp, x, out):
            return x
