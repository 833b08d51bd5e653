"""Executor: runs static programs through the eager engine.

A run prunes the program to the fetched and the written values and records that as one op into the
eager trace. So it is interpreted or compiled, cached and given donated buffers like any step.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from bireme import passes
from bireme.api.types import PlaceLike, TensorLike
from bireme.capture.rewrite import GraphBuilder
from bireme.core import place as places
from bireme.core import random, rollback, trace
from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.core.graph import Node
from bireme.core.tensor import Tensor, constant
from bireme.core.trace import record, state
from bireme.static.feeding import input_of
from bireme.static.host_calls import Cut, has_host_calls, symbols_in, with_sizes
from bireme.static.program import Program, default_main_program, fitting
from bireme.static.program_op import ProgramOp
from bireme.static.recorder import Variable, running
from bireme.static.scope import Scope, global_scope

if TYPE_CHECKING:
    from bireme.static.compiled import CompiledProgram

_LARGE = 4096  # bytes: larger constants are inputs of the compiled program

# Ops with side effects; they run even if their results are not fetched.
EFFECTS: set[str] = set()


@dataclass
class Plan:
    """One way to run a program: what goes in, the op, and where its results go."""

    op: ProgramOp | Cut  # in pieces, if it calls functions that read their tensors
    inputs: list[Variable | Tensor]  # variables, or large constants
    fetched: int  # the first results are fetched
    writes: list[str]  # the next ones replace state


def make_plan(
    program: Program, slots: tuple[int, ...], writing: bool = True, feeds: tuple[int, ...] = ()
) -> Plan:
    """The plan that computes the values in `slots` and the program's new state. The inputs in
    `feeds` come first, needed or not; then other variables, then constants."""
    recorded = program._trace
    writes = {
        v.name: recorded.known_slot(v.tensor._value)
        for v in recorded.vars.values()
        if writing and v.kind == "state" and v.tensor._value is not v.leaf
    }
    lost = [name for name, slot in writes.items() if slot is None]
    if lost:
        raise InvalidArgument(
            f"variable {lost[0]!r} got new contents outside of this program. Change it inside "
            "program_guard(program), or set its contents in the scope"
        )
    whole = recorded.graph([])
    effects = [r for n in whole.nodes if writing and n.call.op.name in EFFECTS for r in n.results]
    whole.outputs = [*slots, *writes.values(), *effects]  # pyright: ignore[reportAttributeAccessIssue]
    needed = with_sizes(whole)
    used = {a for n in needed for a in n.args if isinstance(a, int) and a < 0}
    used.update(o for o in whole.outputs if o < 0)
    variables = {recorded.known_slot(v.leaf): v for v in recorded.vars.values()}
    leaves = list(recorded.leaves)
    used |= _telling_sizes(needed, used, variables)
    builder = GraphBuilder(whole)
    inputs: list[Variable | Tensor] = []
    rest = sorted(used - set(feeds), key=lambda ref: (ref not in variables, -ref))
    for ref in (*feeds, *rest):
        leaf, var = leaves[-1 - ref], variables.get(ref)
        if var is not None:
            whole.names[ref] = var.name
            inputs.append(var)
        elif np.asarray(leaf.buf).nbytes > _LARGE:
            inputs.append(constant(leaf.buf))
        else:
            whole.constants[-1 - ref] = np.asarray(leaf.buf)
        builder.copy_input(ref)
    for node in needed:
        builder.copy(node)
    graph = passes.run(builder.finish(whole.outputs), program._graph_passes)
    if has_host_calls(graph):
        return Plan(Cut(graph), inputs, len(slots), list(writes))
    unchecked = [isinstance(v, Variable) and not v.checked for v in inputs]
    whole_op = ProgramOp(graph, unchecked)
    return Plan(whole_op, inputs, len(slots), list(writes))


def _telling_sizes(
    needed: list[Node], used: set[int], variables: dict[int | None, Variable]
) -> set[int]:
    """What is fed where only its sizes are used, by ops that do not take it."""
    missing = symbols_in([(n.call.types, n.call.outs, n.call.attrs) for n in needed])
    for ref in used & variables.keys():
        missing -= symbols_in(variables[ref].leaf.aval)
    found: set[int] = set()
    for ref, var in variables.items():
        if missing and ref is not None and var.kind == "data":
            told = missing & symbols_in(var.leaf.aval)
            if told:
                found.add(ref)
                missing -= told
    return found


def plan_for(program: Program, slots: tuple[int, ...], writing: bool = True) -> Plan:
    """The plan, made once per state of the program and set of fetches."""
    recorded = program._trace
    newest = tuple([id(v.tensor._value) for v in recorded.vars.values()])
    unchecked = tuple([name for name, v in recorded.vars.items() if not v.checked])
    key = (len(recorded.code), newest, slots, writing, program._graph_passes, unchecked)
    plan = program._plans.get(key)
    if plan is None:
        plan = program._plans.add(key, make_plan(program, slots, writing))
    return plan


class FetchHandler(Protocol):
    """Takes what was fetched during a pass over a dataset."""

    def handler(self, res_dict: dict[str, Any], /) -> object: ...


class Executor:
    """Runs programs: `exe.run(program, feed={...}, fetch_list=[...])`."""

    def __init__(self, place: PlaceLike | None = None):
        self.place = places.default_place() if place is None else places.as_place(place)
        self._closed = False

    @contextmanager
    def _on_place(self) -> Iterator[None]:
        """This executor's device as the current one."""
        before = places.default_place()
        if self.place == before:
            yield
            return
        trace.flush()
        places.set_default_place(self.place)
        try:
            yield
        finally:
            trace.flush()
            places.set_default_place(before)

    def close(self) -> None:
        """Free what runs have cached. A closed executor runs no more."""
        self._closed = True

    def flush(self) -> None:
        """Wait for what was started; a run has its results when it returns."""
        with running():
            trace.flush()

    def run(
        self,
        program: Program | CompiledProgram | None = None,
        feed: Mapping[str, TensorLike] | Sequence[Mapping[str, TensorLike]] | None = None,
        fetch_list: Tensor | str | Sequence[Tensor | str] | None = None,
        feed_var_name: str = "feed",
        fetch_var_name: str = "fetch",
        scope: Scope | None = None,
        return_numpy: bool = True,
        use_program_cache: bool = False,
        use_prune: bool = False,
    ) -> list[Any]:
        """Run the program once; returns what is fetched, as NumPy arrays or tensors.

        `feed` gives inputs by name. `fetch_list` holds variables or names. What a run needs is
        compiled once per set of sizes and remembered in any case, and only what is fetched or
        changes state is computed, except with `use_prune`: then state that nothing fetched
        depends on stays as it is. The names of feed and fetch variables serve Paddle's own files.
        """
        if self._closed:
            raise InvalidArgument("[Executor.run] this executor was closed; make another one")
        chosen = as_program(program)
        held = global_scope() if scope is None else scope
        wanted = _fetches(fetch_list)
        given = _feeds(feed, chosen)
        with running(), self._on_place():
            start_state(chosen, held)
            slots = tuple([chosen.slot_of(w) for w in wanted if not chosen.is_fixed(w)])
            plan = plan_for(chosen, slots, not (use_prune and wanted))
            computed = iter(_run_plan(plan, chosen, given, held) if plan.op.graph.outputs else ())
            results = [w if chosen.is_fixed(w) else next(computed) for w in wanted]
            trace.flush()
            if return_numpy:
                return [r.numpy() for r in results]
            return results

    def train_from_dataset(
        self,
        program: Program | CompiledProgram | None = None,
        dataset: Iterable[Mapping[str, TensorLike]] | None = None,
        scope: Scope | None = None,
        thread: int = 0,
        debug: bool = False,
        fetch_list: Tensor | str | Sequence[Tensor | str] | None = None,
        fetch_info: Sequence[str] | None = None,
        print_period: int = 100,
        fetch_handler: FetchHandler | None = None,
    ) -> None:
        """Run the program on every batch of `dataset`, an iterable of feeds (dicts of arrays).

        Every `print_period` batches what is in `fetch_list` is printed after `fetch_info`, or
        given to `fetch_handler.handler(dict)`. One program runs at a time, so `thread` must not
        exceed 1; with `debug` the time of each batch is printed.
        """
        import time

        if dataset is None:
            raise InvalidArgument("[train_from_dataset] needs a dataset: an iterable of feeds")
        if thread > 1:
            raise InvalidArgument(
                f"[train_from_dataset] one program runs at a time; thread must be 0 or 1. "
                f"Received: {thread}"
            )
        wanted = _fetches(fetch_list)
        said = list(fetch_info or [getattr(w, "name", w) for w in wanted])
        for number, feed in enumerate(dataset):
            began = time.perf_counter()
            results = self.run(program, feed, wanted, scope=scope)
            if debug:
                print(f"batch {number}: {time.perf_counter() - began:.6f} s")  # noqa: T201
            if wanted and number % print_period == 0:
                pairs = dict(zip(said, results, strict=True))
                if fetch_handler is not None:
                    fetch_handler.handler(pairs)
                else:
                    print(", ".join(f"{k}: {v}" for k, v in pairs.items()))  # noqa: T201

    def infer_from_dataset(
        self,
        program: Program | CompiledProgram | None = None,
        dataset: Iterable[Mapping[str, TensorLike]] | None = None,
        scope: Scope | None = None,
        thread: int = 0,
        debug: bool = False,
        fetch_list: Tensor | str | Sequence[Tensor | str] | None = None,
        fetch_info: Sequence[str] | None = None,
        print_period: int = 100,
        fetch_handler: FetchHandler | None = None,
    ) -> None:
        """`train_from_dataset` with the program as it is for testing: nothing is updated."""
        self.train_from_dataset(
            as_program(program).clone(for_test=True),
            dataset,
            scope,
            thread,
            debug,
            fetch_list,
            fetch_info,
            print_period,
            fetch_handler,
        )


