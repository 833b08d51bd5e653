"""Runs a Paddle program, op by op, on our ops: eagerly, or into a capture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, overload

import numpy as np

from bireme.convert.paddle.known import FOLDS, LARGEST, Known, settled
from bireme.convert.paddle.program import (
    Block,
    ModelFileError,
    OpDesc,
    Program,
    UnsupportedModel,
)
from bireme.convert.paddle.program_desc import DTYPES
from bireme.core.errors import BiremeError, CaptureError
from bireme.core.tensor import Tensor

MAX_STEPS = 20_000  # ops that one run may take beyond 256 times the program's, loops included
MAX_DEPTH = 32  # blocks inside blocks
# Ops whose results have other rows than their inputs.
_NO_SEQUENCES = {"sequence_pool", "shape", "arg_max", "arg_min", "mean", "size"}
_NAMES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}

# The value of a slot, values of several by slot, or nothing.
Results: TypeAlias = "Tensor | Known | Sequence[Any] | dict[str, Any] | None"
Rule = Callable[["Step"], Results]
RULES: dict[str, tuple[Rule, str]] = {}


def rule(*types: str, out: str = "Out") -> Callable[[Rule], Rule]:
    """Register how ops of these types run.

    The rule reads its inputs and attributes from the step and returns the value of slot `out`, or
    a dict of values (lists for slots with several) by slot.
    """

    def add(function: Rule) -> Rule:
        for kind in types:
            if kind in RULES:
                raise ValueError(f"there are two rules for {kind!r}")
            RULES[kind] = (function, out)
        return function

    return add


def as_tensor(value: Any) -> Tensor:
    return value.tensor() if isinstance(value, Known) else value


class Step:
    """What a rule sees of its op."""

    __slots__ = ("op", "run", "scope")

    def __init__(self, op: OpDesc, run: Run, scope: Scope):
        self.op = op
        self.run = run
        self.scope = scope

    # --- inputs ---------------------------------------------------------------------------

    def raws(self, slot: str) -> list[Any]:
        """The values of a slot as they are; lists inside (PIR's vectors) are flattened."""
        found: list[Any] = []
        for name in self.op.inputs.get(slot, ()):
            value = self.scope[name]
            found += value if isinstance(value, list) else [value]
        return found

    def raw(self, slot: str) -> Any:
        values = self.raws(slot)
        return values[0] if values else None

    def __call__(self, slot: str) -> Any:
        """The tensor in a slot; None where the slot is empty."""
        value = self.raw(slot)
        return None if value is None else as_tensor(value)

    def need(self, slot: str) -> Tensor:
        value = self(slot)
        if value is None:
            raise ModelFileError(f"the input '{slot}' is missing")
        return value

    def many(self, slot: str) -> list[Tensor]:
        return [as_tensor(v) for v in self.raws(slot)]

    def known_list(self, slot: str) -> list[Known]:
        return self.raws(slot)

    def lod(self, slot: str) -> Tensor:
        """The offsets of the sequences in a slot's rows."""
        for name in self.op.inputs.get(slot, ()):
            offsets = self.scope.lod.get(name)
            if offsets is not None:
                return self.scope[offsets]
        raise ModelFileError(f"the input '{slot}' has no LoD, and this op works on sequences")

    # --- attributes -----------------------------------------------------------------------

    def attr(self, name: str, default: Any = None) -> Any:
        value = self.op.attrs.get(name, default)
        return default if value is None else value

    @overload
    def dtype(self, name: str, default: str) -> str: ...
    @overload
    def dtype(self, name: str = "dtype", default: None = None) -> str | None: ...
    def dtype(self, name: str = "dtype", default: str | None = None) -> str | None:
        value = self.attr(name)
        if isinstance(value, str):
            if value.startswith("Undefined") or not value:
                return default
            return _NAMES.get(value, value)
        if value is None or value == -1:
            return default
        if value not in DTYPES:
            raise ModelFileError(f"attribute '{name}' is the unknown element type {value}")
        return DTYPES[value]

    def ints(self, name: str, *slots: str) -> list[Any]:
        """Sizes or indices: from a tensor slot if one is filled, else from the attribute.

        A slot may hold one vector or several scalars; they must be known while the program is
        read, which shapes and constants are.
        """
        for slot in slots:
            values = self.raws(slot)
            if values:
                items: list[Any] = []
                for value in values:
                    items += self.contents(value, slot)
                return items
        value = self.attr(name, [])
        return list(value) if isinstance(value, list | tuple) else [value]

    def contents(self, value: Tensor | Known, what: str) -> list[Any]:
        if isinstance(value, Known):
            return value.array.ravel().tolist()
        # The reading raises CaptureError while a graph is made; eagerly it gives the contents.
        return np.asarray(value.numpy()).ravel().tolist()

    def number(self, name: str, *slots: str, default: Any = None) -> Any:
        """One number: from a tensor slot (a tensor where it is not known) or the attribute."""
        for slot in slots:
            value = self.raw(slot)
            if isinstance(value, Known) and value.is_numeric:
                return value.array.ravel().tolist()[0]
            if value is not None:
                return as_tensor(value)
        return self.attr(name, default)

    def axis(self, name: str, *slots: str, default: int = 0) -> int:
        """One axis, which must be known."""
        found = self.ints(name, *slots)
        return int(found[0]) if found else default


class Scope:
    """Values by name; a block sees those of the block around it. `lod` names offsets."""

    __slots__ = ("around", "lod", "values")

    def __init__(self, around: Scope | None = None):
        self.values: dict[str, Any] = {}
        self.lod: dict[str, str] = {} if around is None else around.lod
        self.around = around

    def find(self, name: str) -> Scope | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope
            scope = scope.around
        return None

    def __getitem__(self, name: str) -> Any:
        scope = self.find(name)
        if scope is None:
            raise ModelFileError(f"the value {name!r:.80} is used before it is made")
        return scope.values[name]


class Run:
    """One run over a program."""

    def __init__(self, program: Program, weights: dict[str, Any]):
        self.program = program
        self.weights = weights
        self.steps = 0
        self.limit = MAX_STEPS + 256 * sum(len(b.ops) for b in program.blocks)
        self.scope = Scope()

    def __call__(self, inputs: dict[str, Any], lod: dict[str, str]) -> list[Tensor]:
        """The program's results. `lod` names, for an input, the input that holds its offsets."""
        self.scope.values.update(self.weights)
        self.scope.values.update(inputs)
        self.scope.lod.update(lod)
        self.block(self.program.blocks[0], self.scope)
        return [as_tensor(self.scope[name]) for name, _ in self.program.fetches]

    def result_lod(self) -> list[str | None]:
        """Per result: the name of the input that holds its offsets."""
        return [self.scope.lod.get(name) for name, _ in self.program.fetches]

    def block(self, block: Block, scope: Scope, depth: int = 0) -> None:
        if depth > MAX_DEPTH:
            raise ModelFileError(f"blocks lie in each other more than {MAX_DEPTH} deep")
        for op in block.ops:
            self.steps += 1
            if self.steps > self.limit:
                raise ModelFileError(f"a run takes more than {self.limit} operations")
            try:
                self._op(op, scope)
            except CaptureError:
                raise
            except BiremeError as e:
                if not getattr(e, "_located", False):
                    e.args = (f"Paddle op [{op.type}] ({op!s:.200}): {e}", *e.args[1:])
                    e._located = True  # pyright: ignore[reportAttributeAccessIssue]
                raise
            except (TypeError, KeyError, IndexError, AttributeError, OverflowError) as e:
                raise _damaged(op, e) from e
            except ValueError as e:
                if type(e).__name__ == "InconclusiveDimensionOperation":
                    raise
                raise _damaged(op, e) from e

    def _op(self, op: OpDesc, scope: Scope) -> None:
        step = Step(op, self, scope)
        made = self._folded(step)
        if made is None:
            entry = RULES.get(op.type)
            if entry is None:
                raise UnsupportedModel(f"there is no rule for the operation '{op.type}'")
            made = entry[0](step)
            slot = entry[1]
        else:
            slot = next((s for s, n in op.outputs.items() if n), "Out")
        self._share_lod(op, scope)
        results = made if isinstance(made, dict) else {slot: made}
        for slot, value in results.items():
            names = op.outputs.get(slot, [])
            values = value if isinstance(value, list) and len(names) != 1 else [value]
            for name, item in zip(names, values, strict=False):
                # An op inside a block that writes an outer variable writes that one.
                owner = scope.find(name) if "@" not in op.type else None
                (owner or scope).values[name] = item

    def _folded(self, step: Step) -> Any:
        fold = FOLDS.get(step.op.type)
        if fold is None:
            return None
        given = [v for slot in step.op.inputs for v in step.raws(slot)]
        if not given or not all(isinstance(v, Known) for v in given):
            return None
        if sum(v.array.size for v in given) > LARGEST:
            return None
        try:
            made = fold(step, given)
        except ValueError as e:
            if type(e).__name__ != "InconclusiveDimensionOperation":
                raise
            return None  # which of two sizes is larger, say; the tensors know at run time
        if made is None or isinstance(made, Known):
            return made
        first = step.raw("X") or step.raw("Input") or given[0]
        return settled(made, first.dtype)

    def _share_lod(self, op: OpDesc, scope: Scope) -> None:
        """Results have the sequences of the first input that has any, unless a rule says else."""
        if not scope.lod or op.type in _NO_SEQUENCES:
            return
        for names in op.inputs.values():
            found = next((scope.lod[n] for n in names if n in scope.lod), None)
            if found is not None:
                for outs in op.outputs.values():
                    for name in outs:
                        scope.lod.setdefault(name, found)
                return


def _damaged(op: OpDesc, e: Exception) -> ModelFileError:
    return ModelFileError(
        f"Paddle op [{op.type}] ({op!s:.200}) does not fit its inputs: {type(e).__name__}: {e}"
    )


def check_rules(program: Program) -> None:
    """Raise UnsupportedModel, naming every op that has no rule, before anything runs."""
    missing = sorted(t for t in program.op_types if t not in RULES and t not in FOLDS)
    if missing:
        raise UnsupportedModel(
            f"{len(missing)} operation(s) of this model have no rule: {', '.join(missing)}. Add "
            "rules for them in bireme.convert.paddle.rules"
        )


def dims_of(value: Tensor | Known) -> Sequence[Any]:
    """The shape of a value; dimensions may be symbolic."""
    return value.array.shape if isinstance(value, Known) else value._value.aval.shape
