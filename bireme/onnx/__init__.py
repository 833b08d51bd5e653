"""Models to and from ONNX."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from bireme.core.errors import InvalidArgument

if TYPE_CHECKING:
    from onnx import ModelProto

    from bireme.convert.onnx.layer import OnnxLayer
    from bireme.nn.layer.layer import Layer


def export(
    layer: Layer | Callable[..., Any],
    path: str,
    input_spec: Sequence[Any] | None = None,
    opset_version: int = 17,
) -> str:
    """Write a layer (in eval mode) or function as `path.onnx`; returns the file's name.

    Sizes that `input_spec` leaves open (None) become dynamic axes.
    """
    from bireme.convert.onnx import to_onnx
    from bireme.io.atomic import replacing
    from bireme.jit.saving import in_mode, resolve
    from bireme.jit.static_function import capture_with_specs

    if not isinstance(path, str | os.PathLike) or not os.path.basename(os.fspath(path)):
        raise InvalidArgument(f"path must be a file name without ending. Received: {path!r}")
    function, owner, specs = resolve(layer, input_spec)
    if owner is None:
        captured = capture_with_specs(function, specs)
    else:
        with in_mode(owner, training=False):
            captured = capture_with_specs(function, specs, layer=owner)
    model = to_onnx(captured, opset_version)
    target = os.fspath(path).removesuffix(".onnx") + ".onnx"
    with replacing(target) as file:
        file.write(model.SerializeToString())
    return target


def load(source: str | PathLike[str] | bytes | ModelProto) -> OnnxLayer:
    """An ONNX model as a Layer, from a file name, the bytes of a file or an `onnx.ModelProto`.

        model = paddle.onnx.load("model.onnx")
        logits = model(paddle.to_tensor(image))

    Its floating-point weights are parameters; `model.input_names` says what it takes.
    """
    from bireme.convert.onnx.layer import OnnxLayer

    return OnnxLayer(source)


__all__ = ["export", "load"]
