"""Executor: runs programs through the engine that runs everything else.

A run records the program, cut down to what is fetched and what it writes, as one op into the
eager trace. So it is interpreted or compiled, cached and given donated buffers like any step.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from bireme import passes
from bireme.core import place as places
from bireme.core import random, trace
from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.core.rewrite import GraphBuilder
from bireme.core.tensor import Tensor, constant
from bireme.core.trace import record, state
from bireme.static.program import Program, default_main_program, fitting
from bireme.static.program_op import ProgramOp
from bireme.static.recorder import Variable, running
from bireme.static.scope import Scope, ScopeTensor, global_scope

_MAX_PLANS = 32  # per program
_LARGE = 4096  # bytes: larger constants are inputs of the compiled program

# Ops that are run for what they do; they run even if nobody fetches their results.
EFFECTS: set[str] = set()


@dataclass
class Plan:
    """One way to run a program: what goes in, the op, and where its results go."""

    op: ProgramOp
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
        v.name: recorded.slot_of(v.tensor._value)
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
    whole.outputs = [*slots, *writes.values(), *effects]  # type: ignore[list-item]
    needed = whole.needed()
    used = {a for n in needed for a in n.args if isinstance(a, int) and a < 0}
    used.update(o for o in whole.outputs if o < 0)
    variables = {recorded.slots[id(v.leaf)]: v for v in recorded.vars.values()}
    builder = GraphBuilder(whole)
    inputs: list[Variable | Tensor] = []
    rest = sorted(used - set(feeds), key=lambda ref: (ref not in variables, -ref))
    for ref in (*feeds, *rest):
        leaf, var = recorded.leaves[-1 - ref], variables.get(ref)
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
    return Plan(ProgramOp(graph), inputs, len(slots), list(writes))


def plan_for(program: Program, slots: tuple[int, ...], writing: bool = True) -> Plan:
    """The plan, made once per state of the program and set of fetches."""
    recorded = program._trace
    newest = tuple([id(v.tensor._value) for v in recorded.vars.values()])
    key = (len(recorded.code), newest, slots, writing, program._graph_passes)
    plans: Any = program._plans
    plan = plans.pop(key, None)
    if plan is None:
        plan = make_plan(program, slots, writing)
        while len(plans) >= _MAX_PLANS:
            del plans[next(iter(plans))]
    plans[key] = plan  # the last one is the one used last
    return plan


class Executor:
    """Runs programs: `exe.run(program, feed={...}, fetch_list=[...])`."""

    def __init__(self, place: Any = None):
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
        program: Any = None,
        feed: Any = None,
        fetch_list: Any = None,
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
        self, program: Any = None, dataset: Any = None, scope: Scope | None = None,
        thread: int = 0, debug: bool = False, fetch_list: Any = None, fetch_info: Any = None,
        print_period: int = 100, fetch_handler: Any = None,
    ) -> None:  # fmt: skip
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
        self, program: Any = None, dataset: Any = None, scope: Scope | None = None,
        thread: int = 0, debug: bool = False, fetch_list: Any = None, fetch_info: Any = None,
        print_period: int = 100, fetch_handler: Any = None,
    ) -> None:  # fmt: skip
        """`train_from_dataset` with the program as it is for testing: nothing is updated."""
        self.train_from_dataset(
            as_program(program).clone(for_test=True), dataset, scope, thread, debug, fetch_list,
            fetch_info, print_period, fetch_handler,
        )  # fmt: skip


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


def _run_plan(plan: Plan, program: Program, feed: dict[str, Any], scope: Scope) -> list[Tensor]:
    tensors = [_input(v, feed, scope) for v in plan.inputs]
    values = [t._value for t in tensors]
    call = plan.op.call_for(tuple([v.aval for v in values]))
    if program._trace.generators:
        own = program._generator
        drawn = [n for g in program._trace.generators for n in (own or g).draw()]
        values += [drawn[p] for p in plan.op.parts]
    outs = record(call, state.trace, tuple(values))
    # Nothing here may hold the old state any longer: its memory becomes the new state's.
    del tensors, values
    for name, out in zip(plan.writes, outs[plan.fetched :], strict=False):
        scope.put(name, Tensor(out, None))
    return [Tensor(out, None) for out in outs[: plan.fetched]]


def _input(var: Variable | Tensor, feed: dict[str, Any], scope: Scope) -> Tensor:
    if isinstance(var, Tensor):
        return var
    t = var.leaf.aval
    if var.kind == "number":
        assert var.read is not None  # noqa: S101 (every number has one)
        return constant(np.asarray(var.read(), t.dtype.numpy))
    if var.kind == "state":
        return scope.tensor(var.name)
    if var.kind == "made":
        raise InvalidArgument(
            f"[Executor.run] variable {var.name!r} was made by create_var and no op fills it"
        )
    if var.name not in feed:
        raise InvalidArgument(
            f"[Executor.run] the program needs {var.name!r} ({t}), which is not fed. Received: "
            f"feed of {sorted(feed) or 'nothing'}"
        )
    return _fed(var, feed[var.name])


def _fed(var: Variable, given: Any) -> Tensor:
    t = var.leaf.aval
    if isinstance(given, ScopeTensor):
        given = given.numpy()
    if isinstance(given, Tensor):
        tensor = given
    elif isinstance(given, np.ndarray | np.generic):
        tensor = constant(np.array(given))
    else:
        tensor = constant(np.array(given, t.dtype.numpy))
    have = tensor._value.aval
    if have.dtype is not t.dtype:
        raise InvalidArgument(
            f"[Executor.run] the data type of fed variable {var.name!r} must be {t.dtype.name}. "
            f"Received: {have.dtype.name}; convert it with .astype('{t.dtype.name}')"
        )
    fits = have.ndim == t.ndim and all(
        type(d) is not int or d == h for d, h in zip(t.shape, have.shape, strict=True)
    )
    if not fits:
        shown = [d if type(d) is int else -1 for d in t.shape]
        raise InvalidArgument(
            f"[Executor.run] fed variable {var.name!r} must have shape {shown}. Received: "
            f"{list(have.shape)}"
        )
    return tensor


def as_program(program: Any) -> Program:
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
