"""Engines that take the graph as ONNX: onnxruntime and OpenVINO."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from bireme.core.errors import BiremeError
from bireme.inference.config import Config
from bireme.inference.engines import Engine, EngineUnavailable, Runner
from bireme.inference.net import Prepared


def _onnx_model(prepared: Prepared) -> bytes:
    try:
        from bireme.convert.onnx.exporter import graph_to_onnx

        return graph_to_onnx(prepared.graph).SerializeToString()
    except (BiremeError, KeyError, ValueError) as e:
        raise EngineUnavailable(f"the model cannot be written as ONNX: {e}") from None


class OnnxRuntimeEngine(Engine):
    """The model exported to ONNX, in onnxruntime."""

    name = "onnxruntime"

    def __init__(self, prepared: Prepared, options: Config):
        try:
            ort: Any = import_module("onnxruntime")
        except ImportError:
            raise EngineUnavailable(
                "onnxruntime is not installed: pip install 'bireme[onnx]'"
            ) from None
        super().__init__(prepared, options)
        settings = ort.SessionOptions()
        settings.log_severity_level = 3
        settings.intra_op_num_threads = options.cpu_math_library_num_threads()
        model = _onnx_model(prepared)
        try:
            self._session = ort.InferenceSession(model, settings, ["CPUExecutionProvider"])
        except Exception as e:  # its errors share no base class
            raise EngineUnavailable(f"onnxruntime cannot load the model: {e}") from None
        self._names = [i.name for i in self._session.get_inputs()]

    def runner(self) -> Runner:
        return self._run

    def _run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        # Bound inputs and outputs are no faster: it reads our arrays and gives us its own.
        return self._session.run(None, dict(zip(self._names, arrays, strict=True)))


def _openvino() -> Any:
    """OpenVINO without its telemetry, which forks this process to report its use: a fork of a
    process with XLA's threads may never end. OpenVINO has a stand-in for where it is missing."""
    silent = "openvino" not in sys.modules and "openvino_telemetry" not in sys.modules
    if silent:
        sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]
    try:
        return import_module("openvino")
    finally:
        if silent:
            del sys.modules["openvino_telemetry"]


class OpenVinoEngine(Engine):
    """The model exported to ONNX, compiled by OpenVINO."""

    name = "openvino"

    def __init__(self, prepared: Prepared, options: Config):
        try:
            ov: Any = _openvino()
        except ImportError:
            raise EngineUnavailable(
                "openvino is not installed: pip install 'bireme[openvino]'"
            ) from None
        super().__init__(prepared, options)
        model = _onnx_model(prepared)
        settings: dict[str, Any] = {
            "INFERENCE_NUM_THREADS": options.cpu_math_library_num_threads(),
            "PERFORMANCE_HINT": "LATENCY",
        }
        if not options._precision:
            settings["INFERENCE_PRECISION_HINT"] = "f32"
        try:
            core = ov.Core()
            self._compiled = core.compile_model(core.read_model(model), "CPU", settings)
        except Exception as e:  # its errors are RuntimeErrors of many kinds
            raise EngineUnavailable(f"OpenVINO cannot load the model: {e}") from None

    def runner(self) -> Runner:
        return _Request(self._compiled.create_infer_request(), _openvino().Tensor)


class _Request:
    """A request of OpenVINO's. It reads inputs where they lie, and its results stay in it."""

    def __init__(self, request: Any, tensor: Any):
        self._request = request
        self._tensor = tensor
        self._places: list[Any] = [None] * len(request.input_tensors)

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        request = self._request
        arrays = [np.ascontiguousarray(a) for a in arrays]  # and alive until it is done
        for i, array in enumerate(arrays):
            place = (array.ctypes.data, array.shape, array.dtype)
            if self._places[i] != place:
                request.set_input_tensor(i, self._tensor(_there(array), shared_memory=True))
                self._places[i] = place
        request.infer()
        return [t.data for t in request.output_tensors]


def _there(array: np.ndarray) -> np.ndarray:
    """The same memory without a reference to the array: a handle writes into its array again while
    it is not referenced elsewhere, and this view then shows the new contents."""
    if not array.nbytes:
        return array
    memory: Any = (ctypes.c_char * array.nbytes).from_address(array.ctypes.data)
    return np.frombuffer(memory, np.uint8).view(array.dtype).reshape(array.shape)
