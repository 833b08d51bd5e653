"""A function that runs as one captured graph per signature."""

from __future__ import annotations

import contextlib
import functools
import inspect
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.autograd.modes import no_grad
from bireme.capture import symbols, tree
from bireme.capture.capture import Captured, GradEffect, capture
from bireme.capture.fast_path import FastPath, fits_fast_path
from bireme.capture.recorder import is_capturing
from bireme.core import rollback, views
from bireme.core.autograd import GradNode, Output
from bireme.core.aval import Aval
from bireme.core.errors import CaptureError, InvalidArgument, ShapeMismatch
from bireme.core.tensor import Parameter, Tensor
from bireme.core.trace import Value, record, seal, state
from bireme.core.value import keep, value_of
from bireme.jit.concrete import AsProgram
from bireme.jit.convert import converted_layers
from bireme.jit.guards import Guards
from bireme.jit.ports import Port, outputs_of
from bireme.jit.runtime import call as rewritten
from bireme.jit.signature import LayerState, argument_names, fits, layers_of, spec_types
from bireme.jit.watch import Effect, watching
from bireme.static.input_spec import InputSpec

if TYPE_CHECKING:
    from bireme.nn.layer.layer import Layer


_MAX_VARIANTS = 8  # graphs for one signature, before it runs eagerly
_MAX_DISCOVERIES = 32
_UNSTEADY = "its layers get other parameters, numbers or hooks again and again"
_EAGER = object()  # in place of a captured graph: this signature runs as plain Python
AGAIN = object()  # in place of a result: something is different, look again


class CaptureWarning(UserWarning):
    """A function runs eagerly because it could not be captured."""


class _Switch:
    enabled = True


def enable_to_static(enable_to_static_bool: bool) -> None:
    """Switch all captured functions to graphs (True) or to plain eager Python (False)."""
    if not isinstance(enable_to_static_bool, bool):
        raise InvalidArgument(
            f"enable_to_static takes True or False. Received: {enable_to_static_bool!r}"
        )
    _Switch.enabled = enable_to_static_bool


@contextlib.contextmanager
def without_capture() -> Iterator[None]:
    """Run captured functions as plain Python meanwhile: hooks see every call and its sizes."""
    before, _Switch.enabled = _Switch.enabled, False
    try:
        yield
    finally:
        _Switch.enabled = before


