"""Runs a program of PyTorch by the rules, node by node: eagerly, or into a capture."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any

from bireme.convert.torch.aten import rule_of
from bireme.convert.torch.aten.types import cast
from bireme.convert.torch.program import Graph, Node, Program, Ref, Subgraph, TorchFileError
from bireme.convert.torch.writes import write
from bireme.core.errors import BiremeError
from bireme.core.tensor import Tensor
from bireme.core.views import has_family


def nodes_of(graph: Graph) -> Iterator[Node]:
    """All nodes, those of inner graphs too."""
    for node in graph.nodes:
        yield node
        for value in (*node.named.values(), *node.positional):
            if isinstance(value, Subgraph):
                yield from nodes_of(value.graph)


def base_name(op: str) -> str:
    """An op without its overload: `torch.ops.aten.add.Tensor` is `add`."""
    if op.startswith("torch.ops.aten."):
        return op.split(".")[3]
    if op.startswith("torch.ops.higher_order."):
        return op.removeprefix("torch.ops.")
    return op


def check_rules(program: Program) -> None:
    """Refuse a program that has ops without a rule, and name all of them."""
    missing: dict[str, str] = {}
    for node in nodes_of(program.graph):
        if rule_of(base_name(node.op)) is None:
            missing.setdefault(node.op, node.where)
    if missing:
        listed = "; ".join(f"{op} ({where or 'unknown line'})" for op, where in missing.items())
        raise TorchFileError(
            f"[convert] {len(missing)} operation(s) of this model have no rule: {listed}. Add "
            "rules for them in bireme.convert.torch.aten"
        )


def run(graph: Graph, values: Mapping[str, Any], kept: Set[int] = frozenset()) -> list[Any]:
    """The outputs of a graph whose inputs are `values`, by name. Tensors whose ids are in `kept`
    are written to in place where the program does so."""
    scope = dict(values)
    for node in graph.nodes:
        _store(scope, node, _result(node, scope, kept))
    return [_value(o, scope, kept) for o in graph.outputs]


def _result(node: Node, scope: dict[str, Any], kept: Set[int]) -> Any:
    found = rule_of(base_name(node.op))
    if found is None:
        raise TorchFileError(f"[convert] {node.op} has no rule")
    rule, writes = found
    positional = [_value(v, scope, kept) for v in node.positional]
    named = {k: _value(v, scope, kept) for k, v in node.named.items()}
    if writes and not positional:  # the op without `_` may call its first argument `input`
        positional = [named.pop("self")]
    try:
        made = rule(*positional, **named)
        return _written(positional[0], made, scope, kept) if writes else made
    except BiremeError as e:
        e.args = (f"[convert] {node.op} ({node.where}): {e}", *e.args[1:])
        raise
    except (TypeError, ValueError, KeyError, IndexError, AttributeError, OverflowError) as e:
        raise TorchFileError(
            f"[convert] {node.op} ({node.where}): {type(e).__name__}: {e!s:.300}"
        ) from e


def _written(target: Tensor, made: Tensor, scope: dict[str, Any], kept: Set[int]) -> Tensor:
    """The result of an op that writes to `target`.

    The names of the target get the result, which leaves the former contents to gradients. Only
    where others see the same memory it is written to."""
    made = cast(made, target.dtype)
    if has_family(target) or id(target) in kept:
        return write(target, made, "a write")
    for name, value in scope.items():
        if value is target:
            scope[name] = made
    return made


def _value(argument: Any, scope: dict[str, Any], kept: Set[int]) -> Any:
    if isinstance(argument, Ref):
        try:
            return scope[argument.name]
        except KeyError:
            raise TorchFileError(f"[convert] the value {argument.name!r} is never made") from None
    if isinstance(argument, list):
        return [_value(a, scope, kept) for a in argument]
    return _branch(argument.graph, kept) if isinstance(argument, Subgraph) else argument


def _branch(graph: Graph, kept: Set[int]) -> Callable[..., list[Any]]:
    def call(*operands: Any) -> list[Any]:
        return run(graph, dict(zip(graph.inputs, operands, strict=True)), kept)

    return call


def _store(scope: dict[str, Any], node: Node, made: Any) -> None:
    results = node.results
    if len(results) == 1 and isinstance(results[0], str):
        if isinstance(made, list | tuple) and not _is_sizes(made) and len(made) == 1:
            made = made[0]
        scope[results[0]] = made
        return
    if len(results) == 1 and isinstance(results[0], tuple):
        results = results[0]
    if made is None:
        return
    values: Sequence[Any] = made if isinstance(made, list | tuple) else [made]
    for name, value in zip(results, values, strict=False):
        if isinstance(name, str):
            scope[name] = value


def _is_sizes(made: Sequence[Any]) -> bool:
    return not all(isinstance(m, Tensor) for m in made)
