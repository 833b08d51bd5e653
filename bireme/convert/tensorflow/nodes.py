"""Nodes of TensorFlow's graphs: what they refer to, which are needed, in what order they run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bireme.convert.errors import ModelFileError, UnsupportedModel
from bireme.convert.tensorflow.arrays import Message, settings

MAX_NODES = 1_000_000

# Ops with several results that have names of their own, in order.
_NORM = "y batch_mean batch_variance reserve_space_1 reserve_space_2 reserve_space_3"
_RESULTS = {
    op: tuple(names.split())
    for op, names in {
        "FusedBatchNorm": _NORM,
        "FusedBatchNormV2": _NORM,
        "FusedBatchNormV3": _NORM,
        "_FusedBatchNormEx": _NORM,
        "TopK": "values indices",
        "TopKV2": "values indices",
        "Unique": "y idx",
        "UniqueV2": "y idx",
        "UniqueWithCounts": "y idx count",
        "UniqueWithCountsV2": "y idx count",
        "ListDiff": "out idx",
        "NonMaxSuppressionV4": "selected_indices valid_outputs",
        "NonMaxSuppressionV5": "selected_indices selected_scores valid_outputs",
        "CombinedNonMaxSuppression": "nmsed_boxes nmsed_scores nmsed_classes valid_detections",
        "TensorListPopBack": "output_handle tensor",
        "TensorArrayV3": "handle flow",
        "TensorListConcatV2": "tensor lengths",
        "TensorArrayConcatV3": "value lengths",
        "Switch": "output_false output_true",
        "RefSwitch": "output_false output_true",
        "Merge": "output value_index",
        "RefMerge": "output value_index",
        "MaxPoolWithArgmax": "output argmax",
        "Qr": "q r",
        "Svd": "s u v",
        "SelfAdjointEigV2": "e v",
        "LogMatrixDeterminant": "sign log_abs_determinant",
        "SparseSoftmaxCrossEntropyWithLogits": "loss backprop",
        "SoftmaxCrossEntropyWithLogits": "loss backprop",
        "BroadcastGradientArgs": "r0 r1",
    }.items()
}

# What only watches: it runs for its effects, and a graph without it gives the same results.
_WATCHING_NAMES = """
Assert NoOp PrintV2 StringFormat ControlTrigger ScalarSummary HistogramSummary ImageSummary
MergeSummary WriteSummary AudioSummaryV2 TensorSummaryV2 Timestamp
"""
_WATCHING = set(_WATCHING_NAMES.split())
_WRITING_NAMES = """
Assign AssignAdd AssignSub AssignVariableOp AssignAddVariableOp AssignSubVariableOp
ScatterUpdate ScatterAdd ResourceScatterUpdate ResourceScatterAdd ResourceScatterNdUpdate
ResourceStridedSliceAssign ResourceApplyGradientDescent ResourceApplyAdam ResourceApplyMomentum
ResourceApplyKerasMomentum ApplyGradientDescent ApplyAdam ApplyMomentum
"""
_WRITING = set(_WRITING_NAMES.split())
_CODE = {"PyFunc", "PyFuncStateless", "EagerPyFunc"}


@dataclass(slots=True)
class Op:
    """One node; its inputs are values, called `node:number`."""

    name: str
    kind: str
    inputs: list[str]
    controls: list[str]
    attrs: dict[str, Any]
    count: int = 1  # results that are used

    @property
    def where(self) -> str:
        return f"the node {self.name!r:.120}"


Ops = dict[str, Op]


def ops_of(nodes: Sequence[Message], arguments: Collection[str] = ()) -> Ops:
    """The nodes of a graph, or of a function with these arguments, by name."""
    if len(nodes) > MAX_NODES:
        raise ModelFileError(f"[convert] the graph has more than {MAX_NODES} nodes")
    kinds = {str(n.get("name", "")): str(n.get("op", "")) for n in nodes}
    made: Ops = {}
    for node in nodes:
        name = str(node.get("name", ""))
        if not name or name in made or name in arguments:
            raise ModelFileError(f"[convert] there are two nodes {name!r:.80}, or one has no name")
        inputs, controls = [], []
        for reference in node.get("input", ()):
            if reference.startswith("^"):
                controls.append(reference[1:])
            else:
                inputs.append(value_name(reference, kinds, arguments))
        made[name] = Op(name, kinds[name], inputs, controls, settings(node))
    return made


def value_name(reference: str, kinds: Mapping[str, str], arguments: Collection[str] = ()) -> str:
    """`node:number` for a reference: `node`, `node:1`, or in a function `node:result:1`."""
    if reference in arguments:
        return f"{reference}:0"
    name, *rest = reference.split(":")
    if len(rest) > 2 or (rest and not rest[-1].isdecimal()) or len(rest[-1:] or "") > 9:
        raise ModelFileError(f"[convert] a reference cannot be {reference!r:.80}")
    number = int(rest[-1][:9]) if rest else 0
    if len(rest) == 2:
        names = _RESULTS.get(kinds.get(name, ""))
        if names is not None:
            if rest[0] not in names:
                raise ModelFileError(f"[convert] {kinds[name]} has no result {rest[0]!r:.60}")
            number += names.index(rest[0])
    return f"{name}:{number}"


def owner(value: str) -> str:
    """The node that makes a value."""
    return value.rpartition(":")[0]


def needed(ops: Ops, outputs: Sequence[str], given: Collection[str]) -> list[Op]:
    """The nodes behind `outputs`, as far as nobody gives their values, each after those that it
    needs. What would write to variables or run code of the program's own beside them is refused."""
    check_effects(ops, [owner(o) for o in outputs if o not in given], given)
    made: list[Op] = []
    state: dict[str, int] = {}  # 1: being visited, 2: done
    for output in outputs:
        stack = [(owner(output), False)] if output not in given else []
        while stack:
            name, finished = stack.pop()
            if finished:
                state[name] = 2
                made.append(ops[name])
            elif state.get(name) == 1:
                raise ModelFileError(f"[convert] the node {name!r:.100} needs its own result")
            elif name not in state:
                if name not in ops:
                    raise ModelFileError(f"[convert] the node {name!r:.100} is not there")
                state[name] = 1
                stack.append((name, True))
                inner = [owner(i) for i in ops[name].inputs if i not in given]
                stack += [(i, False) for i in reversed(inner) if state.get(i) != 2]
    for value in [*outputs, *[i for op in made for i in op.inputs]]:
        if value not in given:
            op = ops[owner(value)]
            op.count = max(op.count, int(value.rpartition(":")[2]) + 1)
            if op.count > 100_000:
                raise ModelFileError(f"[convert] {op.where} cannot have {op.count} results")
    return made


def check_effects(ops: Ops, nodes: Sequence[str], given: Collection[str] = ()) -> None:
    """Refuse what would write to variables, or run code, if `nodes` ran."""
    seen: set[str] = set()
    left = list(nodes)
    while left:
        name = left.pop()
        op = ops.get(name)
        if name in seen or op is None:
            continue
        seen.add(name)
        if op.kind in _CODE:
            raise UnsupportedModel(
                f"[convert] {op.kind} ({op.where}) runs code of the program's own, which a file "
                "does not hold and which would not be run"
            )
        if op.kind in _WRITING:
            raise UnsupportedModel(
                f"[convert] {op.kind} ({op.where}) writes to a variable: export the model for "
                "inference"
            )
        left += op.controls
        if op.kind not in _WATCHING:
            left += [owner(i) for i in op.inputs if i not in given]


__all__ = ["MAX_NODES", "Op", "Ops", "check_effects", "needed", "ops_of", "owner", "value_name"]
