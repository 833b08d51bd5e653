"""Which weight each variable of a graph has."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bireme.convert.errors import ModelFileError, UnsupportedModel
from bireme.convert.tensorflow.arrays import Message, array_of
from bireme.convert.tensorflow.bundle import Bundle, Weights
from bireme.convert.tensorflow.nodes import Op, Ops, ops_of, owner
from bireme.convert.tensorflow.schema import VARIABLE_DEF
from bireme.convert.wire import decode, message, varint

VARIABLES = {"VarHandleOp", "VariableV2", "Variable"}
_OBJECTS_KEY = "_CHECKPOINTABLE_OBJECT_GRAPH"
_ATTRIBUTE = message(name=(1, "string"), full_name=(2, "string"), checkpoint_key=(3, "string"))
_TRACKABLE = message(nodes=(1, [message(attributes=(2, [_ATTRIBUTE]))]))
_STATISTICS = ("moving_mean", "moving_variance", "moving_avg", "moving_var")


class Variables:
    """The variables of a graph: `names` by node, and their contents."""

    def __init__(self, meta: Message, weights: Weights | None):
        graph = meta.get("graph_def", {})
        self._weights = weights
        self._keys: dict[str, str] = {}  # of the checkpoint, by node
        self.names: dict[str, str] = {}
        for node in graph.get("node", ()):
            if node.get("op") in VARIABLES:
                name = str(node.get("name", ""))
                shared = next(
                    (
                        p["value"].get("s")
                        for p in node.get("attr", ())
                        if p.get("key") == "shared_name" and "value" in p
                    ),
                    b"",
                )
                self.names[name] = bytes(shared or b"").decode("utf-8", "replace") or name
        if self.names and weights is not None:
            self._keys = _restored(meta)
        full = _full_names(weights)  # by keys of the checkpoint
        self._by_name = {name: key for key, name in reversed(full.items())}
        self._trained = _trained(meta)
        self.labels = {
            node: full.get(self._keys.get(node, ""), name) for node, name in self.names.items()
        }

    def array(self, op: Op) -> np.ndarray:
        """The contents of a variable."""
        if self._weights is None:
            raise ModelFileError(
                f"[convert] {op.where} is a variable, and there are no weights beside the graph: "
                "give the folder of the SavedModel, or the .meta file beside its checkpoint"
            )
        name = self.names.get(op.name, op.name)
        for key in (self._keys.get(op.name), name, op.name, self._by_name.get(name)):
            if key is not None and key in self._weights:
                array = self._weights.array(key)
                declared = op.attrs.get("shape")
                if declared is not None and not _fits(array.shape, declared):
                    raise ModelFileError(
                        f"[convert] the variable {name!r:.80} is {array.shape} in the checkpoint, "
                        f"not {declared}"
                    )
                return array
        raise UnsupportedModel(f"[convert] the checkpoint has no variable {name!r:.100}")

    def is_trained(self, node: str) -> bool:
        label = self.labels[node]
        flags = self._trained.get(label) or self._trained.get(self.names[node]) or {True}
        statistic = label.rstrip("_0123456789").endswith(_STATISTICS)  # some say nothing
        return True in flags and not statistic


def _fits(shape: tuple[int, ...], declared: tuple[int | None, ...]) -> bool:
    return len(shape) == len(declared) and all(
        d is None or d == s for s, d in zip(shape, declared, strict=True)
    )


def _trained(meta: Message) -> dict[str, set[bool]]:
    """Whether the variables of a name are trained, where the file says so."""
    made: dict[str, set[bool]] = {}
    for node in meta.get("object_graph_def", {}).get("nodes", ()):
        variable = node.get("variable")
        if variable and variable.get("name"):
            made.setdefault(variable["name"], set()).add(variable.get("trainable", False))
    for pair in meta.get("collection_def", ()):
        key = pair.get("key")
        if key not in ("variables", "trainable_variables"):
            continue
        for item in pair.get("value", {}).get("bytes_list", {}).get("value", ()):
            name = decode(VARIABLE_DEF, item, "variable").get("variable_name", "").split(":")[0]
            made.setdefault(name, set()).add(key == "trainable_variables")
    return made


def _full_names(weights: Weights | None) -> dict[str, str]:
    """The full names that objects have, by keys of the checkpoint."""
    if not isinstance(weights, Bundle) or _OBJECTS_KEY not in weights:
        return {}
    _, _, raw = weights.raw(_OBJECTS_KEY)
    # One text: its length as a number, four bytes of a checksum, the text.
    view = memoryview(raw)
    size, at = varint(view, 0)
    if at + 4 + size != len(view):
        raise ModelFileError("[convert] the objects of the checkpoint are damaged")
    made: dict[str, str] = {}
    for node in decode(_TRACKABLE, view[at + 4 :], "objects").get("nodes", ()):
        for attribute in node.get("attributes", ()):
            if attribute.get("full_name"):
                made.setdefault(attribute.get("checkpoint_key", ""), attribute["full_name"])
    return made


# --- the graph that restores ----------------------------------------------------------------


def _restored(meta: Message) -> dict[str, str]:
    """Keys of the checkpoint by variable, as the graph itself reads them back."""
    name = str(meta.get("saver_def", {}).get("restore_op_name", "")).split(":")[0]
    graph = meta.get("graph_def", {})
    functions = {
        str(f.get("signature", {}).get("name", "")): f
        for f in graph.get("library", {}).get("function", ())
    }
    ops = ops_of(graph.get("node", ()))
    made: dict[str, str] = {}
    if name in ops:
        _follow(ops, [name], {}, functions, made, 0)
    return made


def _follow(
    ops: Ops,
    ends: list[str],
    given: Mapping[str, str],
    functions: Mapping[str, Message],
    made: dict[str, str],
    depth: int,
) -> None:
    """Collect the assignments behind `ends`; `given` says which variables arguments are."""
    seen: set[str] = set()
    left = list(ends)
    while left:
        op = ops.get(left.pop())
        if op is None or op.name in seen:
            continue
        seen.add(op.name)
        left += op.controls + [owner(i) for i in op.inputs]
        if op.kind in ("AssignVariableOp", "Assign") and len(op.inputs) == 2:
            key = _key(ops, op.inputs[1])
            target = _variable(ops, op.inputs[0], given)
            if key is not None and target is not None:
                made.setdefault(target, key)
        called = functions.get(str(op.attrs.get("f")))
        if called is not None and depth < 8:
            _inside(ops, op, called, given, functions, made, depth)


def _inside(
    ops: Ops,
    op: Op,
    called: Message,
    given: Mapping[str, str],
    functions: Mapping[str, Message],
    made: dict[str, str],
    depth: int,
) -> None:
    names = [str(a.get("name", "")) for a in called.get("signature", {}).get("input_arg", ())]
    inner = ops_of(called.get("node_def", ()), set(names))
    targets = [_variable(ops, i, given) for i in op.inputs]
    known = {f"{n}:0": t for n, t in zip(names, targets, strict=False) if t is not None}
    _follow(inner, list(inner), known, functions, made, depth + 1)


def _variable(ops: Ops, value: str, given: Mapping[str, str]) -> str | None:
    if value in given:
        return given[value]
    op = ops.get(owner(value))
    return op.name if op is not None and op.kind in VARIABLES else None


def _key(ops: Ops, value: str) -> str | None:
    """The name that RestoreV2 gives to a value, through what only passes it on."""
    for _ in range(8):
        op = ops.get(owner(value))
        if op is None or not op.inputs:
            return None
        if op.kind in ("RestoreV2", "RestoreSlice", "Restore"):
            names = ops.get(owner(op.inputs[1])) if len(op.inputs) > 1 else None
            if names is None or not isinstance(names.attrs.get("value"), Mapping):
                return None
            listed = array_of(names.attrs["value"]).ravel().tolist()
            number = int(value.rpartition(":")[2])
            return listed[number].decode("utf-8", "replace") if number < len(listed) else None
        value = op.inputs[0]
    return None
