"""TensorFlow 1's control flow as functions: frames (Enter … Exit) become While, and Switch with
Merge becomes If."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bireme.convert.errors import ModelFileError, UnsupportedModel
from bireme.convert.tensorflow.nodes import Op, Ops, owner

_SWITCH, _MERGE = ("Switch", "RefSwitch"), ("Merge", "RefMerge")
_ENTER, _EXIT = ("Enter", "RefEnter"), ("Exit", "RefExit")
_MOST = 64  # conditions that one value may hang on

Conditions = frozenset[tuple[str, bool]]


@dataclass(slots=True)
class Body:
    """A part of a graph: the values that it is given, all nodes around it, its results."""

    inputs: tuple[str, ...]
    ops: Ops
    outputs: tuple[str, ...]


def functional(main: Body, prefix: str) -> dict[str, Body]:
    """Rewrites the nodes around `main` so that no frame and no Switch is left; the functions that
    this makes have names that begin with `prefix`."""
    made = _Functions(main.ops, prefix)
    made.loops()
    bodies = [main, *made.bodies.values()]
    for body in bodies:
        made.branches(body)
    return made.bodies


class _Functions:
    def __init__(self, ops: Ops, prefix: str):
        self._ops, self._prefix = ops, prefix
        self.bodies: dict[str, Body] = {}

    def _add(self, body: Body) -> str:
        name = f"{self._prefix}{len(self.bodies)}"
        self.bodies[name] = body
        return name

    def _new(self, kind: str, inputs: list[str], attrs: dict[str, object]) -> str:
        name = f"{self._prefix}{kind}{len(self._ops)}"
        self._ops[name] = Op(name, kind, inputs, [], attrs)
        return name

    def _become(self, name: str, value: str) -> None:
        old = self._ops[name]
        self._ops[name] = Op(name, "Identity", [value], [], old.attrs)

    # --- loops ------------------------------------------------------------------------------

    def loops(self) -> None:
        frames: dict[str, list[Op]] = {}
        for op in self._ops.values():
            if op.kind in _ENTER:
                frames.setdefault(str(op.attrs.get("frame_name")), []).append(op)
        if not frames:
            return
        readers: dict[str, list[Op]] = {}
        for op in self._ops.values():
            for value in op.inputs:
                readers.setdefault(value, []).append(op)
        parts = {name: _Frame(name, enters, self._ops, readers) for name, enters in frames.items()}
        exits = {e: f for f in parts.values() for e in f.exits}
        state: dict[str, int] = {}
        for name in parts:
            stack = [(name, False)]
            while stack:
                at, finished = stack.pop()
                if finished:
                    state[at] = 2
                    self._loop(parts[at])
                elif state.get(at) == 1:
                    raise ModelFileError(f"[convert] the loop {at!r:.80} is inside of itself")
                elif at not in state:
                    state[at] = 1
                    stack.append((at, True))
                    inside = {exits[n].name for n in parts[at].nodes(self._ops) if n in exits}
                    stack += [(f, False) for f in inside - {at} if state.get(f) != 2]

    def _loop(self, frame: _Frame) -> None:
        inner = tuple(frame.merged + frame.constants)
        test = self._add(Body(inner, self._ops, (frame.condition,)))
        carried = tuple(frame.inside + frame.constants)
        body = self._add(Body(carried, self._ops, (*frame.after, *frame.constants)))
        loop = self._new("While", frame.before, {"cond": test, "body": body})
        for name, number in frame.exits.items():
            self._become(name, f"{loop}:{number}")

    # --- branches ---------------------------------------------------------------------------

    def branches(self, body: Body) -> None:
        if not any(op.kind in _MERGE for op in self._ops.values()):
            return
        found = _conditions(self._ops, body)
        groups: dict[tuple[str, Conditions], list[tuple[str, str, str]]] = {}
        for name, (test, rest, then, other) in found.merges.items():
            groups.setdefault((test, rest), []).append((name, then, other))
        for (test, rest), merges in sorted(groups.items(), key=lambda g: -len(g[0][1])):
            thens = self._branch(test, True, [m[1] for m in merges], found)
            others = self._branch(test, False, [m[2] for m in merges], found)
            names = [[n for n, _ in part] for part in (thens, others)]
            unused = [[f"{self._prefix}unused:{i}" for i in range(len(n))] for n in names]
            then = Body((*names[0], *unused[1]), self._ops, tuple([m[1] for m in merges]))
            other = Body((*unused[0], *names[1]), self._ops, tuple([m[2] for m in merges]))
            attrs: dict[str, object] = {
                "then_branch": self._add(then),
                "else_branch": self._add(other),
            }
            made = self._new("If", [test, *[v for _, v in (*thens, *others)]], attrs)
            for i, (name, _, _) in enumerate(merges):
                found.of[f"{made}:{i}"] = rest
                self._become(name, f"{made}:{i}")

    def _branch(
        self, test: str, side: bool, outputs: Sequence[str], found: _Found
    ) -> list[tuple[str, str]]:
        """(name inside, value outside) of what a branch takes from before it."""
        taken: dict[str, str] = {}
        seen: set[str] = set()
        left = list(outputs)
        while left:
            value = left.pop()
            if value in seen:
                continue
            seen.add(value)
            op = self._ops.get(owner(value))
            if op is not None and op.kind in _SWITCH and _source(self._ops, op.inputs[1]) == test:
                taken[value] = op.inputs[0]
            elif op is None or (test, side) not in found.behind(value):
                taken[value] = value
            else:
                left += op.inputs
        return list(taken.items())


class _Frame:
    """The nodes of one loop."""

    def __init__(self, name: str, enters: list[Op], ops: Ops, readers: dict[str, list[Op]]):
        self.name = name
        self.before: list[str] = []  # of variables, then of what stays
        self.merged: list[str] = []  # variables where the test sees them
        self.inside: list[str] = []  # where the body sees them
        self.after: list[str] = []  # what the body makes of them
        self.exits: dict[str, int] = {}
        self.condition = ""
        outside = []
        self.constants: list[str] = []
        for enter in enters:
            value = f"{enter.name}:0"
            merges = [r for r in readers.get(value, ()) if r.kind in _MERGE]
            if not merges:
                outside.append(enter.inputs[0])
                self.constants.append(value)
                continue
            merge = merges[0]
            backs = [ops[owner(v)] for v in merge.inputs if v != value and owner(v) in ops]
            if len(backs) != 1 or "NextIteration" not in backs[0].kind:
                raise UnsupportedModel(f"[convert] {merge.where} is no variable of a loop")
            merged = f"{merge.name}:0"
            switches = [r for r in readers.get(merged, ()) if r.kind in _SWITCH]
            inside = merged
            for switch in switches:
                gate = ops.get(owner(switch.inputs[1]))
                if gate is None or gate.kind != "LoopCond":
                    raise UnsupportedModel(f"[convert] {switch.where} is no part of a loop")
                self.condition = gate.inputs[0]
                inside = f"{switch.name}:1"
                for reader in readers.get(f"{switch.name}:0", ()):
                    if reader.kind in _EXIT:
                        self.exits[reader.name] = len(self.before)
            if len(switches) > 1:
                raise UnsupportedModel(f"[convert] {merge.where} has several switches")
            self.before.append(enter.inputs[0])
            self.merged.append(merged)
            self.inside.append(inside)
            self.after.append(backs[0].inputs[0])
        if not self.condition:
            raise UnsupportedModel(f"[convert] the loop {name!r:.80} has no condition")
        self.before += outside

    def nodes(self, ops: Ops) -> set[str]:
        """The nodes of the test and the body."""
        ends = {*self.merged, *self.inside, *self.constants}
        seen: set[str] = set()
        left = [self.condition, *self.after]
        while left:
            value = left.pop()
            name = owner(value)
            if value in ends or name in seen:
                continue
            seen.add(name)
            left += ops[name].inputs if name in ops else []
        return seen


class _Found:
    """What each value hangs on, and what each Merge joins."""

    def __init__(self) -> None:
        self.of: dict[str, Conditions] = {}
        self.nodes: dict[str, Conditions] = {}
        self.merges: dict[str, tuple[str, Conditions, str, str]] = {}

    def behind(self, value: str) -> Conditions:
        made = self.of.get(value)
        return self.nodes.get(owner(value), frozenset()) if made is None else made


def _conditions(ops: Ops, body: Body) -> _Found:
    found = _Found()
    done = found.nodes
    for value in body.inputs:
        found.of[value] = frozenset()
    for name in _ordered(ops, body):
        op = ops[name]
        of: set[tuple[str, bool]] = set()
        for control in op.controls:
            of |= done.get(control, frozenset())
        inputs = [found.behind(v) for v in op.inputs]
        if op.kind in _MERGE and len(inputs) == 2:
            first, second = inputs
            tests = sorted([t for t, side in first if (t, not side) in second])
            if not tests:
                raise UnsupportedModel(f"[convert] {op.where} joins what no Switch has parted")
            test = tests[0]
            of |= {c for c in first | second if c[0] != test}
            ends = op.inputs if (test, True) in first else op.inputs[::-1]
            found.merges[name] = (test, frozenset(of), ends[0], ends[1])
        else:
            of |= {c for v in inputs for c in v}
        if len(of) > _MOST:
            raise ModelFileError(f"[convert] {op.where} hangs on more than {_MOST} conditions")
        done[name] = frozenset(of)
        if op.kind in _SWITCH:
            for number, side in enumerate((False, True)):
                hung = frozenset({*of, (_source(ops, op.inputs[1]), side)})
                found.of.setdefault(f"{name}:{number}", hung)
    return found


def _source(ops: Ops, value: str) -> str:
    """The value that a condition is, behind what only passes it on."""
    for _ in range(_MOST):
        op = ops.get(owner(value))
        if op is None or op.kind != "Identity" or not op.inputs:
            break
        value = op.inputs[0]
    return value


def _ordered(ops: Ops, body: Body) -> list[str]:
    """The nodes of a body, each after those that it needs or waits for."""
    given = set(body.inputs)
    ends = {owner(v) for v in given}
    state: dict[str, int] = {}
    made: list[str] = []
    for output in body.outputs:
        stack = [(owner(output), False)] if output not in given else []
        while stack:
            name, finished = stack.pop()
            if finished:
                made.append(name)
                continue
            if name in state or name not in ops:
                continue
            state[name] = 1
            stack.append((name, True))
            op = ops[name]
            stack += [(owner(v), False) for v in op.inputs if v not in given]
            stack += [(c, False) for c in op.controls if c not in ends]
    return made
