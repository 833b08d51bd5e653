"""Operators of a library as Bireme ops: typed, recorded, differentiable, in both tiers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from bireme.core import dims, views
from bireme.core import dtype as dt
from bireme.core.aval import Aval, NumberType, aval
from bireme.core.errors import AutogradError, ExecutionError, InvalidArgument, ShapeMismatch
from bireme.host import jax_door
from bireme.utils.cpp_extension.library import (
    Library,
    Stage,
    encode_attribute,
    encode_spec,
    fixed,
    parse_attribute,
    type_number,
)
from bireme.utils.custom_op import define

_RESERVED = {"out", "types", "needs", "name", "xp"}  # words of gradient rules and of every op
_GRAD, _NEW = "@GRAD", "@NEW"
_PROBES = (10007, 20011)  # sizes that stand for open ones; far from what sources write


class CustomOp:
    """One operator with its gradients."""

    def __init__(self, library: Library, stages: list[Stage]):
        self.library = library
        self.stages = stages
        self.forward = stages[0]
        self.name = self.forward.name
        self.attributes = dict(parse_attribute(a) for a in self.forward.attributes)
        self.argument = {n: n.split("@")[0].lower() for n in self.forward.inputs}
        self.inferred: dict[Any, list[Any]] = {}
        self._check()

    def _check(self) -> None:
        names = [*self.argument.values(), *(a.lower() for a in self.attributes)]
        bad = sorted(n for n in names if n in _RESERVED or not n.isidentifier())
        if bad or len(set(names)) != len(names):
            raise InvalidArgument(
                f"[cpp_extension] {self.name}: the parameters {names} must be different names, "
                f"none of them {', '.join(sorted(_RESERVED))}"
            )
        for below, stage in zip(self.stages, self.stages[1:], strict=False):
            known = {*below.inputs, *below.outputs, *(o + _GRAD for o in below.outputs)}
            for n in stage.inputs:
                if n not in known:
                    raise InvalidArgument(
                        f"[cpp_extension] the gradient of {self.name} takes {n!r}, which its "
                        f"operator does not have. Known: {', '.join(sorted(known))}"
                    )
            for n in stage.outputs:
                if _of(n) not in below.inputs:
                    raise InvalidArgument(
                        f"[cpp_extension] the gradient of {self.name} gives {n!r}, which is the "
                        f"gradient of none of its inputs {below.inputs}"
                    )

    # --- types ------------------------------------------------------------------------------

    def infer(self, *given: Any, **attrs: Any) -> Any:
        """The results' types: an Aval, or a list of them."""
        outs = [t for o in self.result_types(given, attrs) for t in _listed(o)]
        single = len(self.forward.outputs) == 1 and not _is_list(self.forward.outputs[0])
        return outs[0] if single else tuple(outs)

    def result_types(self, given: Sequence[Any], attrs: dict[str, Any]) -> list[Any]:
        """Per declared result its type, or a list of types."""
        types = [tuple(g) if isinstance(g, list) else g for g in given]
        key = (*types, *attrs.values())
        found = self.inferred.get(key)
        if found is None:
            found = self.inferred[key] = self._infer(types, attrs)
        return found

    def _infer(self, given: Sequence[Any], attrs: dict[str, Any]) -> list[Any]:
        forward = self.forward
        of_input = dict(zip(forward.inputs, given, strict=True))
        in_place = {out: of_input[inp] for inp, out in forward.in_place.items()}
        free = [o for o in forward.outputs if o not in in_place]
        flat = [t for g in given for t in _listed(g)]
        for t in flat:
            type_number(t.dtype)
        spec = self._spec(forward, given, in_place.values(), attrs)
        shapes, kinds = self._probed(spec, flat)
        if free and (shapes is None or kinds is None):
            if len(free) != 1 or len(flat) != 1 or _is_list(free[0]):
                what = "SetInferShapeFn" if shapes is None else "SetInferDtypeFn"
                raise InvalidArgument(
                    f"an operator with {len(flat)} inputs and the results {forward.outputs} must "
                    f"say what its results are: give PD_BUILD_OP a {what}"
                )
            shapes = [flat[0].shape] if shapes is None else shapes
            kinds = [flat[0].dtype] if kinds is None else kinds
        made = [] if not free else _aligned(shapes or [], kinds or [], free)
        at = 0
        results: list[Any] = []
        for o in forward.outputs:
            if o in in_place:
                t = in_place[o]
                results.append(list(t) if isinstance(t, tuple) else t)
            elif _is_list(o):
                count = len(made) - len(free) + 1
                results.append(made[at : at + count])
                at += count
            else:
                results.append(made[at])
                at += 1
        return results

    def _probed(self, spec: bytes, flat: list[Any]) -> tuple[Any, Any]:
        """Shapes and types from C++, which knows whole numbers only: open sizes are tried as two
        numbers each, and recognised in the answers."""
        symbols: dict[Any, int] = {}
        for t in flat:
            for d in t.shape:
                if dims.is_dim_expression(d):
                    symbols.setdefault(d, len(symbols))
        answers = []
        for base in _PROBES[: 2 if symbols else 1]:
            stand_ins = {d: base + 2 * i for d, i in symbols.items()}
            tried = [(tuple(stand_ins.get(d, d) for d in t.shape), t.dtype) for t in flat]
            answers.append((*self.library.infer(spec, tried), {v: d for d, v in stand_ins.items()}))
        shapes, kinds, names = answers[0]
        if not symbols or shapes is None:
            return shapes, kinds
        again, _, other = answers[1]
        opened = []
        for one, two in zip(shapes, again, strict=True):
            sizes = []
            for a, b in zip(one, two, strict=True):
                symbol = names.get(a, a)
                if symbol != other.get(b, b):
                    raise ShapeMismatch(
                        "SetInferShapeFn computes a size from an open one, which a captured graph "
                        "cannot follow. Give the InputSpec a fixed size"
                    )
                sizes.append(symbol)
            opened.append(tuple(sizes))
        return opened, kinds

    # --- running ----------------------------------------------------------------------------

    def body(self, xp: ModuleType, *given: Any, **attrs: Any) -> Any:
        """The lowering of the operator itself."""
        types = [_types_of(g) for g in given]
        outs = self.result_types(types, attrs)
        values = dict(zip(self.forward.inputs, given, strict=True))
        made = self._run(xp, 0, values, outs, attrs)
        flat = [a for m in made for a in _listed(m)]
        single = len(self.forward.outputs) == 1 and not _is_list(self.forward.outputs[0])
        return flat[0] if single else tuple(flat)

    def _run(
        self,
        xp: ModuleType,
        number: int,
        values: dict[str, Any],
        outs: Sequence[Any],
        attrs: dict[str, Any],
    ) -> list[Any]:
        """Run a stage; one result (or list) per declared one."""
        stage = self.stages[number]
        given = [values[n] for n in stage.inputs]
        spec = self._spec(stage, given, outs, attrs)
        flat = [a for g in given for a in _listed(g)]
        types = [t for o in outs for t in _listed(o)]
        if xp is np:
            try:
                made = self.library.run(spec, [np.asarray(a) for a in flat], types)
            except ExecutionError as e:
                raise ExecutionError(f"[{self.name}] {e}") from None
            return _grouped(made, outs)
        layouts = [_layout(g) for g in given]

        def plain(*arrays: Any) -> list[Any]:
            return self.library.call(spec, arrays, types)

        def forward(*arrays: Any) -> Any:
            made = plain(*arrays)
            return made, (arrays, made)

        def backward(kept: Any, grads: Any) -> tuple[Any, ...]:
            arrays, made = kept
            inputs = dict(zip(stage.inputs, _split(arrays, layouts), strict=True))
            results = dict(zip(stage.outputs, _grouped(made, outs), strict=True))
            pulled = dict(zip(stage.outputs, _grouped(grads, outs), strict=True))
            found = self.pull(xp, number, inputs, results, pulled, attrs)
            return tuple(_spread(found, layouts))

        function = jax_door.jax().custom_vjp(plain)
        function.defvjp(forward, backward)
        return _grouped(function(*[xp.asarray(a) for a in flat]), outs)

    def pull(
        self,
        xp: ModuleType,
        number: int,
        inputs: dict[str, Any],
        results: dict[str, Any],
        grads: dict[str, Any],
        attrs: dict[str, Any],
        types: dict[str, Any] | None = None,
    ) -> list[Any]:
        """The gradients of a stage's inputs by the stage after it; None where it gives none."""
        if number + 1 >= len(self.stages):
            macro = ("PD_BUILD_GRAD_OP", "PD_BUILD_DOUBLE_GRAD_OP")[min(number, 1)]
            raise AutogradError(
                f"[{self.name}] a derivative of this order is not defined: the source has no "
                f"{macro}({self.name})"
                + ("" if number < 2 else ", and no higher one can be declared")
            )
        stage = self.stages[number + 1]
        values = {**inputs, **results, **{n + _GRAD: g for n, g in grads.items()}}
        wanted = [_of(n) for n in stage.outputs]
        known = types or {n: _types_of(v) for n, v in inputs.items()}
        outs = [_unwrapped(known[n]) for n in wanted]
        made = dict(zip(wanted, self._run(xp, number + 1, values, outs, attrs), strict=True))
        return [made.get(n) for n in self.stages[number].inputs]

    def rule(self, xp: ModuleType, grad: Any, /, **named: Any) -> tuple[Any, ...]:
        """The op's gradient rule, as the engine calls it."""
        forward = self.forward
        attrs = {a: named[a.lower()] for a in self.attributes if a.lower() in named}
        types = dict(zip(forward.inputs, named["types"], strict=True))
        outs = self.result_types(list(types.values()), {k: attrs[k] for k in self.attributes})
        single = len(forward.outputs) == 1 and not _is_list(forward.outputs[0])
        flat = (grad,) if single else grad
        grads = dict(zip(forward.outputs, _grouped(list(flat), outs), strict=True))
        inputs = {n: named[a] for n, a in self.argument.items() if a in named}
        results: dict[str, Any] = {}
        if "out" in named:
            kept = (named["out"],) if single else named["out"]
            results = dict(zip(forward.outputs, _grouped(list(kept), outs), strict=True))
        return tuple(self.pull(xp, 0, inputs, results, grads, attrs, types))

    def _spec(self, stage: Stage, inputs: Sequence[Any], outs: Any, attrs: dict[str, Any]) -> bytes:
        texts = []
        for declared in stage.attributes:
            name, kind = parse_attribute(declared)
            if name not in attrs:
                raise InvalidArgument(f"attribute '{name}' is not one of {self.name}'s")
            texts.append(encode_attribute(name, kind, attrs[name]))
        return encode_spec(stage, [_layout(g) for g in inputs], [_layout(o) for o in outs], texts)

    # --- the op -----------------------------------------------------------------------------

    def function(self) -> Callable[..., Any]:
        """The eager function; the op is entered into the table under the operator's name."""
        inputs = [("*" if _is_list(n) else "") + a for n, a in self.argument.items()]
        eager: Any = define(
            _with_signature(
                self._lowering, [*self.argument.values(), *(a.lower() for a in self.attributes)]
            ),
            self.name,
            inputs=inputs,
            infer=lambda *types, **attrs: self.infer(*types, **self._named(attrs)),
            vjp=self._gradient_rule(),
            differentiable=len(self.stages) > 1,
            fallible=True,
        )
        eager.op.required = frozenset(
            a for n, a in self.argument.items() if "@OPTIONAL" not in n and not _is_list(n)
        )
        eager.__doc__ = f"{self.name}, from {self.library.path.name}."
        return self._in_place(eager) if self.forward.in_place else eager

    def _named(self, attrs: dict[str, Any]) -> dict[str, Any]:
        return {a: attrs[a.lower()] for a in self.attributes}

    def _lowering(self, xp: ModuleType, *given: Any, **attrs: Any) -> Any:
        return self.body(xp, *given, **self._named(attrs))

    def _gradient_rule(self) -> Callable[..., Any] | None:
        if len(self.stages) < 2:
            return None
        wanted = self.stages[1].inputs
        names = [self.argument[n] for n in self.forward.inputs if n in wanted]
        names += ["out"] if any(n in wanted for n in self.forward.outputs) else []
        names += [*(a.lower() for a in self.attributes), "types"]
        return _with_signature(self.rule, ["grad_", *names])

    def _in_place(self, eager: Callable[..., Any]) -> Callable[..., Any]:
        """The op, then its results put into the inputs that they replace."""
        position = {o: i for i, o in enumerate(self.forward.outputs)}
        pairs = [
            (list(self.forward.inputs).index(i), position[o])
            for i, o in self.forward.in_place.items()
        ]
        parameters = inspect.signature(eager)

        def function(*args: Any, **kwargs: Any) -> Any:
            given = list(parameters.bind(*args, **kwargs).arguments.values())
            types = [_unwrapped_types(g) for g in given[: len(self.forward.inputs)]]
            made = eager(*args, **kwargs)
            attrs = dict(zip(self.attributes, given[len(self.forward.inputs) :], strict=False))
            outs = self.result_types(types, {k: _hashable(v) for k, v in attrs.items()})
            flat = list(made) if isinstance(made, list | tuple) else [made]
            groups = _grouped(flat, outs)
            for source, result in pairs:
                if given[source] is None:
                    continue
                targets, news = _listed(given[source]), _listed(groups[result])
                for t, new in zip(targets, news, strict=True):
                    views.assign(t, new, self.name)
                groups[result] = given[source]
            flat = [t for g in groups for t in _listed(g)]
            return flat if isinstance(made, list | tuple) else flat[0]

        function.__name__ = function.__qualname__ = self.name
        function.__signature__ = parameters
        function.op = eager.op  # pyright: ignore[reportFunctionMemberAccess]
        return function