def start_state(program: Program, scope: Scope) -> None:
    """What a startup program does: put first contents into the scope."""
    if not program._initial:
        return
    generator = random.default_generator
    before = generator.get_state()
    if program._generator is not None:
        generator.set_state(program._generator.get_state())
    try:
        for name, (t, make) in program._initial.items():
            made = constant(fitting(name, t, make(scope)))
            lay_out = program._layouts.get(name)
            scope.put(name, made if lay_out is None else lay_out(made))
    finally:
        if program._generator is not None:
            generator.set_state(before)


class FormerState:
    """The contents, by slot, of the entries of a scope that a run replaces (core/rollback.py)."""

    def __init__(self, scope: Scope, slots: dict[str, int]):
        self.scope = scope
        self.slots = slots

    def take_back(self, failure: rollback.Failure) -> None:
        for name, slot in self.slots.items():
            self.scope.put(name, Tensor(failure.value(slot), None))


def _run_plan(plan: Plan, program: Program, feed: dict[str, Any], scope: Scope) -> list[Tensor]:
    tensors = [input_of(v, feed, scope) for v in plan.inputs]
    if isinstance(plan.op, Cut):
        return _run_cut(plan, plan.op, program, tensors, scope)
    values: list[Any] = [t._value for t in tensors]
    call = plan.op.call_for(tuple([v.aval for v in values]))
    if program._trace.generators:
        own = program._generator
        drawn = [n for g in program._trace.generators for n in state.trace.next_key(own or g)]
        values += [drawn[p] for p in plan.op.parts]
    outs = record(call, state.trace, tuple(values), tensors)
    slots = [state.trace.slot_of(v) for v in values[: len(plan.inputs)]]
    known = {v.name: s for v, s in zip(plan.inputs, slots, strict=True) if isinstance(v, Variable)}
    former = {name: known[name] for name in plan.writes if name in known}
    state.trace.undo.append(FormerState(scope, former))
    # Nothing here may hold the old state any longer: its memory becomes the new state's.
    del tensors, values
    for name, out in zip(plan.writes, outs[plan.fetched :], strict=False):
        scope.put(name, Tensor(out, None))
    return [Tensor(out, None) for out in outs[: plan.fetched]]


