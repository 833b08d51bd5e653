"""Branches and loops: known conditions are followed, others become part of the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import bireme
from bireme.convert.paddle.interpreter import Scope, Step, as_tensor, rule
from bireme.convert.paddle.known import Known
from bireme.convert.paddle.program import Block, ModelFileError, UnsupportedModel
from bireme.core.tensor import Tensor
from bireme.static.nn import control_flow

if TYPE_CHECKING:
    from bireme.convert.paddle.interpreter import Results


MAX_WRITTEN_OUT = 64  # turns of a loop whose conditions are known


def _block(step: Step, name: str) -> Block:
    at = step.attr(name)
    if type(at) is not int or not 0 < at < len(step.run.program.blocks):
        raise ModelFileError(f"there is no block {at!r:.40}")
    return step.run.program.blocks[at]


def _depth(scope: Scope) -> int:
    depth, around = 0, scope.around
    while around is not None:
        depth, around = depth + 1, around.around
    return depth


def _inside(step: Step, block: Block, given: dict[str, Any] | None = None) -> dict[str, Any]:
    """Every value after running a block; writes to outer values are kept apart."""
    scope = Scope(step.scope)
    scope.values = _Shadow(step.scope)
    scope.values.update(given or {})
    step.run.block(block, scope, _depth(scope))
    return scope.values


class _Shadow(dict[str, Any]):
    """A block's own values, with the outer ones visible: writing one makes a copy here."""

    def __init__(self, around: Scope):
        super().__init__()
        self.around = around

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or self.around.find(str(name)) is not None

    def __missing__(self, name: str) -> Any:
        return self.around[name]


def known_truth(value: Tensor | Known) -> bool | None:
    """The truth of a condition, or None where only the run knows it."""
    if isinstance(value, Known) and value.is_numeric and value.array.size == 1:
        return bool(value.array.ravel()[0])
    return None


def select(condition: Any, yes: Any, no: Any) -> Results:
    """What a branch leaves: both were computed, one is kept."""
    if isinstance(yes, list) and isinstance(no, list):
        return [select(condition, a, b) for a, b in zip(yes, no, strict=True)]
    a, b = as_tensor(yes), as_tensor(no)
    if a._value.aval is not b._value.aval:
        raise UnsupportedModel(f"branches that give {a._value.aval} and {b._value.aval}")
    flag = as_tensor(condition)
    if flag.ndim:
        flag = bireme.reshape(flag, [])
    return bireme.where(flag, a, b)


@rule("if_branches")
def if_(step: Step) -> Results:
    """PIR's `if`: two blocks that end in a yield."""
    condition = step.raw("Cond")
    branches = [_block(step, name) for name in ("true_block", "false_block")]

    def follow(branch: Block) -> list[Any]:
        values = _inside(step, branch)
        return [values[n] for n in branch.ops[-1].inputs["X"]]

    known = known_truth(condition)
    if known is not None:
        return follow(branches[0 if known else 1])
    yes, no = [lambda b=b: [as_tensor(v) for v in follow(b)] for b in branches]
    return list(control_flow.cond(_flag(condition), yes, no))


def _flag(condition: Any) -> Tensor:
    return bireme.cast(bireme.reshape(as_tensor(condition), []), "bool")


@rule("yield_values")
def yield_(step: Step) -> Results:
    return {}


def _loop(condition: Any, values: list[Any], turn: Callable[[list[Any]], list[Any]]) -> list[Any]:
    """The values after `turn` (values -> condition and new values) ran while the condition holds.

    Turns whose condition is known are written out, up to a limit; the rest is a loop in the
    graph.
    """
    for _ in range(MAX_WRITTEN_OUT):
        known = known_truth(condition)
        if known is None:
            break
        if not known:
            return values
        condition, *values = turn(values)

    def body(_: Tensor, *now: Tensor) -> list[Tensor]:
        holds, *new = turn(list(now))
        return [_flag(holds), *map(as_tensor, new)]

    start = [_flag(condition), *map(as_tensor, values)]
    return control_flow.while_loop(lambda holds, *_: holds, body, start)[1:]


@rule("while_loop")
def while_loop(step: Step) -> Results:
    """PIR's `while`: a block of arguments, whose yield gives the condition and the next ones."""
    body = _block(step, "body_block")
    names = step.attr("arguments")

    def turn(values: list[Any]) -> list[Any]:
        inner = _inside(step, body, dict(zip(names, values, strict=True)))
        return [inner[n] for n in body.ops[-1].inputs["X"]]

    return _loop(step.raw("Cond"), step.raws("X"), turn)


@rule("while")
def while_(step: Step) -> Results:
    """The fluid loop: its block writes the outer variables, the condition among them."""
    body = _block(step, "sub_block")
    (flag,) = step.op.inputs["Condition"]
    written = {n for op in body.ops for names in op.outputs.values() for n in names}
    carried = sorted(n for n in written if n != flag and step.scope.find(n) is not None)
    if flag not in written and known_truth(step.scope[flag]) is not False:
        raise ModelFileError(f"a loop never changes its condition {flag!r:.80}, so it has no end")

    def turn(values: list[Any]) -> list[Any]:
        inner = _inside(step, body, dict(zip(carried, values, strict=True)))
        return [inner[n] for n in (flag, *carried)]

    after = _loop(step.scope[flag], [step.scope[n] for n in carried], turn)
    for name, value in zip(carried, after, strict=True):
        owner = step.scope.find(name)
        if owner is not None:
            owner.values[name] = value
    return {}


@rule("conditional_block", "conditional_block_infer")
def conditional_block(step: Step) -> Results:
    """A fluid branch; `select_input` picks between the results of two of them."""
    known = known_truth(step.raw("Cond"))
    if known is False:
        return {}
    values = _inside(step, _block(step, "sub_block"))
    made = {n: values[n] for names in step.op.outputs.values() for n in names if n in values}
    for name, value in made.items():
        owner = step.scope.find(name)
        before = owner.values[name] if owner is not None else None
        if known is None and before is not None:
            value = select(step.raw("Cond"), value, before)
        (owner or step.scope).values[name] = value
    return {}


@rule("select_input")
def select_input(step: Step) -> Results:
    no, yes = [step.scope.values.get(n) for n in step.op.inputs["X"]]
    mask = step.raw("Mask")
    known = known_truth(mask)
    if known is not None:
        return yes if known else no
    return select(bireme.cast(as_tensor(mask), "bool"), yes, no)
