"""Choosing an engine by measurement, once per model, shape and machine."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
import time
from collections.abc import Sequence
from importlib import metadata
from typing import Any

import numpy as np

from bireme.core import config as settings
from bireme.core.errors import BiremeError
from bireme.inference.config import Config
from bireme.inference.engines import ENGINES, Engine, EngineUnavailable, create_engine
from bireme.inference.net import Prepared
from bireme.io.safetensors_file import replacing

REPEATS = 3
MAX_CHOICES = 1000
logger = logging.getLogger("bireme.inference")


def fastest(prepared: Prepared, options: Config, arrays: Sequence[np.ndarray]) -> Engine:
    """The engine that runs these inputs fastest here; the choice is remembered on disk."""
    path = os.path.join(options._cache_dir or settings.cache_dir or ".", "engines.json")
    key = _key(prepared, options, arrays)
    known = _read(path).get(key)
    if known in ENGINES:
        try:
            return create_engine(known, prepared, options, arrays)
        except EngineUnavailable:
            pass  # it was uninstalled since
    times: dict[str, float] = {}
    made: dict[str, Engine] = {}
    for name in ENGINES:
        try:
            engine = create_engine(name, prepared, options, arrays)
            times[name] = _measure(engine, arrays)
            made[name] = engine
        except (EngineUnavailable, BiremeError) as e:
            logger.debug("%s is out of the race: %s", name, e)
    best = min(times, key=lambda name: times[name])
    if not options.glog_info_disabled():
        shown = ", ".join(f"{n} {t * 1e3:.2f} ms" for n, t in times.items())
        logger.info("engine: %s (%s)", best, shown)
    _remember(path, key, best)
    return made[best]


def _measure(engine: Engine, arrays: Sequence[np.ndarray]) -> float:
    engine.run(arrays)  # compiles
    best = float("inf")
    for _ in range(REPEATS):
        start = time.perf_counter()
        engine.run(arrays)
        best = min(best, time.perf_counter() - start)
    return best


def _key(prepared: Prepared, options: Config, arrays: Sequence[np.ndarray]) -> str:
    """The graph, the inputs' shapes, the machine, and every engine's version."""
    versions = {n: _version(n) for n in ("bireme", "jaxlib", "onnxruntime", "openvino")}
    parts: list[Any] = [
        str(prepared.graph), [list(a.shape) for a in arrays], options._threads,
        options._precision.name, str(options._place), platform.processor(), platform.node(),
        os.cpu_count(), versions,
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _read(path: str) -> dict[str, str]:
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _remember(path: str, key: str, name: str) -> None:
    choices = {**_read(path), key: name}
    while len(choices) > MAX_CHOICES:
        choices.pop(next(iter(choices)))
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with replacing(path) as file:
            file.write(json.dumps(choices, indent=1).encode())
    except OSError as e:
        logger.debug("the choice of an engine is not remembered: %s", e)