class StaticFunction(AsProgram):
    """The result of `to_static`: a function that is called as before and runs as a captured
    graph."""

    def __init__(
        self,
        function: Callable[..., Any],
        layer: Layer | None = None,
        input_spec: Sequence[Any] | None = None,
        full_graph: bool = False,
    ):
        self._function = function
        self._layer = layer
        self._input_spec = None if input_spec is None else list(input_spec)
        # Sizes that an InputSpec leaves open: all different, shared by axis, or taken as given.
        self._sizes = "closed" if input_spec is None else "open"
        self._full_graph = full_graph
        self._training = True
        self._entries: dict[Any, Any] = {}
        self._variants: dict[Any, list[CapturedCall]] = {}
        self._layers: LayerState | None = None
        self._discoveries = 0
        self._declared: dict[Any, tuple[Aval, ...]] = {}
        self._bound: weakref.WeakKeyDictionary[Any, StaticFunction] = weakref.WeakKeyDictionary()
        functools.update_wrapper(self, function, updated=())

    @property
    def dygraph_function(self) -> Callable[..., Any]:
        """The function as it was written."""
        return self._function

    def train(self) -> None:
        """Record gradients in calls from now on; for functions that belong to no layer."""
        self._set_training("train", True)

    def eval(self) -> None:
        """Record no gradients in calls from now on; for functions that belong to no layer."""
        self._set_training("eval", False)

    def _set_training(self, name: str, training: bool) -> None:
        owner = self._layer or getattr(self._function, "__self__", None)
        if hasattr(owner, "sublayers"):
            raise CaptureError(
                f"[{name}] {self.label} is a method of a layer: call {name}() of the layer"
            )
        self._training = training

    @property
    def label(self) -> str:
        if self._layer is not None:
            return f"{type(self._layer).__name__}.{self._function.__name__}()"
        return f"{getattr(self._function, '__qualname__', repr(self._function))}()"

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        bound = self._bound.get(instance)
        if bound is None:
            method = self._function.__get__(instance, owner)
            layer = instance if hasattr(instance, "sublayers") else None
            bound = StaticFunction(method, layer, self._input_spec, self._full_graph)
            self._bound[instance] = bound
        return bound

    def known_specs(self) -> list[Any] | None:
        """Its InputSpecs: those it was given, or the arguments of its last capture; None before
        one."""
        if self._input_spec is not None or not self._entries:
            return self._input_spec
        types, (structure, *_) = next(reversed(self._entries))
        leaves = [InputSpec(list(t.shape), t.dtype) for t in types]
        args, kwargs = tree.unflatten(structure, leaves)
        return list(inspect.signature(self._function).bind(*args, **kwargs).args)

    @property
    def inputs(self) -> list[InputSpec]:
        """Its tensor arguments, as InputSpecs."""
        specs = tree_specs(self._known("inputs"))
        names = argument_names(self._function, len(specs))
        for i, spec in enumerate(specs):
            spec.name = spec.name or (names[i] if i < len(names) else f"x{i}")
        return specs

    @property
    def outputs(self) -> list[Port]:
        """Its results; `paddle.jit.save(..., output_spec=f.outputs[:1])` keeps some of them."""
        specs = self._known("outputs")
        return outputs_of(capture_with_specs(self, specs))

    def _known(self, what: str) -> list[Any]:
        specs = self.known_specs()
        if specs is None:
            raise CaptureError(
                f"[{what}] {self.label} is not captured yet: call it, or give input_spec to "
                "to_static"
            )
        return specs

    def rollback(self) -> Callable[..., Any]:
        """The function as it was written, put back in place on its layer."""
        if self._layer is not None and self._layer.__dict__.get("forward") is self:
            del self._layer.__dict__["forward"]
        return self._function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not _Switch.enabled:
            return self._function(*args, **kwargs)
        if is_capturing():
            return rewritten(self._function)(*args, **kwargs)
        if not self._training and state.trace.tape:
            with no_grad():
                return self(*args, **kwargs)
        tensors, structure = tree.flatten_arguments(args, kwargs)
        trace = state.trace
        layers = self._layers
        if layers is None or not layers.unchanged():
            if self._discoveries > _MAX_DISCOVERIES:
                return self._run_eagerly(_UNSTEADY, args, kwargs)
            layers = self._discover()
        types = tuple([t._value.aval for t in tensors])
        tape = trace.tape
        needs = tuple([t._node is not None for t in tensors]) if tape else ()
        rest = (structure, needs, tape, trace.amp, layers.training())
        try:
            entry: Any = self._entries.get((self._declare(types), rest))
        except TypeError:
            return self._run_eagerly(_unhashable(structure), args, kwargs)
        if entry.__class__ is CapturedCall:
            result = entry.repeat(tensors)
            if result is not AGAIN:
                return result
        if entry is None or (entry is not _EAGER and not entry.is_current()):
            entry = self._other(types, rest) or self._capture(types, rest)
        if entry is _EAGER:
            return self._function(*args, **kwargs)
        return entry(tensors)

    def _other(self, types: tuple[Aval, ...], rest: Any) -> Any:
        """An earlier graph of this signature that fits again; None if there is none.

        The implicit inputs of a graph (see `CapturedCall.is_current`) may change back and forth:
        gradients that exist or not, a tensor whose value Python read.
        """
        key = (self._declare(types), rest)
        known = self._variants.setdefault(key, [])
        for entry in known:
            if entry.is_current():
                self._entries[key] = entry
                return entry
        if len(known) < _MAX_VARIANTS:
            return None
        reason = (
            f"it was captured {len(known)} times for the same arguments, each time with other "
            "values of the outer variables, or of the tensors, that Python looks at. Pass what "
            "changes as a tensor"
        )
        if self._full_graph:
            raise CaptureError(f"{self.label} cannot be captured: {reason}")
        warnings.warn(f"{self.label} runs eagerly: {reason}", CaptureWarning, stacklevel=3)
        self._entries[key] = _EAGER
        return _EAGER

    def _discover(self) -> LayerState:
        if self._layer is not None:
            layers = self._layer.sublayers(include_self=True)
        else:
            layers = layers_of(self._function)
        self._layers = LayerState(layers)
        self._discoveries += 1
        self._entries.clear()
        self._variants.clear()
        return self._layers

    def _declare(self, types: tuple[Aval, ...]) -> tuple[Aval, ...]:
        """The types to capture with: symbolic where an InputSpec leaves sizes open."""
        if self._sizes == "closed":
            return types
        declared = self._declared.get(types)
        if declared is None:
            specs = tree_specs(self._input_spec)
            declared = types
            if len(specs) == len(types) and all(map(fits, specs, types)):
                symbolic = spec_types(specs, self._sizes == "shared")
                with contextlib.suppress(InvalidArgument):
                    symbols.solve(symbolic, list(types))
                    declared = tuple(symbolic)
            self._declared[types] = declared
        return declared

    def _capture(self, types: tuple[Aval, ...], rest: Any) -> Any:
        """A new entry. Where open sizes fail, try with fewer of them, and at last with none."""
        while True:
            declared = self._declare(types)
            entry: Any
            try:
                entry = self._capture_as(declared, rest)
            except CaptureError as e:
                if declared != types and e.__cause__ is not None:  # an error in a branch
                    self._close_sizes(e.__cause__)
                    continue
                entry = None
                if declared != types:
                    with contextlib.suppress(CaptureError):
                        entry = self._capture_as(types, rest)
                if entry is not None:
                    self._sizes = "shared"
                    self._close_sizes(e)
                    declared = types
                elif self._full_graph:
                    if str(e).startswith("it "):
                        e.args = (f"{self.label} cannot be captured: {e}",)
                    raise
                else:
                    warnings.warn(f"{self.label} runs eagerly: {e}", CaptureWarning, stacklevel=3)
                    entry = _EAGER
            except Exception as e:
                if declared == types:
                    raise
                self._close_sizes(e)
                continue
            self._entries[declared, rest] = entry
            if entry is not _EAGER:
                self._variants.setdefault((declared, rest), []).append(entry)
            return entry

    def _close_sizes(self, reason: BaseException) -> None:
        self._declared.clear()
        if self._sizes == "open":
            self._sizes = "shared"
            return
        self._sizes = "closed"
        said = str(reason).strip().splitlines()[0]
        warnings.warn(
            f"{self.label} is captured once per size, not once for all: {said}",
            CaptureWarning,
            stacklevel=4,
        )

    def _capture_as(self, types: tuple[Aval, ...], rest: Any) -> CapturedCall:
        structure, needs, tape, amp, _ = rest
        layers = self._layers or self._discover()
        todo: list[Effect] = []

        def run(arguments: list[Tensor]) -> Any:
            args, kwargs = tree.unflatten(structure, arguments)
            watch.trace = state.trace
            for given in (*args, *kwargs.values(), getattr(self._function, "__self__", None)):
                watch.given(given)
            with converted_layers(layers.layers):
                result = rewritten(self._function)(*args, **kwargs)
            effects, values = watch.effects()
            todo.extend(effects)
            return result, values

        with watching() as watch:
            try:
                captured = capture(
                    run,
                    types,
                    label=self.label,
                    needs=needs,
                    names=self._names(len(types)),
                    known=layers.names(self._layer),
                    tape=tape,
                    amp=amp,
                )
            finally:
                layers.leave_out(set(watch.stored))
        return CapturedCall(captured, Guards(watch, layers.looked_after()), todo)

    def _names(self, count: int) -> list[str]:
        names = argument_names(self._function, count)
        for i, spec in enumerate(tree_specs(self._input_spec or [])[:count]):
            if spec.name and i < len(names):
                names[i] = spec.name
        return names

    def _run_eagerly(self, reason: str, args: Any, kwargs: Any) -> Any:
        if self._full_graph:
            raise CaptureError(f"{self.label} cannot be captured: {reason}")
        warnings.warn(f"{self.label} runs eagerly: {reason}", CaptureWarning, stacklevel=3)
        return self._function(*args, **kwargs)


