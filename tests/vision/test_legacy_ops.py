"""Kernels that detection programs call by name, against the real ones."""

from __future__ import annotations

import numpy as np
import pytest

import bireme
from bireme import _legacy_C_ops as ours
from bireme.core.errors import ShapeMismatch

NMS = {
    "background_label": -1, "score_threshold": 0.3, "nms_top_k": 20, "nms_threshold": 0.4,
    "keep_top_k": 12, "nms_eta": 1.0, "normalized": True,
}  # fmt: skip


@pytest.fixture(scope="module")
def legacy(paddle):
    from paddle import _legacy_C_ops

    return _legacy_C_ops


def boxes(rng, *shape):
    low = rng.uniform(0, 8, (*shape, 2))
    return np.concatenate([low, low + rng.uniform(1, 6, (*shape, 2))], -1).astype("float32")


def pairs(settings):
    return [x for pair in settings.items() for x in pair]


def same(paddle, legacy, name, arrays, *rest):
    def on(lib):
        return [None if a is None else lib.to_tensor(a) for a in arrays]

    real = getattr(legacy, name)(*on(paddle), *rest)
    got = getattr(ours, name)(*on(bireme), *rest)
    many = isinstance(real, list | tuple)
    for r, g in zip(real if many else [real], got if many else [got], strict=True):
        assert str(r.dtype) == str(g.dtype)
        np.testing.assert_allclose(g.numpy(), r.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "change",
    [
        {}, {"keep_top_k": -1}, {"keep_top_k": 3}, {"background_label": 0}, {"nms_top_k": 4},
        {"nms_threshold": 0.8, "nms_eta": 0.7}, {"normalized": False}, {"score_threshold": 0.99},
    ],
)  # fmt: skip
@pytest.mark.parametrize("seed", range(3))
def test_multiclass_nms(paddle, legacy, change, seed):
    rng = np.random.default_rng(seed)
    arrays = [boxes(rng, 2, 30), rng.uniform(size=(2, 3, 30)).astype("float32"), None]
    same(paddle, legacy, "multiclass_nms3", arrays, *pairs(NMS | change))


@pytest.mark.parametrize("keep", [-1, 5])
def test_multiclass_nms_with_boxes_per_class(paddle, legacy, keep):
    rng = np.random.default_rng(1)
    counts = np.array([12, 8], "int32")
    arrays = [boxes(rng, 20, 3), rng.uniform(size=(20, 3)).astype("float32"), counts]
    same(paddle, legacy, "multiclass_nms3", arrays, *pairs(NMS | {"keep_top_k": keep}))


def test_multiclass_nms_refuses_other_shapes():
    with pytest.raises(ShapeMismatch, match="multiclass_nms"):
        ours.multiclass_nms3(bireme.ones([2, 4]), bireme.ones([2, 3]), None, *pairs(NMS))


def test_anchor_generator(paddle, legacy):
    settings = {
        "anchor_sizes": [32.0, 64.0], "aspect_ratios": [0.5, 1.0, 2.0],
        "variances": [0.1, 0.1, 0.2, 0.2], "stride": [16.0, 16.0], "offset": 0.5,
    }  # fmt: skip
    feature = np.zeros((1, 4, 3, 5), "float32")
    same(paddle, legacy, "anchor_generator", [feature], *pairs(settings))


@pytest.mark.parametrize("descending", [True, False])
def test_argsort(paddle, legacy, descending):
    x = np.random.default_rng(0).normal(size=(4, 5)).astype("float32")
    same(paddle, legacy, "argsort", [x], "axis", 0, "descending", descending)


def test_prior_box(paddle, legacy):
    settings = {
        "min_sizes": [4.0], "aspect_ratios": [1.0, 2.0], "variances": [0.1, 0.1, 0.2, 0.2],
        "flip": True, "clip": True, "step_w": 0.0, "step_h": 0.0, "offset": 0.5,
        "min_max_aspect_ratios_order": False, "max_sizes": [9.0],
    }  # fmt: skip
    arrays = [np.zeros((1, 3, 4, 4), "float32"), np.zeros((1, 3, 32, 32), "float32")]
    same(paddle, legacy, "prior_box", arrays, *pairs(settings))


def test_box_coder(paddle, legacy):
    rng = np.random.default_rng(0)
    settings = {"code_type": "encode_center_size", "box_normalized": False, "axis": 0}
    settings["variance"] = [0.1, 0.1, 0.2, 0.2]
    same(paddle, legacy, "box_coder", [boxes(rng, 5), None, boxes(rng, 3)], *pairs(settings))


def test_matrix_nms(paddle, legacy):
    rng = np.random.default_rng(0)
    settings = {
        "background_label": 0, "score_threshold": 0.3, "post_threshold": 0.2, "nms_top_k": 10,
        "gaussian_sigma": 2.0, "use_gaussian": False, "keep_top_k": 6, "normalized": True,
    }  # fmt: skip
    arrays = [boxes(rng, 1, 12), rng.uniform(size=(1, 3, 12)).astype("float32")]
    same(paddle, legacy, "matrix_nms", arrays, *pairs(settings))
