"""convert_to_mixed_precision: a copy of a saved model in float16 or bfloat16."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Any

from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.inference.config import Config
from bireme.inference.kinds import PlaceType, PrecisionType
from bireme.inference.net import Net, save_prepared

_ENDINGS = (".pdmodel", ".json", ".pdiparams", ".safetensors")


def convert_to_mixed_precision(
    model_file: str,
    params_file: str,
    mixed_model_file: str,
    mixed_params_file: str,
    mixed_precision: PrecisionType,
    backend: PlaceType,
    keep_io_types: bool = True,
    black_list: Collection[str] = frozenset(),
    **kwargs: Any,
) -> None:
    """Read a model and write it in Half or Bfloat16, weights and all.

    Norms, softmax and sums stay in float32, and so do the ops in `black_list`, less those in
    `white_list=`; with `keep_io_types` inputs and results too. The files are those of `jit.save`,
    a `.json` and a `.safetensors` side by side whatever the endings, and run on every device:
    `backend` is where Paddle would run them.
    """
    unknown = sorted(set(kwargs) - {"white_list"})
    if unknown:
        raise InvalidArgument(f"[convert_to_mixed_precision] does not know {unknown[0]!r}")
    if not isinstance(backend, PlaceType):
        raise TypeMismatch(
            f"[convert_to_mixed_precision] backend is a PlaceType. Received: {backend!r}"
        )
    stem = _stem(mixed_model_file)
    if _stem(mixed_params_file) != stem:
        raise InvalidArgument(
            "[convert_to_mixed_precision] the program and the weights lie side by side under one "
            f"name. Received: {mixed_model_file!r} and {mixed_params_file!r}"
        )
    config = Config(model_file, params_file)
    config._set_precision(mixed_precision)
    config.exp_disable_mixed_precision_ops(set(black_list))
    config.exp_enable_mixed_precision_ops(set(kwargs.get("white_list", ())))
    config.enable_low_precision_io(not keep_io_types)
    net = Net(config)
    if os.path.dirname(stem):
        os.makedirs(os.path.dirname(stem), exist_ok=True)
    save_prepared(net.prepared(net.types), net, stem)


def _stem(path: str) -> str:
    name = os.fspath(path)
    for ending in _ENDINGS:
        name = name.removesuffix(ending)
    return name
