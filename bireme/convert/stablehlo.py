"""Models as StableHLO: the portable form of what XLA compiles.

    convert.stablehlo.export(layer, "model", [InputSpec([None, 3, 224, 224])])
    run = convert.stablehlo.load("model.stablehlo")
    logits = run(image)

The file is self-contained (weights included) and runs wherever JAX does, without Bireme:
`jax.export.deserialize(open("model.stablehlo", "rb").read()).call(image)`. `text` gives the program
for other tools that read StableHLO.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.capture.capture import Captured
from bireme.capture.graph_op import GraphOp, TypedGraph
from bireme.convert.onnx.writer import MissingPackage
from bireme.core.errors import FileFormatError, InvalidArgument
from bireme.core.tensor import Tensor, constant
from bireme.host import jax_door
from bireme.io.atomic import replacing
from bireme.io.foreign import read_whole
from bireme.jit.saving import in_mode, resolve
from bireme.jit.static_function import capture_with_specs

if TYPE_CHECKING:
    from bireme.nn.layer.layer import Layer


PLATFORMS = ("cpu", "cuda", "tpu")
_ENDING = ".stablehlo"


def export(
    layer: Layer | Callable[..., Any],
    path: str | os.PathLike[str],
    input_spec: Sequence[Any] | None = None,
    platforms: Sequence[str] = PLATFORMS,
) -> str:
    """Write a layer (in eval mode), function or model of jit.load as `path.stablehlo`; returns the
    file's name. Sizes that `input_spec` leaves open (None) stay open."""
    try:
        data = exported(layer, input_spec, platforms).serialize()
    except ImportError as e:
        raise MissingPackage(
            f"StableHLO files need the package 'flatbuffers': pip install 'bireme[stablehlo]' ({e})"
        ) from None
    target = os.fspath(path).removesuffix(_ENDING) + _ENDING
    with replacing(target) as file:
        file.write(bytes(data))
    return target


def text(layer: Layer | Callable[..., Any], input_spec: Sequence[Any] | None = None) -> str:
    """The program as readable StableHLO."""
    return exported(layer, input_spec, PLATFORMS[:1]).mlir_module()


def exported(
    layer: Layer | Callable[..., Any], input_spec: Sequence[Any] | None, platforms: Sequence[str]
) -> Any:
    """The `jax.export.Exported` of a layer or function."""
    if input_spec is None and hasattr(layer, "saved_program"):
        saved: Any = layer
        program = saved.saved_program()
        from bireme.static import InputSpec

        input_spec = [
            InputSpec([d if type(d) is int else str(d) for d in t.shape], t.dtype.name, name)
            for name, t in zip(program.arguments, program.types, strict=True)
        ]
    function, owner, specs = resolve(layer, input_spec)
    if owner is None:
        captured = capture_with_specs(function, specs)
    else:
        with in_mode(owner, training=False):
            captured = capture_with_specs(function, specs, layer=owner)
    return _export(captured, platforms)


def _export(captured: Captured, platforms: Sequence[str]) -> Any:
    jax = jax_door.jax()
    op: GraphOp = captured.op
    graph = op.graph
    if graph.keys:
        raise InvalidArgument(
            "a model that draws random numbers cannot be exported: call eval() first, or pass the "
            "numbers as inputs"
        )
    weights = [np.asarray(t._array()) for t in captured.outer]
    count = len(op.given) - len(weights)
    typed = TypedGraph(graph)
    results = len(captured.tracked)

    def run(*arguments: Any) -> Any:
        given = [*arguments, *[jax.numpy.asarray(w) for w in weights]]
        return op.interpret(jax.numpy, typed, given, [])[:results]

    specs = [jax.ShapeDtypeStruct(t.shape, t.dtype.numpy) for t in op.declared[:count]]
    return jax.export.export(jax.jit(run), platforms=tuple(platforms))(*specs)


def load(path: str | os.PathLike[str]) -> Callable[..., Any]:
    """A file of `export` as a function of tensors."""
    data = read_whole(path, "stablehlo.load")
    jax = jax_door.jax()
    try:
        found = jax.export.deserialize(bytearray(data))
    except Exception as e:  # the reader raises whatever its parser meets
        raise FileFormatError(f"{os.fspath(path)!r} is not a StableHLO export: {e}") from None

    def run(*inputs: Any) -> Any:
        arrays = [i._array() if isinstance(i, Tensor) else np.asarray(i) for i in inputs]
        made = [constant(np.asarray(o)) for o in found.call(*arrays)]
        return made[0] if len(made) == 1 else made

    return run


__all__ = ["export", "load", "text"]