def tree_specs(specs: object) -> list[InputSpec]:
    """The InputSpecs among nested lists, tuples and dicts of them."""
    if isinstance(specs, InputSpec):
        return [specs]
    if isinstance(specs, Tensor):
        return [InputSpec.from_tensor(specs)]
    if isinstance(specs, list | tuple):
        return [s for item in specs for s in tree_specs(item)]
    if isinstance(specs, dict):
        return [s for item in specs.values() for s in tree_specs(item)]
    return []


def _unhashable(structure: Any) -> str:
    found: list[str] = []

    def visit(s: Any) -> None:
        if isinstance(s, tree.Static):
            try:
                hash(s)
            except TypeError:
                found.append(type(s.value).__name__)
        elif isinstance(s, tuple):
            for item in s[1:]:
                visit(item)

    visit(structure)
    return f"an argument of type {found[0] if found else 'unknown'} has no hash"


def _holds(tensor: Tensor | None, value: Any) -> bool:
    return tensor is not None and tensor._value is value


class CapturedCall:
    """Calls a captured graph from eager code: one recorded entry."""

    def __init__(
        self,
        captured: Captured,
        guards: Guards | None = None,
        effects: list[Effect] | None = None,
    ):
        """With `effects`, the graph's result is a pair: the function's result, and the values that
        the effects are called with."""
        self.captured = captured
        self.guards = guards
        self.effects = effects
        self.op = captured.op
        self.outer = captured.outer
        self.outer_needs = captured.needs[len(captured.needs) - len(captured.outer) :]
        self.outer_types = [t._value.aval for t in captured.outer]
        # Parameters get new contents: the call is a training step, and a trace ends with it.
        self.ends_step = any(isinstance(w.target, Parameter) for w in captured.writes)
        self.may_be_fast = fits_fast_path(captured)
        self.fast_path: FastPath | None = None  # once it was called

    def is_current(self) -> bool:
        """Whether the captured tensors still have the types and need the gradients they had."""
        if self.guards is not None and not self.guards.hold(self._replace):
            return False
        if not self._take_gradients():
            return False
        outer = self.outer
        return (
            [t._value.aval for t in outer] == self.outer_types
            and self._same_grads()
            and all(_holds(ref(), value) for ref, value in self.captured.guards)
            and (not state.trace.tape or [t._node is not None for t in outer] == self.outer_needs)
        )

    def _take_gradients(self) -> bool:
        """Take the gradients of now for those of the capture; False if one is not there."""
        for i, tensor in self.captured.gradients:
            old, new = self.outer[i], tensor._grad
            if new is None:
                return False
            self.outer[i] = new
            for write in self.captured.writes:
                if write.target is old:
                    write.target = new
        return True

    def _same_grads(self) -> bool:
        """Whether gradients that are added to are there, and those that were not are not."""
        return all((t._grad is not None) == had for t, had in self.captured.graded)

    def repeat(self, arguments: list[Tensor]) -> Any:
        """The call, if it finds everything as the last one left it; else `AGAIN`."""
        if self.fast_path is None or (self.guards and not self.guards.hold(self._replace)):
            return AGAIN
        if self.fast_path is None:  # another tensor has taken the place of one
            return AGAIN
        outs = self.fast_path.run(arguments)
        if outs is None:
            self.fast_path = None
            return AGAIN
        return self._finished([Tensor(v, None) for v in outs])

    def _finished(self, results: list[Tensor]) -> Any:
        """The function's result, after its side effects were repeated."""
        if self.effects is None:
            return tree.unflatten(self.captured.structure, results)
        result, values = tree.unflatten(self.captured.structure, results)
        for act, value in zip(self.effects, values, strict=True):
            act(value)
        return result

    def _replace(self, old: Tensor, new: Tensor) -> bool:
        """Take another tensor as the input that `old` was, where the graph is the same for it."""
        captured = self.captured
        at = [i for i, t in enumerate(self.outer) if t is old]
        same = (
            new._value.aval is old._value.aval
            and new.stop_gradient == old.stop_gradient
            and new.__class__ is old.__class__
            and not any(ref() is old for ref, _ in captured.guards)
        )
        if not at:
            return same  # only looked at, not computed with
        if not same or len(at) > 1 or any(t is new for t in self.outer):
            return False
        self.outer[at[0]] = new
        for effect in (*captured.writes, *captured.grads):
            if effect.target is old:
                effect.target = new
        captured.graded = [(new if t is old else t, had) for t, had in captured.graded]
        captured.gradients = [(i, new if t is old else t) for i, t in captured.gradients]
        self.fast_path = None
        return True

    def __call__(self, arguments: list[Tensor]) -> Any:
        captured = self.captured
        for tensor, read in captured.live:
            tensor._value = value_of(tensor._value.aval, np.array(read()))
        tensors = arguments + self.outer
        values = tuple([t._value for t in tensors])
        call = self.op.call_for(tuple([v.aval for v in values]))
        if captured.generators:
            drawn = [n for g in captured.generators for n in g.next_key()]
            values += tuple([drawn[p] for p in captured.op.parts])
        trace = state.trace
        outs = record(call, trace, values, tensors)
        node: GradNode | None = None
        if trace.tape and self.op.backward is not None:
            edges = [None] * len(call.types)
            for i in self.op.backward.targets:  # the others are not reached by any gradient
                edges[i] = tensors[i]._node
            if any(e is not None for e in edges):
                saved = tuple([values[i] if i >= 0 else outs[-1 - i] for i in call.saved_at])
                node = GradNode(call, tuple(edges), saved)
        start = len(trace.undo)
        try:
            self._write(node, arguments, outs)
        except BaseException:  # Ctrl-C: everything is written or nothing
            if state.trace is trace:
                rollback.abandon_step(trace, start)
            raise
        for output, error in captured.checks:
            if not Tensor(outs[output], None):
                raise error
        results = [
            Tensor(outs[i], Output(node, i) if tracked and node is not None else None)
            for i, tracked in enumerate(captured.tracked)
        ]
        if self.ends_step:
            seal()
        if self.may_be_fast:
            self.fast_path = FastPath(captured, arguments)
        return self._finished(results)

    def _write(self, node: GradNode | None, arguments: list[Tensor], outs: list[Value]) -> None:
        """Give tensors from outside the contents and gradients that the function gave them."""
        for write in self.captured.writes:
            target = write.target if isinstance(write.target, Tensor) else arguments[write.target]
            if write.tracked and node is not None:
                made = Tensor(outs[write.output], Output(node, write.output))
                views.assign(target, made, "to_static")
            else:
                target._put(outs[write.output])
        if node is not None:
            for kept in node.saved or ():
                if isinstance(kept, Value):  # overwritten by the function itself
                    keep(kept)
        for effect in self.captured.grads:
            self._put_grad(effect, arguments, outs)

    @staticmethod
    def _put_grad(effect: GradEffect, arguments: list[Tensor], outs: list[Value]) -> None:
        given = isinstance(effect.target, int)
        target: Any = arguments[effect.target] if given else effect.target
        new = None if effect.output is None else Tensor(outs[effect.output], None)
        if given and new is not None and target._grad is not None:
            new = target._grad + new
        if new is not None:
            state.trace.undo.append(rollback.Gradient(state.trace, weakref.ref(target), target))
        target._grad, target._grad_is_zero = new, effect.is_zero


