"""One peer of `bench infer` in its own process; see worker.py for the way it is spoken to."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from bench import infer_models
from bench.processes import THREADS
from bench.worker import answer

Run = Callable[[], list[np.ndarray]]


def _predictor_run(predictor: Any, tensor: Any) -> Run:
    """The same calls for Bireme's and Paddle's predictors. Inputs are shared, not copied: the
    others read the caller's array where it lies, too."""
    source = predictor.get_input_handle(predictor.get_input_names()[0])
    results = [predictor.get_output_handle(n) for n in predictor.get_output_names()]

    def run() -> list[np.ndarray]:
        source.share_external_data(tensor)
        predictor.run()
        return [r.copy_to_cpu() for r in results]

    return run


def _bireme(engine: str) -> Callable[[str, np.ndarray], Run]:
    def make(model: str, array: np.ndarray) -> Run:
        from bireme import device, inference

        device.tune_process(tracebacks=False)  # as `bireme run` does
        config = inference.Config(*infer_models.bireme_files(model))
        config.set_cpu_math_library_num_threads(THREADS)
        config.set_engine(engine)
        return _predictor_run(inference.create_predictor(config), array)

    return make


def _paddle(model: str, array: np.ndarray) -> Run:
    import paddle
    from paddle import inference

    files = infer_models.paddle_files(model)
    config = inference.Config(*files)
    config.disable_gpu()
    config.switch_ir_optim(True)
    if files[0].endswith(".pdmodel"):  # its pass for the new format does not exist
        config.enable_memory_optim()
    config.enable_mkldnn()
    config.set_cpu_math_library_num_threads(THREADS)
    config.disable_glog_info()
    tensor = paddle.to_tensor(array, place=paddle.CPUPlace())
    return _predictor_run(inference.create_predictor(config), tensor)


def _onnxruntime(model: str, array: np.ndarray) -> Run:
    import onnx
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    file = infer_models.onnx_file(model)
    # Open sizes are told beforehand, as to OpenVINO: both are faster then.
    (given,) = onnx.load(file, load_external_data=False).graph.input
    for dim, size in zip(given.type.tensor_type.shape.dim, array.shape, strict=True):
        if dim.dim_param:
            options.add_free_dimension_override_by_name(dim.dim_param, size)
    session = onnxruntime.InferenceSession(file, options, ["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda: list(session.run(None, {name: array}))


def _openvino(model: str, array: np.ndarray) -> Run:
    import openvino

    settings = {"INFERENCE_NUM_THREADS": THREADS, "PERFORMANCE_HINT": "LATENCY"}
    # CPUs with bfloat16 units would compute in it otherwise; everybody here computes in float32.
    settings["INFERENCE_PRECISION_HINT"] = "f32"
    core = openvino.Core()
    net = core.read_model(infer_models.onnx_file(model))
    net.reshape(list(array.shape))
    request = core.compile_model(net, "CPU", settings).create_infer_request()

    def run() -> list[np.ndarray]:
        request.infer([array], share_inputs=True)
        return [np.array(t.data) for t in request.output_tensors]

    return run


def _torch(model: str, array: np.ndarray) -> Run:
    import torch

    torch.set_num_threads(THREADS)
    net = infer_models.torch_net(model)

    def run() -> list[np.ndarray]:
        with torch.inference_mode():
            return [net(torch.from_numpy(array)).numpy()]

    return run


# Peer -> (what makes it, label in tables). Ours come first.
PEERS: dict[str, tuple[Callable[[str, np.ndarray], Run], str]] = {
    "auto": (_bireme("auto"), "Bireme auto"),
    "xla": (_bireme("xla"), "Bireme xla"),
    "bireme_ort": (_bireme("onnxruntime"), "Bireme onnxruntime"),
    "bireme_ov": (_bireme("openvino"), "Bireme openvino"),
    "paddle": (_paddle, "Paddle Inference"),
    "onnxruntime": (_onnxruntime, "onnxruntime"),
    "openvino": (_openvino, "OpenVINO"),
    "torch": (_torch, "torch"),
}
OURS = ("auto", "xla", "bireme_ort", "bireme_ov")


class Worker:
    def __init__(self, peer: str, model: str):
        self.peer, self.model = peer, model
        self.runs: dict[int, Run] = {}

    def check(self, batch: int) -> str:
        """Where the results of one run lie, in float32."""
        make = PEERS[self.peer][0]
        self.runs = {batch: make(self.model, infer_models.inputs(self.model, batch))}
        path = infer_models.FOLDER / self.model / f"out-{self.peer}.npz"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, *[np.asarray(a, np.float32) for a in self.runs[batch]()])
        return str(path)

    def warm(self, batch: int) -> float:
        """Seconds of a run once the first ones are over."""
        self.run(batch, 3)
        return self.run(batch, 3)

    def run(self, batch: int, count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            self.runs[batch]()
        return (time.perf_counter() - start) / count

    def turn(self, batch: int, count: int) -> float:
        """One turn of a round: wake threads and caches up, then measure."""
        self.run(batch, min(2, count - 1))
        return self.run(batch, count)


if __name__ == "__main__":
    peer, model = sys.argv[1:]
    answer(lambda: Worker(peer, model))
