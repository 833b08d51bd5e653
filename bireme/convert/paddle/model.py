"""Paddle's saved models as Layers."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import bireme.convert.paddle.rules as _rules  # noqa: F401  (fills the table)
from bireme.capture import symbols, tree
from bireme.capture.capture import Captured, capture
from bireme.capture.recorder import is_capturing
from bireme.convert.paddle.interpreter import Run, check_rules
from bireme.convert.paddle.params import read_combined, read_separate
from bireme.convert.paddle.pir import read_pir
from bireme.convert.paddle.program import ModelFileError, Program, UnsupportedModel, Var
from bireme.convert.paddle.program_desc import read_program_desc
from bireme.core import dtype as dt
from bireme.core.aval import Aval, aval
from bireme.core.errors import CaptureError, InvalidArgument
from bireme.core.tensor import Parameter, Tensor, constant
from bireme.core.trace import state
from bireme.jit.static_function import CapturedCall
from bireme.jit.translated_layer import place
from bireme.nn.layer.layer import Layer

LOD_OPS = {
    "gru", "lstm", "crf_decoding", "sequence_pool", "sequence_softmax", "sequence_reverse",
    "sequence_conv", "sequence_expand", "sequence_expand_as", "lod_reset",
}  # fmt: skip
LOD_SUFFIX = "@LOD"


@dataclass(slots=True)
class Files:
    """Where a model lies: its program, and its weights in one file or in a folder."""

    program: str
    weights: str | None


def find_files(path: str, params: str | None = None) -> Files | None:
    """The files of the Paddle model at `path`: a folder, a prefix, or the program's own file."""
    if os.path.isdir(path):
        for name in ("inference.json", "__model__", "inference.pdmodel", "model.pdmodel"):
            candidate = os.path.join(path, name)
            if os.path.isfile(candidate):
                break
        else:
            return None
        if name == "__model__":
            for weights in (params, "__params__", "params"):
                if weights and os.path.isfile(os.path.join(path, weights)):
                    return Files(candidate, os.path.join(path, weights))
            return Files(candidate, path)
        path = candidate
    if _is_ours(f"{path}.json"):  # jit.save has written it under the name of a Paddle model
        return None
    program = None
    for candidate in (path, f"{path}.json", f"{path}.pdmodel"):
        if os.path.isfile(candidate) and _looks_like_paddle(candidate):
            program = candidate
            break
    if program is None:
        return None
    if params:
        return Files(program, params)
    stem = program
    for ending in (".json", ".pdmodel"):
        stem = stem.removesuffix(ending)
    beside = f"{stem}.pdiparams"
    if os.path.isfile(beside):
        return Files(program, beside)
    if os.path.basename(program) == "__model__":
        return Files(program, os.path.dirname(program) or ".")
    return Files(program, None)


def _is_ours(path: str) -> bool:
    if not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        return b'"format": "bireme.graph"' in file.read(4096)


def _looks_like_paddle(path: str) -> bool:
    if path.endswith(".json"):
        with open(path, "rb") as file:
            return b'"base_code"' in file.read(4096)
    return path.endswith(".pdmodel") or os.path.basename(path) == "__model__" or "." not in path


def read_program(data: bytes) -> Program:
    """The program in a file's bytes, of either format."""
    return read_pir(data) if data[:64].lstrip()[:1] == b"{" else read_program_desc(data)


def read_model(files: Files) -> PaddleModel:
    """The model in these files."""
    limit = 1 << 29
    if not os.path.isfile(files.program):
        raise ModelFileError(f"there is no file {files.program}")
    if os.path.getsize(files.program) > limit:
        raise ModelFileError(f"{files.program} is larger than {limit} bytes")
    with open(files.program, "rb") as file:
        data = file.read()
    program = _checked(data, files.program)
    stored = [v for v in program.parameters if v.persistable]
    if not stored:
        return PaddleModel(program, {})
    if files.weights is None:
        raise ModelFileError(f"the weights (.pdiparams) of {files.program} are missing")
    if os.path.isdir(files.weights):
        return PaddleModel(program, read_separate(files.weights, stored))
    if not os.path.isfile(files.weights):
        raise ModelFileError(f"the weights {files.weights} are missing")
    with open(files.weights, "rb") as file:
        weights = memoryview(file.read())
    return PaddleModel(program, read_combined(weights, stored, files.weights))


def read_buffers(program: bytes, weights: bytes) -> PaddleModel:
    """The model in the bytes of a program and of its combined weights."""
    checked = _checked(program, "the program in memory")
    stored = [v for v in checked.parameters if v.persistable]
    return PaddleModel(checked, read_combined(memoryview(weights), stored, "the weights in memory"))


