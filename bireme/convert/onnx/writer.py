"""Builds an ONNX graph node by node; what the rules in `rules/` write with."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.api.types import DTypeLike
from bireme.capture import symbols
from bireme.core.aval import Aval
from bireme.core.dtype import DType, as_dtype
from bireme.core.errors import BiremeError

if TYPE_CHECKING:
    import numpy.typing as npt
    from onnx import ValueInfoProto


class MissingPackage(BiremeError, ImportError):
    """An optional package that is not installed."""


class UnsupportedForm(BiremeError, NotImplementedError):
    """An operation with arguments that ONNX cannot express."""


def onnx_package() -> ModuleType:
    """The `onnx` package, or an error that says how to get it."""
    try:
        import onnx
        import onnx.helper
        import onnx.numpy_helper
    except ImportError:
        raise MissingPackage(
            "exporting to ONNX needs the package 'onnx': pip install 'bireme[onnx]'"
        ) from None
    return onnx


class Writer:
    """An ONNX graph in the making. Values are names; constants become initializers."""

    def __init__(self, opset: int):
        self.onnx = onnx_package()
        self.opset = opset
        self.nodes: list[Any] = []
        self.initializers: dict[str, Any] = {}
        # Where each symbol can be read: input, axis, and how many times the symbol is there.
        self.sizes: dict[str, tuple[str, int, int]] = {}
        self._constants: dict[Any, str] = {}
        self._dimensions: dict[str, str] = {}
        self._count = 0

    def fresh(self, hint: str) -> str:
        self._count += 1
        return f"{hint.lower()}_{self._count}"

    def emit(self, op_type: str, *inputs: str | None, outputs: int = 1, **attrs: Any) -> Any:
        """Append a node; returns the name of its result, or a list of names."""
        names = [self.fresh(op_type) for _ in range(outputs)]
        if self.opset < 13:
            inputs, attrs = self._as_before_13(op_type, list(inputs), attrs)
        given = ["" if i is None else i for i in inputs]
        while given and not given[-1]:
            given.pop()
        attrs = {k: v for k, v in attrs.items() if v is not None}
        self.nodes.append(self.onnx.helper.make_node(op_type, given, names, name=names[0], **attrs))
        return names[0] if outputs == 1 else names

    def _as_before_13(self, op_type: str, inputs: list[Any], attrs: dict[str, Any]) -> Any:
        """Axes and sizes that are inputs since opset 13 were attributes."""
        name = {"Squeeze": "axes", "Unsqueeze": "axes", "ReduceSum": "axes", "Split": "split"}
        if op_type in name and len(inputs) == 2:
            if inputs[1] not in self.initializers:
                raise UnsupportedForm(f"{op_type} with an open size needs opset_version=13")
            values = self.onnx.numpy_helper.to_array(self.initializers[inputs[1]])
            attrs = {**attrs, name[op_type]: [int(v) for v in values]}
            inputs = inputs[:1]
        return inputs, attrs

    @contextmanager
    def inner(self) -> Iterator[list[Any]]:
        """Nodes written inside go into a list of their own, for a branch or loop body."""
        nodes, sizes = self.nodes, dict(self._dimensions)
        self.nodes = []
        try:
            yield self.nodes
        finally:
            # What was computed inside cannot be seen from outside.
            self.nodes, self._dimensions = nodes, sizes

    def reduce(self, kind: str, x: str, axes: Sequence[int], keep: bool) -> str:
        """A reduction; where its axes go depends on the opset."""
        if kind == "ReduceSum" or self.opset >= 18:
            return self.emit(kind, x, self.ints(axes), keepdims=int(keep))
        return self.emit(kind, x, axes=list(axes), keepdims=int(keep))

    def weight(self, name: str, array: np.ndarray) -> str:
        """An initializer under a name of its own."""
        self.initializers[name] = self.onnx.numpy_helper.from_array(
            np.asarray(array, order="C"), name
        )
        return name

    def constant(self, value: npt.ArrayLike, dtype: DTypeLike | None = None) -> str:
        """A small constant; equal ones are written once."""
        array = np.asarray(value, None if dtype is None else as_dtype(dtype).numpy)
        key = (array.dtype.str, array.shape, array.tobytes())
        name = self._constants.get(key)
        if name is None:
            name = self._constants[key] = self.weight(self.fresh("constant"), array)
        return name

    def ints(self, values: Sequence[int]) -> str:
        return self.constant(np.asarray(list(values), np.int64))

    def cast(self, x: str, dtype: DType) -> str:
        return self.emit("Cast", x, to=self.element_type(dtype))

    def element_type(self, dtype: DType) -> int:
        return self.onnx.helper.np_dtype_to_tensor_dtype(dtype.numpy)

    # --- shapes ---------------------------------------------------------------------------

    def shape(self, shape: Sequence[Any]) -> str:
        """A shape as an int64 vector; symbolic dimensions are read from the inputs."""
        if all(type(d) is int for d in shape):
            return self.ints(shape)
        parts = [self.ints([d]) if type(d) is int else self.dimension(d) for d in shape]
        return self.emit("Concat", *parts, axis=0)

    def reshape(self, x: str, shape: Sequence[Any]) -> str:
        """Reshape; a single symbolic dimension is left to the runtime."""
        open_dims = [i for i, d in enumerate(shape) if type(d) is not int]
        if len(open_dims) == 1 and all(d != 0 for d in shape):
            target = self.ints([-1 if i in open_dims else d for i, d in enumerate(shape)])
        else:
            target = self.shape(shape)
        return self.emit("Reshape", x, target, allowzero=1 if 0 in shape else None)

    def dimension(self, dim: object) -> str:
        """A symbolic dimension as an int64 vector of one element."""
        text = str(dim)
        name = self._dimensions.get(text)
        if name is None:
            name = self._dimensions[text] = self._expression(symbols.syntax_tree(text))
        return name

    def _expression(self, node: ast.expr) -> str:
        if isinstance(node, ast.Constant):
            return self.ints([node.value])  # pyright: ignore[reportArgumentType]
        if isinstance(node, ast.Name):
            source, axis, factor = self.sizes[node.id]
            whole = self.emit("Shape", source)
            size = self.emit("Gather", whole, self.ints([axis]), axis=0)
            return size if factor == 1 else self.emit("Div", size, self.ints([factor]))
        if isinstance(node, ast.UnaryOp):
            return self.emit("Neg", self._expression(node.operand))
        if isinstance(node, ast.BinOp):
            kind = {ast.Add: "Add", ast.Sub: "Sub", ast.Mult: "Mul", ast.Pow: "Pow"}[type(node.op)]
            return self.emit(kind, self._expression(node.left), self._expression(node.right))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            arguments = [self._expression(a) for a in node.args]
            name = node.func.id
            if name == "floordiv":
                # ONNX rounds integer division towards zero, a floor is wanted.
                left, right = arguments
                rest = self.emit("Mod", left, right)
                return self.emit("Div", self.emit("Sub", left, rest), right)
            return self.emit({"mod": "Mod", "max": "Max", "min": "Min"}[name], *arguments)
        raise BiremeError(f"the dimension {ast.unparse(node)!r} has no ONNX form")

    def value_info(self, name: str, t: Aval) -> ValueInfoProto:
        shape = [d if type(d) is int else str(d) for d in t.shape]
        return self.onnx.helper.make_tensor_value_info(name, self.element_type(t.dtype), shape)
