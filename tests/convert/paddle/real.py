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