def capture_with_specs(
    function: StaticFunction | Callable[..., Any],
    specs: Sequence[Any],
    kwargs: dict[str, Any] | None = None,
    layer: Layer | None = None,
) -> Captured:
    """Capture a function from InputSpecs (or example tensors) in place of its arguments."""
    if isinstance(function, StaticFunction):
        layer, plain = function._layer, function._function
    else:
        plain = function
    open_specs = tree_specs([list(specs), kwargs or {}])
    _, structure = tree.flatten((_with_leaves(tuple(specs)), _with_leaves(kwargs or {})))
    layers = layer.sublayers(include_self=True) if layer is not None else layers_of(plain)
    known = LayerState(layers).names(layer)
    label = f"{type(layer).__name__}.forward()" if layer is not None else plain.__name__
    names = argument_names(plain, len(open_specs))
    names = [s.name or (names[i] if i < len(names) else f"x{i}") for i, s in enumerate(open_specs)]

    def run(arguments: list[Tensor]) -> Any:
        args, named = tree.unflatten(structure, arguments)
        with converted_layers(layers), watching() as watch:
            result = rewritten(plain)(*args, **named)
            watch.check()
            return result

    def attempt(shared: bool) -> Captured:
        return capture(
            run, spec_types(open_specs, shared), label=label, names=names, known=known, tape=True
        )

    try:
        return attempt(False)
    except (ShapeMismatch, CaptureError) as e:
        if not isinstance(e, ShapeMismatch) and not isinstance(e.__cause__, ShapeMismatch):
            raise
        return attempt(True)


def _with_leaves(specs: Any) -> Any:
    """The nested arguments with a small tensor in place of every spec."""
    if isinstance(specs, InputSpec):
        from bireme.ops.creation import to_tensor

        return to_tensor(0)
    if isinstance(specs, list | tuple):
        return type(specs)([_with_leaves(s) for s in specs])
    if isinstance(specs, dict):
        return {k: _with_leaves(v) for k, v in specs.items()}
    return specs
