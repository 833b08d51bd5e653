"""`paddle.incubate.inference`: functions of layers, saved on their first call and run by a
predictor from then on."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import os
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bireme import inference as serving
from bireme.capture import tree
from bireme.core import place
from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor
from bireme.host import cache_folder
from bireme.io import atomic
from bireme.jit import artifact as artifacts
from bireme.jit import saving
from bireme.nn import Layer
from bireme.static import InputSpec

_INPUTS = "_inputs.txt"  # the ending of the file that says what a model was saved for
_PRECISIONS = {
    "float32": serving.PrecisionType.Float32,
    "float16": serving.PrecisionType.Half,
    "bfloat16": serving.PrecisionType.Bfloat16,
}


@dataclass(frozen=True)
class _Settings:
    """What the decorator was given."""

    cached: bool
    folder: str | None
    pool_mb: int
    precision: str
    optimize: bool
    debug: bool
    cinn: bool
    shapes: bool
    new_ir: bool
    without: tuple[str, ...]

    def config(self, path: str) -> serving.Config:
        made = serving.Config(path)
        made.switch_ir_optim(self.optimize)
        made.switch_ir_debug(self.debug)
        made.enable_new_ir(self.new_ir)
        made.set_optim_cache_dir(os.path.dirname(path))
        if self.cinn:
            made.enable_cinn()
        for name in self.without:
            made.delete_pass(name)
        if self.shapes:
            made.collect_shape_range_info(f"{path}_shapes.json")
        where, precision = place.default_place(), _PRECISIONS[self.precision]
        if where.is_gpu_place():
            made.enable_use_gpu(self.pool_mb, where.index, precision)
        else:
            made._set_precision(precision)
        return made


class _Flat(Layer):
    """A function of tensors alone, with the other arguments filled in."""

    def __init__(self, layer: Layer | None, function: Callable[..., Any], structure: Any):
        super().__init__()
        if layer is not None:
            self.inner = layer
        self._function, self._structure = function, structure

    def forward(self, *tensors: Tensor) -> Any:
        args, kwargs = tree.unflatten(self._structure, tensors)
        return self._function(*args, **kwargs)


class _Served:
    """One function, of one layer, and its predictors: one per kind of arguments."""

    def __init__(self, function: Callable[..., Any], layer: Layer | None, settings: _Settings):
        self._function, self._layer, self._settings = function, layer, settings
        self._signature = inspect.signature(function)
        self._met: dict[Any, tuple[list[list[int | None]], serving.Predictor]] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        tensors, structure = tree.flatten((list(bound.args), dict(bound.kwargs)))
        key = (repr(structure), *[(t.dtype.name, t.ndim) for t in tensors])
        shapes: list[list[int | None]] = [list(t.shape) for t in tensors]
        found = self._met.get(key)
        if found is None or not all(map(_fits, shapes, found[0])):
            if found is not None:  # a size that has changed stays open from now on
                shapes = [_open(a, b) for a, b in zip(shapes, found[0], strict=True)]
            found = self._met[key] = (shapes, self._predictor(key, shapes, tensors, structure))
        results = found[1].run(tensors)
        return results[0] if results is not None and len(results) == 1 else results

    def _predictor(
        self, key: Any, shapes: list[list[int | None]], tensors: list[Tensor], structure: Any
    ) -> serving.Predictor:
        path = self._path(key)
        described = {"arguments": list(map(str, key)), "shapes": shapes}
        if not (self._settings.cached and _written(path) == described):
            flat = _Flat(self._layer, self._function, structure)
            flat.eval()
            specs = [InputSpec(s, t.dtype) for s, t in zip(shapes, tensors, strict=True)]
            artifacts.write(
                saving.captured(flat, specs), path, {_INPUTS: json.dumps(described).encode()}
            )
        return serving.create_predictor(self._settings.config(path))

    def _path(self, key: Any) -> str:
        name = f"{self._function.__module__}.{self._function.__qualname__}"
        folder = self._settings.folder
        if folder is None:
            digest = hashlib.sha256(name.encode()).hexdigest()[:16]
            folder = cache_folder.inside("inference_models", digest)
            folder = folder or os.path.join(cache_folder.for_this_process(), digest)
        others = [k for k in self._met if k != key]
        number = hashlib.sha256(repr(key).encode()).hexdigest()[:8] if others else ""
        return os.path.join(folder, f"infer_{number}" if number else "infer")


def _fits(shape: list[int | None], known: list[int | None]) -> bool:
    return all(k is None or k == n for n, k in zip(shape, known, strict=True))


def _open(shape: list[int | None], known: list[int | None]) -> list[int | None]:
    return [n if n == k else None for n, k in zip(shape, known, strict=True)]


def _written(path: str) -> Any:
    """What the files at `path` were saved for; None if there are none."""
    try:
        with atomic.opened(path + _INPUTS) as file:
            return json.loads(file.read())
    except (OSError, ValueError):
        return None


def inference(
    function: Callable[..., Any] | Layer | None = None,
    cache_static_model: bool = False,
    save_model_dir: str | None = None,
    memory_pool_init_size_mb: int = 1000,
    precision_mode: str = "float32",
    switch_ir_optim: bool = True,
    switch_ir_debug: bool = False,
    enable_cinn: bool = False,
    with_trt: bool = False,
    trt_precision_mode: str = "float32",
    trt_use_static: bool = False,
    collect_shape: bool = False,
    enable_new_ir: bool = False,
    exp_enable_use_cutlass: bool = False,
    delete_pass_lists: Sequence[str] | None = None,
    skip_prune_program: bool = False,
) -> Any:
    """A layer, its method or a function whose calls are run by a predictor.

    layer = paddle.incubate.inference(layer, precision_mode="bfloat16")

    The first call saves a model (`jit.save`) into `save_model_dir`; with `cache_static_model` a
    later process loads it from there. A size that changes from call to call stays open. Results
    are a tensor, or a list of them. A saved model holds only what its results need.
    """
    if with_trt or trt_use_static or exp_enable_use_cutlass or trt_precision_mode != "float32":
        raise InvalidArgument(
            "[inference] TensorRT and CUTLASS are not part of Bireme: XLA compiles the whole model "
            "for every device. Leave the switches out"
        )
    if precision_mode not in _PRECISIONS:
        raise InvalidArgument(
            f"[inference] precision_mode is one of {', '.join(_PRECISIONS)}. Received: "
            f"{precision_mode!r}"
        )
    settings = _Settings(
        cache_static_model,
        save_model_dir,
        memory_pool_init_size_mb,
        precision_mode,
        switch_ir_optim,
        switch_ir_debug,
        enable_cinn,
        collect_shape,
        enable_new_ir,
        tuple(delete_pass_lists or ()),
    )

    def decorate(target: Any) -> Any:
        if isinstance(target, Layer):
            if not isinstance(target.forward, _Served):
                target.forward = _Served(target.forward, target, settings)
            return target
        if not callable(target):
            raise InvalidArgument(
                f"[inference] takes a Layer or a function. Received: {type(target).__name__}"
            )
        owner = getattr(target, "__self__", None)
        if isinstance(target, _Served) or getattr(target, "_is_served", False):
            return target
        if isinstance(owner, Layer) or function is not None:
            return _Served(target, owner if isinstance(owner, Layer) else None, settings)
        return _method(target, settings)

    return decorate if function is None else decorate(function)


def _method(target: Callable[..., Any], settings: _Settings) -> Callable[..., Any]:
    """A method that was decorated where its class defines it; each layer has its own models."""
    served: weakref.WeakKeyDictionary[Layer, _Served] = weakref.WeakKeyDictionary()

    @functools.wraps(target)
    def call(self: Layer, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(self, Layer):
            raise InvalidArgument(
                "[inference] as a decorator it is for methods of a Layer; call "
                f"inference(function) for others. Received: {type(self).__name__}"
            )
        if self not in served:
            bound = functools.partial(target, weakref.proxy(self))
            functools.update_wrapper(bound, target)
            bound.__signature__ = _without_first(target)  # pyright: ignore[reportAttributeAccessIssue]
            served[self] = _Served(bound, self, settings)
        return served[self](*args, **kwargs)

    call._is_served = True  # pyright: ignore[reportAttributeAccessIssue]
    return call


def _without_first(target: Callable[..., Any]) -> inspect.Signature:
    signature = inspect.signature(target)
    return signature.replace(parameters=list(signature.parameters.values())[1:])


__all__ = ["inference"]