def _run_cut(
    plan: Plan, cut: Cut, program: Program, tensors: list[Tensor], scope: Scope
) -> list[Tensor]:
    """A run in pieces. What a failed call leaves undone stays so: nothing is written before."""
    own = program._generator
    drawn = [n for g in program._trace.generators for n in state.trace.next_key(own or g)]

    def run_piece(op: ProgramOp, given: list[Tensor], sizes: dict[str, int]) -> list[Tensor]:
        values: list[Any] = [t._value for t in given]
        call = op.call_with_sizes(tuple([v.aval for v in values]), sizes)
        values += [drawn[p] for p in op.parts]
        return [Tensor(out, None) for out in record(call, state.trace, tuple(values), given)]

    free = [i for i in range(len(cut.graph.inputs)) if i not in cut.graph.constants]
    outs = cut.run({-1 - i: t for i, t in zip(free, tensors, strict=True)}, run_piece)
    for name, out in zip(plan.writes, outs[plan.fetched :], strict=False):
        scope.put(name, out)
    return outs[: plan.fetched]


def as_program(program: Program | CompiledProgram | None) -> Program:
    """The Program behind what a user may hand over."""
    if program is None:
        return default_main_program()
    inner = getattr(program, "_program", program)
    if not isinstance(inner, Program):
        raise TypeMismatch(
            f"a Program or a CompiledProgram was expected. Received: {type(program).__name__}"
        )
    return inner


def _fetches(fetch_list: Any) -> list[Any]:
    if fetch_list is None:
        return []
    if isinstance(fetch_list, str | Tensor):
        return [fetch_list]
    flat: list[Any] = []
    for item in fetch_list:
        flat += item if isinstance(item, list | tuple) else [item]
    return flat


def _feeds(feed: Any, program: Program) -> dict[str, Any]:
    if feed is None:
        return {}
    if isinstance(feed, list | tuple) and len(feed) == 1:
        feed = feed[0]  # one dict per device; there is one program
    if not isinstance(feed, Mapping):
        raise TypeMismatch(
            f"[Executor.run] feed must be a dict of arrays by name. Received: {type(feed).__name__}"
        )
    known = [n for n, v in program._trace.vars.items() if v.kind == "data"]
    unknown = [n for n in feed if n not in known]
    if unknown:
        warnings.warn(
            f"[Executor.run] the program has no input {unknown[0]!r}, which is fed; its inputs "
            f"are {known}",
            stacklevel=3,
        )
    return dict(feed)


__all__ = ["EFFECTS", "Executor", "Plan", "as_program", "make_plan", "plan_for"]
