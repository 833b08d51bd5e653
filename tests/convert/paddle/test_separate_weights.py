"""jieba's tagger: one published file per parameter, and a net that only its own code describes.

That code is for fluid, which Paddle 3.3.1 no longer has, so the same ops are written here.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bireme import inference
from bireme.convert.paddle.params import read_tensor
from tests.convert.paddle.packages import fetched
from tests.convert.paddle.real import run_predictor


def folder() -> Path:
    return fetched("jieba==0.42.1") / "jieba-0.42.1" / "jieba" / "lac_small"


def numbers(name: str) -> dict[str, int]:
    lines = (folder() / name).read_text(encoding="utf-8").split("\n")
    return {word: int(i) for i, word in (line.split("\t") for line in lines if line)}


def shape_of(file: Path) -> list[int]:
    return list(read_tensor(memoryview(file.read_bytes()), 0, file.name)[0].shape)


def tagger(paddle: Any, weights: Path) -> bytes:
    """Embeddings, two layers of GRUs in both directions, the best path of a CRF."""
    from paddle.pir_utils import OldIrGuard

    with OldIrGuard():
        paddle.enable_static()
        try:
            main = paddle.static.Program()
            block = main.global_block()
            words = block.create_var(name="words", shape=[-1, 1], dtype="int64", lod_level=1)

            def parameter(name: str) -> Any:
                return block.create_parameter(
                    name=name, shape=shape_of(weights / name), dtype="float32"
                )

            def add(
                kind: str, out: str, inputs: dict[str, Any], dtype: str = "float32", **attrs: Any
            ):
                made = block.create_var(name=f"{kind}_{len(block.ops)}", dtype=dtype, lod_level=1)
                rest = {
                    slot: block.create_var(name=f"{slot}_{len(block.ops)}", dtype="float32")
                    for slot in ("BatchGate", "BatchResetHiddenPrev", "BatchHidden")
                    if kind == "gru"
                }
                block.append_op(type=kind, inputs=inputs, outputs={out: made, **rest}, attrs=attrs)
                return made

            def linear(x: Any, i: int) -> Any:
                product = add(
                    "mul", "Out", {"X": x, "Y": parameter(f"fc_{i}.w_0")}, x_num_col_dims=1
                )
                return add(
                    "elementwise_add", "Out", {"X": product, "Y": parameter(f"fc_{i}.b_0")}, axis=1
                )

            def gru(x: Any, i: int) -> Any:
                given = {"Input": linear(x, i), "Weight": parameter(f"gru_{i}.w_0"),
                         "Bias": parameter(f"gru_{i}.b_0")}  # fmt: skip
                return add(
                    "gru", "Hidden", given, is_reverse=bool(i % 2), gate_activation="sigmoid",
                    activation="tanh", origin_mode=False, is_test=True,
                )  # fmt: skip

            x = add("lookup_table_v2", "Out", {"Ids": words, "W": parameter("word_emb")})
            for i in (0, 2):
                x = add("concat", "Out", {"X": [gru(x, i), gru(x, i + 1)]}, axis=1)
            given = {"Emission": linear(x, 4), "Transition": parameter("crfw")}
            best = add("crf_decoding", "ViterbiPath", given, "int64")
            return paddle.static.serialize_program([words], [best], program=main)
        finally:
            paddle.disable_static()


@pytest.mark.slow
def test_tags_of_chinese_text(paddle: Any, tmp_path: Path) -> None:
    weights = folder() / "model_baseline"
    for file in weights.iterdir():
        os.symlink(file, tmp_path / file.name)
    (tmp_path / "__model__").write_bytes(tagger(paddle, weights))
    predictors: list[Any] = []
    for make in (inference, paddle.inference):
        config = make.Config(str(tmp_path))
        if make is not inference:
            config.disable_glog_info()
        predictors.append(make.create_predictor(config))
    known = numbers("word.dic")
    tags = {i: name for name, i in numbers("tag.dic").items()}
    texts = ["我爱北京天安门", "他", "今天天气很好，我们去公园散步吧。"]
    ids = [[known.get(c, known["OOV"]) for c in text] for text in texts]
    ends = np.cumsum([0, *map(len, ids)]).tolist()
    for lod, rows in [([0, len(i)], i) for i in ids] + [(ends, [i for one in ids for i in one])]:
        given = {"words": np.array(rows, np.int64)[:, None]}
        (ours,), (theirs,) = (run_predictor(p, given, [lod]) for p in predictors)
        assert ours.shape == theirs.shape
        assert (ours == theirs).all()
    # The first text again, in all of them: words begin where a tag ends in -B.
    starts = [c for c, tag in zip(texts[0], ours[:7, 0], strict=True) if tags[tag].endswith("-B")]
    assert starts == ["我", "爱", "北", "天"]
