"""Programs made by, and run by, the real Paddle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

# Results that an op must name though nobody wants them.
_UNWANTED = {
    "dropout": ("Mask",), "layer_norm": ("Mean", "Variance"), "group_norm": ("Mean", "Variance"),
    "instance_norm": ("SavedMean", "SavedVariance"), "rnn": ("Reserve", "DropoutState"),
    "batch_norm": ("MeanOut", "VarianceOut", "SavedMean", "SavedVariance"),
    **dict.fromkeys(
        ("reshape2", "flatten2", "flatten_contiguous_range", "transpose2", "squeeze2",
         "unsqueeze2"),
        ("XShape",),
    ),
}  # fmt: skip


def program_desc(
    paddle: Any, kind: str, inputs: dict[str, Any], attrs: dict[str, Any], outs: dict[str, int]
) -> tuple[bytes, dict[str, np.ndarray]]:
    """(a serialized ProgramDesc of one op, its inputs by name). The first size is open."""
    from paddle.pir_utils import OldIrGuard

    arrays: dict[str, np.ndarray] = {}
    with OldIrGuard():
        paddle.enable_static()
        try:
            main = paddle.static.Program()
            block = main.global_block()
            given: dict[str, list[Any]] = {}
            for slot, values in inputs.items():
                given[slot] = []
                for i, array in enumerate(values if isinstance(values, list) else [values]):
                    name = f"{slot}_{i}"
                    shape = list(array.shape)
                    if not arrays and array.ndim > 1:
                        shape[0] = -1
                    given[slot].append(
                        block.create_var(
                            name=name, shape=shape, dtype=str(array.dtype), stop_gradient=True
                        )
                    )
                    arrays[name] = array
            made = {
                slot: [
                    block.create_var(name=f"out_{slot}_{i}", dtype="float32") for i in range(count)
                ]
                for slot, count in outs.items()
            }
            rest = {
                slot: [block.create_var(name=f"rest_{slot}", dtype="float32")]
                for slot in _UNWANTED.get(kind, ())
            }
            if kind == "batch_norm":  # written in place
                rest.update(MeanOut=given["Mean"], VarianceOut=given["Variance"])
            block.append_op(type=kind, inputs=given, outputs={**made, **rest}, attrs=attrs)
            feeds = [v for vs in given.values() for v in vs]
            wanted = [v for vs in made.values() for v in vs]
            data = paddle.static.serialize_program(feeds, wanted, program=main)
        finally:
            paddle.disable_static()
    return data, arrays


def run_files(paddle: Any, program: Path, inputs: dict[str, np.ndarray], lod: Any = None) -> Any:
    """What the real Paddle Inference makes of these inputs."""
    config = paddle.inference.Config(str(program), str(program.with_suffix(".pdiparams")))
    config.disable_glog_info()
    config.disable_mkldnn()
    return run_predictor(paddle.inference.create_predictor(config), inputs, lod)


def run_predictor(predictor: Any, inputs: dict[str, np.ndarray], lod: Any = None) -> Any:
    """The results of a predictor, ours or Paddle's, in order."""
    for name in predictor.get_input_names():
        handle = predictor.get_input_handle(name)
        handle.copy_from_cpu(inputs[name])
        if lod is not None:
            handle.set_lod(lod)
    predictor.run()
    handles = [predictor.get_output_handle(n) for n in predictor.get_output_names()]
    return [h.copy_to_cpu() for h in handles]


def agree(ours: list[np.ndarray], theirs: list[np.ndarray], tolerance: float = 1e-5) -> None:
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def small_net(paddle: Any, folder: Path) -> tuple[bytes, bytes, bytes]:
    """(ProgramDesc, PIR program, weights) of small nets: convolution, norm, pooling, product."""
    from paddle.pir_utils import OldIrGuard

    def net(x: Any) -> Any:
        functional = paddle.nn.functional
        w = paddle.static.create_parameter([4, 3, 3, 3], "float32", "w")
        v = paddle.static.create_parameter([4, 2], "float32", "v")
        y = functional.conv2d(x, w, None, 1, 1)
        y = paddle.mean(functional.relu(y), axis=[2, 3])
        return functional.softmax(paddle.matmul(y, v))

    paddle.enable_static()
    try:
        main, start = paddle.static.Program(), paddle.static.Program()
        with paddle.static.program_guard(main, start):
            x = paddle.static.data("x", [-1, 3, 8, 8], "float32")
            out = net(x)
            executor = paddle.static.Executor(paddle.CPUPlace())
            executor.run(start)
            path = folder / "pir"
            paddle.static.save_inference_model(str(path), [x], [out], executor, program=main)
    finally:
        paddle.disable_static()
    new = path.with_suffix(".json").read_bytes()
    weights = path.with_suffix(".pdiparams").read_bytes()
    with OldIrGuard():
        paddle.enable_static()
        try:
            main = paddle.static.Program()
            block = main.global_block()
            x, y, z = [
                block.create_var(name=n, shape=[-1, 3, 8, 8], dtype="float32") for n in "xyz"
            ]
            w = block.create_parameter(name="w", shape=[4, 3, 3, 3], dtype="float32")
            block.append_op(type="relu", inputs={"X": x}, outputs={"Out": y})
            block.append_op(
                type="conv2d", inputs={"Input": y, "Filter": w}, outputs={"Output": z},
                attrs={"strides": [1, 1], "paddings": [1, 1], "dilations": [1, 1], "groups": 1,
                       "data_format": "NCHW", "padding_algorithm": "EXPLICIT"},
            )  # fmt: skip
            old = paddle.static.serialize_program([x], [z], program=main)
        finally:
            paddle.disable_static()
    return old, new, weights