def _of(gradient: str) -> str:
    """The name of what this is the gradient of."""
    return gradient.removesuffix(_NEW).removesuffix(_GRAD)


def _is_list(name: str) -> bool:
    return "@VECTOR" in name


def _listed(x: Any) -> list[Any]:
    if x is None:
        return []
    return list(x) if isinstance(x, list | tuple) else [x]


def _layout(x: Any) -> int:
    if x is None:
        return -2
    return len(x) if isinstance(x, list | tuple) else -1


def _split(flat: Sequence[Any], layouts: Sequence[int]) -> list[Any]:
    rest = iter(flat)
    return [
        None if n == -2 else (next(rest) if n == -1 else [next(rest) for _ in range(n)])
        for n in layouts
    ]


def _grouped(flat: Sequence[Any], like: Sequence[Any]) -> list[Any]:
    return _split(flat, [_layout(x) for x in like])


def _spread(found: Sequence[Any], layouts: Sequence[int]) -> list[Any]:
    flat: list[Any] = []
    for value, n in zip(found, layouts, strict=True):
        if n == -1:
            flat.append(value)
        elif n >= 0:
            flat += [None] * n if value is None else list(value)
    return flat


def _types_of(x: Any) -> Any:
    if x is None:
        return None
    if isinstance(x, list | tuple):
        return tuple(_types_of(i) for i in x)
    return aval(tuple(x.shape), dt.as_dtype(x.dtype))


def _unwrapped(t: Any) -> Any:
    """A type as C++ sees it: a Python number is a tensor without dimensions."""
    if isinstance(t, list | tuple):
        return [_unwrapped(i) for i in t]
    return aval((), t.dtype) if isinstance(t, NumberType) else t


def _unwrapped_types(x: Any) -> Any:
    return (
        tuple(i._value.aval for i in x)
        if isinstance(x, list | tuple)
        else (None if x is None else x._value.aval)
    )


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _aligned(shapes: list[Any], kinds: list[Any], free: list[str]) -> list[Aval]:
    if len(shapes) != len(kinds) or (
        len(shapes) != len(free) and sum(_is_list(o) for o in free) != 1
    ):
        raise ShapeMismatch(
            f"the results {free} got {len(shapes)} shapes and {len(kinds)} types from "
            "SetInferShapeFn and SetInferDtypeFn"
        )
    return [fixed(s, k) for s, k in zip(shapes, kinds, strict=True)]


def _with_signature(function: Callable[..., Any], names: list[str]) -> Callable[..., Any]:
    """The same function for those who look at its parameters: one without a name, then these."""

    def called(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    called.__signature__ = inspect.Signature([inspect.Parameter(n, kind) for n in ("xp", *names)])
    return called
