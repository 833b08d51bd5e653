"""The recorded ops of a program in Paddle's terms: its block, and the ops in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bireme.api.types import DTypeLike
from bireme.core.dtype import as_dtype
from bireme.core.errors import InvalidArgument
from bireme.core.graph import Graph, Node, Number, Ref
from bireme.core.tensor import Tensor
from bireme.nn import naming
from bireme.static.recorder import declare_data
from bireme.static.variables import VariableDesc

if TYPE_CHECKING:
    from bireme.static.program import Program


class Operator:
    """One recorded op, for looking at."""

    def __init__(self, block: Block, graph: Graph, node: Node, namescope: str):
        self.block = block
        self.namescope = namescope  # where it was recorded, see static.name_scope
        self._graph, self._node = graph, node

    @property
    def type(self) -> str:
        return self._node.call.op.name

    def name(self) -> str:
        return self.type

    @property
    def source(self) -> str:
        """The line that first recorded an op like this one."""
        return self._node.call.source

    @property
    def input_arg_names(self) -> list[str]:
        return [
            self._show(a) for a in self._node.args if a is not None and not isinstance(a, Number)
        ]

    @property
    def output_arg_names(self) -> list[str]:
        return [self._show(r) for r in self._node.results]

    def _show(self, ref: Ref) -> str:
        return self._graph.names.get(ref) or f"%{ref}"  # pyright: ignore[reportArgumentType]

    def attr(self, name: str) -> Any:
        if name not in self._node.call.attrs:
            raise InvalidArgument(f"[{self.type}] has no attribute {name!r}: {self.all_attrs()}")
        return self._node.call.attrs[name]

    def has_attr(self, name: str) -> bool:
        return name in self._node.call.attrs

    def all_attrs(self) -> dict[str, Any]:
        return dict(self._node.call.attrs)

    @property
    def attr_names(self) -> list[str]:
        return list(self._node.call.attrs)

    def __repr__(self) -> str:
        outs, ins = ", ".join(self.output_arg_names), ", ".join(self.input_arg_names)
        return f"{outs} = {self.type}({ins})"


class Block:
    """A program's variables and ops."""

    idx = 0

    def __init__(self, program: Program):
        self.program = program

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Block) and other.program is self.program

    def __hash__(self) -> int:
        return hash(id(self.program))

    @property
    def ops(self) -> list[Operator]:
        trace = self.program._trace
        graph = trace.graph([])
        for var in trace.vars.values():
            graph.names[trace.slot_of(var.leaf)] = var.name
        marks = trace.marks(graph)
        return [Operator(self, graph, node, marks[id(node)][0]) for node in graph.nodes]

    @property
    def vars(self) -> dict[str, Tensor]:
        return {name: v.tensor for name, v in self.program._trace.vars.items()}

    def var(self, name: str) -> Tensor:
        """The variable of this name."""
        return self.program.find(name)

    def has_var(self, name: str) -> bool:
        try:
            self.program.find(name)
        except InvalidArgument:
            return False
        return True

    def create_var(
        self,
        name: str | None = None,
        shape: Sequence[int | None] = (),
        dtype: DTypeLike = "float32",
        **settings: Any,
    ) -> Tensor:
        """A variable without contents, for `py_func` to fill. `stop_gradient` and `persistable`
        may be set."""
        made = declare_data(
            self.program._trace,
            name or naming.generate("_generated_var"),
            shape,
            as_dtype(dtype),
            "made",
        )
        for setting, value in settings.items():
            if setting not in ("stop_gradient", "persistable"):
                raise InvalidArgument(f"[create_var] does not know the setting {setting!r}")
            setattr(made, setting, value)
        return made

    def describe(self, tensor: Tensor) -> VariableDesc:
        """What the program knows of a variable, or of a result."""
        return VariableDesc(self.program._trace.described(tensor))

    def all_parameters(self) -> list[Any]:
        return self.program.all_parameters()

    def __repr__(self) -> str:
        return str(self.program)
