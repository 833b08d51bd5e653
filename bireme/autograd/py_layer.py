"""PyLayer: a forward and a backward written by the user."""

from __future__ import annotations

from typing import Any

from bireme.autograd.saved_tensors import Packed, pack
from bireme.core import autograd as engine
from bireme.core.errors import AutogradError, InvalidArgument, TypeMismatch
from bireme.core.tensor import Tensor, alias
from bireme.core.trace import Trace, state


class PyLayerContext:
    """Carries what `backward` needs from `forward`."""

    def __init__(self) -> None:
        self._saved: tuple[Any, ...] = ()
        self._versions: tuple[Any, ...] = ()
        self.not_inplace_tensors: tuple[Any, ...] = ()
        self._non_differentiable: set[int] = set()
        self._materialize = True
        self._same_dtype = True

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep tensors for `backward`; read them there with `saved_tensor()`."""
        self._saved = tuple([pack(t) if isinstance(t, Tensor) else t for t in tensors])
        self._versions = tuple(t._value if isinstance(t, Tensor) else None for t in self._saved)

    def saved_tensor(self) -> tuple[Any, ...]:
        if any(isinstance(t, Packed) for t in self._saved):
            return tuple([t.open() if isinstance(t, Packed) else t for t in self._saved])
        for t, value in zip(self._saved, self._versions, strict=True):
            if value is not None and t._value is not value:
                raise AutogradError(
                    "[PyLayer] a saved tensor was changed in place after save_for_backward(); "
                    "save a clone() of it"
                )
        return self._saved

    def mark_not_inplace(self, *tensors: Tensor) -> None:
        self.not_inplace_tensors = tensors

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        self._non_differentiable.update(id(t) for t in tensors)

    def set_materialize_grads(self, value: bool) -> None:
        """False: gradients of unused results arrive as None instead of zeros."""
        self._materialize = value

    def set_grad_in_dtype_consistent(self, flag: bool) -> None:
        """False: gradients arrive in the dtype that a PyLayer behind gave them, not in that of
        the results of `forward`."""
        self._same_dtype = flag


class _UserNode:
    """An autograd node whose rule is the user's `backward`."""

    __slots__ = ("context", "edges", "hooks", "layer", "outputs", "own", "saved", "types")

    def __init__(
        self,
        layer: type[PyLayer],
        context: PyLayerContext,
        edges: tuple[Any, ...],
        types: tuple[Any, ...],
    ):
        self.layer = layer
        self.context = context
        self.edges = edges
        self.types = types
        self.outputs: list[Any] = []
        self.hooks: dict[int, list[Any]] | None = None
        self.saved: Any = ()
        self.own = None

    @property
    def name(self) -> str:
        return self.layer.__name__

    @property
    def result_count(self) -> int:
        return len(self.outputs)

    @property
    def released(self) -> bool:
        return self.saved is None

    def release(self) -> None:
        self.saved = None
        self.edges = ()
        self.context._saved = ()
        self.context._versions = ()

    def apply(self, grads: list[Any], create_graph: bool) -> list[Any]:
        if self.saved is None:
            raise AutogradError(engine._twice(self.name))
        if self.context._materialize:
            grads = [
                _zeros(a) if g is None else g for g, a in zip(grads, self.outputs, strict=True)
            ]
        if self.context._same_dtype:
            grads = [_cast(g, a) for g, a in zip(grads, self.outputs, strict=True)]
        given = self.layer.backward(self.context, *grads)
        result = list(given) if isinstance(given, list | tuple) else [given]
        if len(result) != len(self.edges):
            raise InvalidArgument(
                f"[{self.name}.backward] must return one gradient per tensor input of forward: "
                f"{len(self.edges)}. Received: {len(result)}"
            )
        for r in result:
            if r is not None and not isinstance(r, Tensor):
                raise TypeMismatch(
                    f"[{self.name}.backward] must return Tensors or None. Received: "
                    f"{type(r).__name__}"
                )
        return [
            # Another PyLayer casts what it gets itself, or says that it must not be cast.
            None if e is None else r if _is_user(e) else _cast(r, a)
            for r, e, a in zip(result, self.edges, self.types, strict=True)
        ]


def _is_user(edge: Any) -> bool:
    return isinstance(edge, engine.Output) and isinstance(edge.node, _UserNode)


def _cast(grad: Tensor | None, aval: Any) -> Tensor | None:
    if grad is None or grad._value.aval.dtype is aval.dtype:
        return grad
    return grad.astype(aval.dtype)


def _zeros(aval: Any) -> Tensor:
    import numpy as np

    from bireme.core.tensor import constant

    return constant(np.zeros(aval.shape, aval.dtype.numpy))


class PyLayer:
    """Subclass with static methods `forward(ctx, …)` and `backward(ctx, *grads)`."""

    @staticmethod
    def forward(ctx: PyLayerContext, *args: Any, **kwargs: Any) -> Any:
        """Compute the results from the arguments of `apply`."""
        raise NotImplementedError("a PyLayer must define forward(ctx, ...)")

    @staticmethod
    def backward(ctx: PyLayerContext, *grads: Any) -> Any:
        """One gradient per tensor argument of `forward`, from one per result."""
        raise NotImplementedError("a PyLayer must define backward(ctx, *grads)")

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run `forward` and connect `backward` to the autograd graph."""
        context = PyLayerContext()
        inputs = [a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)]
        tape = state.trace.tape
        edges = tuple(t._node if tape else None for t in inputs)
        types = tuple(t._value.aval for t in inputs)
        try:
            state.trace.tape = False
            results = cls.forward(context, *args, **kwargs)
        finally:
            state.trace.tape = tape
        many = isinstance(results, list | tuple)
        outs = list(results) if many else [results]
        if not any(isinstance(out, Tensor) for out in outs):
            raise InvalidArgument(
                f"[{cls.__name__}.forward] must return a Tensor, or a list or tuple with at least "
                f"one. Received: {results!r:.200}"
            )
        if not tape or all(e is None for e in edges):
            return results
        node = _UserNode(cls, context, edges, types)
        state.trace.own_rule(f"the PyLayer {cls.__name__}")
        made: list[Any] = []
        for out in outs:
            if not isinstance(out, Tensor):
                made.append(out)
                continue
            index = len(node.outputs)
            node.outputs.append(out._value.aval)
            free = id(out) in context._non_differentiable
            if any(out is t for t in inputs):
                inplace = not any(out is t for t in context.not_inplace_tensors)
                eager = state.trace.__class__ is Trace
                if inplace and eager and isinstance(out._node, engine.LeafNode):
                    raise InvalidArgument(
                        f"[{cls.__name__}.forward] returns a leaf tensor with stop_gradient=False "
                        "that it was given, which would be an in-place change of it; return "
                        "x.clone(), or call ctx.mark_not_inplace(x)"
                    )
                out = alias(out)
            out._node = None if free else engine.Output(node, index)
            made.append(out)
        return type(results)(made) if many else made[0]
