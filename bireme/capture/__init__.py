"""Functions as graphs, and graphs from graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bireme.core import executor

if TYPE_CHECKING:
    from bireme.capture.varying import StandIn
    from bireme.core.program import Program


def _stand_in(program: Program) -> StandIn | None:
    # Of all sizes a CPU has the cold tier.
    if program.place.is_cpu_place():
        return None
    from bireme.capture import varying

    return varying.stand_in(program)


executor.stand_in = _stand_in