def read_without_weights(program: bytes) -> PaddleModel:
    """The model in the bytes of a program, with zeros for weights that take no memory."""
    where = "the program in memory"
    checked = _checked(program, where)
    weights = {}
    for var in checked.parameters:
        zero = np.zeros((), dt.as_dtype(var.dtype or "float32").numpy)
        try:
            weights[var.name] = np.broadcast_to(zero, var.shape)
        except ValueError:
            raise ModelFileError(f"{where}: {var.name} has the shape {var.shape!r:.200}") from None
    return PaddleModel(checked, weights)


def _checked(data: bytes, where: str) -> Program:
    try:
        program = read_program(data)
        check_rules(program)
    except (ModelFileError, UnsupportedModel) as e:
        raise type(e)(f"{where}: {e}") from None
    return program


def load_model(path: str, params: str | None = None) -> PaddleModel:
    """The Paddle model at `path`."""
    files = find_files(path, params)
    if files is None:
        raise ModelFileError(f"there is no Paddle model at {path}")
    return read_model(files)


def read_as_layer(
    path: str, model_filename: str | None = None, params_filename: str | None = None
) -> PaddleModel | None:
    """The Paddle model at `path`, or None if what lies there is none of Paddle's."""
    if model_filename is not None:
        program = os.path.join(path, model_filename)
        params = os.path.join(path, params_filename) if params_filename else None
        return read_model(Files(program, params or path))
    files = find_files(path, params_filename)
    return None if files is None else read_model(files)


@dataclass(slots=True)
class OpenSpec:
    """An input whose open sizes may be expressions, such as `32*height`."""

    name: str
    shape: tuple[Any, ...]
    dtype: Any


class PaddleModel(Layer):
    """A model that Paddle saved, in eval mode; its parameters can be read, changed and trained.

    Inputs come in the order of `input_names`. An input of sequences (LoD) is followed by one more
    input, `name@LOD`: int64 offsets [S + 1] of where each sequence starts.
    """

    def __init__(self, program: Program, weights: dict[str, np.ndarray]):
        super().__init__()
        self.graph_program = program
        self._weights: dict[str, Tensor] = {}
        running = _running_statistics(program)
        heads = {v.name.partition(".")[0] for v in program.parameters if "." in v.name}
        for var in program.parameters:
            if not var.persistable:  # scratch space of a kernel: nothing reads it
                continue
            tensor: Tensor = constant(weights[var.name])
            if dt.as_dtype(var.dtype).is_floating and var.name not in running:
                tensor = Parameter(tensor._value, True, var.name)
            place(self, _state_name(var.name, len(self._weights), heads), tensor)
            self._weights[var.name] = tensor
        self.lod_inputs = (
            [v.name for v in program.feeds if v.lod_level > 0] if program.op_types & LOD_OPS else []
        )
        self.input_names = [n for v in program.feeds for n in self._names_of(v)]
        self.output_names = [name for _, name in program.fetches]
        self.output_lod: list[str | None] = [None] * len(self.output_names)
        self._declarations = declarations(self._feeds())
        self._calls: dict[Any, CapturedCall | None] = {}
        self.eval()

    def _names_of(self, var: Var) -> list[str]:
        return [var.name, var.name + LOD_SUFFIX] if var.name in self.lod_inputs else [var.name]

    def _feeds(self) -> list[Var]:
        """What goes in, offsets included. All LoD inputs of a net describe the same sequences."""
        return [
            var if name == var.name else Var(name, (-1,), "int64")
            for var in self.graph_program.feeds
            for name in self._names_of(var)
        ]

    def named_weights(self) -> list[tuple[str, Tensor]]:
        """Parameters and buffers with the names that they have in Paddle's program."""
        return list(self._weights.items())

    @property
    def input_types(self) -> list[Aval]:
        """The inputs' types, with symbols where sizes are open."""
        return self._declarations[0] if self._declarations else declarations(self._feeds())[0]

    @property
    def input_specs(self) -> list[OpenSpec]:
        """The inputs with sizes that the model can be captured with, open where possible."""
        for types in list(self._declarations):
            try:
                self.capture(types)
            except Exception:
                continue
            break
        return [
            OpenSpec(name, tuple([d if type(d) is int else str(d) for d in t.shape]), t.dtype)
            for name, t in zip(self.input_names, self.input_types, strict=True)
        ]

    def capture(
        self, types: Sequence[Aval], needs: Sequence[bool] = (), tape: bool = False
    ) -> Captured:
        """The model as a graph for inputs of `types`: one for all sizes where that is possible,
        else one for these sizes."""
        while True:
            declared = self._declared(types)
            try:
                return capture(
                    lambda arguments: self.interpret(*arguments),
                    declared,
                    label="a Paddle model",
                    needs=needs,
                    names=self.input_names,
                    known=dict(self._weights),
                    tape=tape,
                )
            except Exception:
                # Whatever an op has against symbols, the same net with sizes may be fine.
                if list(declared) == list(types):
                    raise
                self._declarations = [d for d in self._declarations if d != list(declared)]

    def _declared(self, types: Sequence[Aval]) -> list[Aval]:
        for candidate in self._declarations:
            with contextlib.suppress(InvalidArgument):
                symbols.solve(candidate, list(types), self.input_names)
                return candidate
        # Whatever relation between sizes was tried, they are what the file says.
        symbols.solve(_independent(self._feeds()), list(types), self.input_names)
        return list(types)

    def forward(self, *inputs: Tensor) -> Any:
        tensors, _ = tree.flatten(inputs)
        if len(tensors) != len(self.input_names):
            raise InvalidArgument(
                f"this model takes {len(self.input_names)} tensors: "
                f"{', '.join(self.input_names)}. Received: {len(tensors)}"
            )
        if is_capturing():
            return self.interpret(*tensors)
        types = [t._value.aval for t in tensors]
        tape = state.trace.tape
        needs = tuple([t._node is not None for t in tensors]) if tape else ()
        key = (tuple(self._declared(types)), tape, needs)
        if key not in self._calls or not _is_current(self._calls[key]):
            try:
                made = CapturedCall(self.capture(types, needs, tape))
            except CaptureError:
                made = None  # a loop that only its data can end
            key = (tuple(self._declared(types)), tape, needs)
            self._calls[key] = made
        call = self._calls[key]
        return self.interpret(*tensors) if call is None else call(tensors)

    def interpret(self, *inputs: Tensor) -> Any:
        """The results for these inputs, op by op: eagerly, or into a capture."""
        program = self.graph_program
        given = dict(zip(self.input_names, inputs, strict=True))
        by_name: dict[str, Any] = dict(self._weights)
        named = {var.name: key for key, var in program.blocks[0].vars.items()}
        if program.parameters and program.parameters[0].name not in program.blocks[0].vars:
            # PIR numbers its values; names are for parameters and inputs only.
            by_name = {named[n]: t for n, t in self._weights.items()}
            given = {named.get(n, n): t for n, t in given.items()}
        elif named and any(k != n for n, k in named.items()):
            given = {named.get(n, n): t for n, t in given.items()}
        run = Run(program, by_name)
        outs = run(given, {n: n + LOD_SUFFIX for n in self.lod_inputs})
        self.output_lod = run.result_lod()
        return outs[0] if len(outs) == 1 else outs


