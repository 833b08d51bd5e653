"""The passes over graphs (bireme.passes) as passes of programs.

A program is functional until it runs, so a pass is remembered by the program and changes the graph
of every plan that an executor makes of it.
"""

from __future__ import annotations

from bireme import passes
from bireme.core.errors import InvalidArgument
from bireme.distributed.passes.pass_base import PassBase, PassContext, register_pass
from bireme.static.program import Program

# Paddle's names for the same work.
_SAME = {"fuse_dot_product_attention": "fuse_attention", "fused_attention": "fuse_attention"}


class GraphPass(PassBase):
    """One pass over graphs; it has no attributes."""

    graph_pass = ""

    def _check_self(self) -> bool:
        if self._attrs:
            raise InvalidArgument(
                f"[{self.name}] has no attributes. Received: {', '.join(sorted(self._attrs))}"
            )
        return True

    def _check_conflict(self, other_pass: PassBase) -> bool:
        """Two precisions exclude each other."""
        precisions = {"bfloat16", "float16"}
        return {self.graph_pass, getattr(other_pass, "graph_pass", "")} != precisions

    def _apply_single_impl(
        self, main_program: Program, startup_program: Program, context: PassContext
    ) -> None:
        """State starts as it did, so the startup program stays; nobody asks the context."""
        main_program.use_graph_pass(self.graph_pass)


for _name in (*passes.names(), *_SAME):
    register_pass(_name)(
        type(f"Pass_{_name}", (GraphPass,), {"graph_pass": _SAME.get(_name, _name)})
    )
