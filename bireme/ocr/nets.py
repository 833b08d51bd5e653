"""A net as a function from one array to one array, for any number of threads."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass

import numpy as np

from bireme import inference
from bireme.core.errors import BiremeError
from bireme.ocr.errors import OcrError

TILE = 32  # pixels: a side of a detector's input is a multiple


@dataclass(frozen=True, slots=True)
class Running:
    """Where nets run: the engine (see `inference.Config.set_engine`) and the device."""

    engine: str = "xla"
    device: str | None = None


def _threads() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


class Net:
    """A model's files, ready to run. Every thread has handles of its own; weights and compiled
    programs are shared."""

    def __init__(self, files: tuple[str, ...], running: Running, programs: int, tiled: bool):
        self.name = files[0]
        try:
            config = inference.Config(*files)
            config.set_engine(running.engine)
            config.set_mkldnn_cache_capacity(programs)
            if running.engine != "xla":
                config.set_cpu_math_library_num_threads(_threads())
            config.disable_glog_info()
            _choose_device(config, running.device)
            self._first = inference.create_predictor(config)
        except BiremeError as e:
            raise OcrError(self.name, str(e)) from None
        self._source = self._first.get_input_names()[0]
        self._result = self._first.get_output_names()[0]
        # A detector of ours takes its image as tiles: sizes of 32 h by 32 w, h and w open.
        self._tiled = tiled
        self._mine = threading.local()

    def __call__(self, x: np.ndarray) -> np.ndarray:
        predictor = getattr(self._mine, "predictor", None)
        if predictor is None:
            predictor = self._mine.predictor = self._first.clone()
        if self._tiled:
            n, c, h, w = x.shape
            x = x.reshape(n, c, h // TILE, TILE, w // TILE, TILE)
        predictor.get_input_handle(self._source).share_external_data(x)
        predictor.run()
        result = predictor.get_output_handle(self._result).copy_to_cpu()
        predictor.clear_intermediate_tensor()
        return result


def _choose_device(config: inference.Config, device: str | None) -> None:
    from bireme.device import get_device

    kind, _, index = (device or get_device()).partition(":")
    if kind in ("gpu", "cuda"):
        config.enable_use_gpu(0, int(index or 0))
    elif kind != "cpu":
        config.enable_custom_device(kind, int(index or 0))