def _running_statistics(program: Program) -> set[str]:
    """The parameters that are means and variances of batch norms: nothing trains them."""
    values = {
        name
        for block in program.blocks
        for op in block.ops
        if op.type in ("batch_norm", "sync_batch_norm")
        for slot in ("Mean", "Variance")
        for name in op.inputs.get(slot, ())
    }
    declared = program.blocks[0].vars
    return {declared[v].name for v in values if v in declared}


def _is_current(call: CapturedCall | None) -> bool:
    return call is None or call.is_current()


def declarations(feeds: Sequence[Var]) -> list[list[Aval]]:
    """Ways to write the open sizes as symbols, the freest first.

    All different but for the first, shared by axis, as multiples of 32 (which nets that halve an
    image five times and double it again need), and all different.
    """

    def types(symbol: Callable[[int, int], str]) -> list[Aval]:
        return _types(feeds, symbol)

    def first_or(other: Callable[[int, int], str]) -> Callable[[int, int], str]:
        def name(i: int, axis: int) -> str:
            if feeds[i].name.endswith(LOD_SUFFIX):
                return "lod"
            return "batch" if axis == 0 else other(i, axis)

        return name

    if not any(-1 in v.shape for v in feeds):
        return [types(lambda i, axis: "")]
    made = [types(first_or(lambda i, axis: f"x{i}_dim{axis}"))]
    if len(feeds) > 1:
        made.append(types(first_or(lambda i, axis: f"dim{axis}")))
    if any(len(v.shape) == 4 and -1 in v.shape[1:] for v in feeds):
        made.append(types(first_or(lambda i, axis: f"32*dim{axis}")))
    if len(feeds) > 1:
        made.append(_independent(feeds))
    return made


def _types(feeds: Sequence[Var], symbol: Callable[[int, int], str]) -> list[Aval]:
    """The feeds' types, with the symbol of (input, axis) for every open size."""
    return [
        aval(
            tuple([symbols.parse(symbol(i, a)) if d == -1 else d for a, d in enumerate(v.shape)]),
            dt.as_dtype(v.dtype or "float32"),
        )
        for i, v in enumerate(feeds)
    ]


def _independent(feeds: Sequence[Var]) -> list[Aval]:
    return _types(feeds, lambda i, axis: f"x{i}_dim{axis}")


def _state_name(name: str, number: int, heads: set[str]) -> str:
    """A parameter's name in the state dict: Paddle's own where it can be an attribute."""
    parts = name.split(".")
    fits = all(p and not hasattr(Layer, p) and p[0] != "_" for p in parts)
    fits = fits and (len(parts) == 2 or (len(parts) == 1 and name not in heads))
    return name if fits else f"parameter_{number}.{name.replace('.', '_') or 'value'}"
