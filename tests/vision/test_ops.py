"""paddle.vision.ops where results depend on the numbers, against the real Paddle."""

from __future__ import annotations

import numpy as np
import pytest

import bireme
from bireme.core.errors import BiremeError
from bireme.vision import ops


def some_boxes(rng, count, size=60.0, dtype="float32"):
    corner = rng.uniform(0, size * 0.8, (count, 2))
    return np.concatenate([corner, corner + rng.uniform(1, size / 2, (count, 2))], 1).astype(dtype)


def both(paddle, name, *args, **kwargs):
    """The results of Paddle's function and ours, arrays made tensors, as flat lists of arrays."""
    results = []
    for module, space in ((paddle, paddle.vision.ops), (bireme, ops)):

        def convert(a, module=module):
            return module.to_tensor(a) if isinstance(a, np.ndarray) else a

        out = getattr(space, name)(
            *map(convert, args), **{k: convert(v) for k, v in kwargs.items()}
        )
        results.append(list(flat(out)))
    return results


def flat(out):
    if isinstance(out, list | tuple):
        for o in out:
            yield from flat(o)
    else:
        yield None if out is None else out.numpy()


def assert_same(paddle, name, *args, rtol=1e-5, **kwargs):
    expected, found = both(paddle, name, *args, **kwargs)
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-5)
    return found


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("threshold", [0.1, 0.3, 0.7])
def test_nms(paddle, seed, threshold):
    rng = np.random.default_rng(seed)
    boxes, scores = some_boxes(rng, 40), rng.permutation(40).astype("float32") / 40
    groups = rng.integers(0, 4, 40)
    assert_same(paddle, "nms", boxes, threshold)
    assert_same(paddle, "nms", boxes, threshold, scores)
    assert_same(paddle, "nms", boxes, threshold, scores, groups, [0, 1, 2, 3])
    assert_same(paddle, "nms", boxes, threshold, scores, groups, [0, 1, 3], top_k=5)
    assert_same(paddle, "nms", boxes.astype("float64"), threshold)


@pytest.mark.parametrize("gaussian", [False, True])
@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize(("top", "keep"), [(10, 6), (-1, -1)])
def test_matrix_nms(paddle, gaussian, normalized, top, keep):
    rng = np.random.default_rng(0)
    boxes = np.stack([some_boxes(rng, 20) / (60 if normalized else 1) for _ in range(2)])
    scores = rng.permutation(2 * 4 * 20).reshape(2, 4, 20).astype("float32") / 160
    found = assert_same(
        paddle, "matrix_nms", boxes, scores, 0.2, 0.1, top, keep, use_gaussian=gaussian,
        normalized=normalized, return_index=True, rtol=1e-4,
    )  # fmt: skip
    assert found[0].shape[0] > 3
    assert_same(paddle, "matrix_nms", boxes, scores, 0.2, 0.1, top, keep, background_label=-1)
    assert_same(paddle, "matrix_nms", boxes, scores, 0.2, 0.1, 5, 5, return_rois_num=False)


@pytest.mark.parametrize("pixel_offset", [False, True])
def test_distribute_fpn_proposals(paddle, pixel_offset):
    rng = np.random.default_rng(0)
    boxes = some_boxes(rng, 30, 900)
    assert_same(
        paddle, "distribute_fpn_proposals", boxes, 2, 5, 4, 224, pixel_offset,
        rois_num=np.array([10, 20], "int32"),
    )  # fmt: skip
    levels, restore, counts = ops.distribute_fpn_proposals(bireme.to_tensor(boxes), 2, 5, 4, 224)
    joined = np.concatenate([level.numpy() for level in levels])
    np.testing.assert_array_equal(joined[restore.numpy()[:, 0]], boxes)
    assert counts is None


@pytest.mark.parametrize("pixel_offset", [False, True])
@pytest.mark.parametrize(("eta", "threshold"), [(1.0, 0.5), (0.9, 0.7)])
@pytest.mark.parametrize(("before", "after"), [(6000, 1000), (20, 5)])
def test_generate_proposals(paddle, pixel_offset, eta, threshold, before, after):
    rng = np.random.default_rng(1)
    scores = rng.permutation(2 * 3 * 5 * 4).reshape(2, 3, 5, 4).astype("float32")
    deltas = rng.normal(size=(2, 12, 5, 4)).astype("float32") * 0.5
    anchors = some_boxes(rng, 60, 50).reshape(5, 4, 3, 4)
    variances = np.full_like(anchors, 0.5)
    sizes = np.array([[50.0, 60.0], [40.0, 45.0]], "float32")
    assert_same(
        paddle, "generate_proposals", scores, deltas, sizes, anchors, variances, before, after,
        threshold, 5.0, eta, pixel_offset, return_rois_num=True,
    )  # fmt: skip
    nothing = np.full_like(sizes, 2.0)  # no box is large enough
    assert_same(
        paddle, "generate_proposals", scores, deltas, nothing, anchors, variances, before, after,
        threshold, 5.0, eta, pixel_offset, return_rois_num=True,
    )  # fmt: skip


def test_layers_and_conv_block(paddle):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1, 8, 9, 9)).astype("float32")
    boxes, count = some_boxes(rng, 3, 9), np.array([3], "int32")
    for name in ("RoIAlign", "RoIPool", "PSRoIPool"):
        values = [
            getattr(space, name)(2, 0.5)(*[module.to_tensor(a) for a in (x, boxes, count)]).numpy()
            for module, space in ((paddle, paddle.vision.ops), (bireme, ops))
        ]
        np.testing.assert_allclose(values[1], values[0], rtol=1e-4, atol=1e-5)
    assert "output_size=2" in repr(ops.RoIAlign(2))
    for options in ({}, {"norm_layer": None}, {"activation_layer": None, "dilation": 2}):
        real = paddle.vision.ops.ConvNormActivation(8, 6, 3, **options)
        ours = ops.ConvNormActivation(8, 6, 3, **options)
        ours.set_state_dict({k: v.numpy() for k, v in real.state_dict().items()})
        real.eval()
        ours.eval()
        expected = real(paddle.to_tensor(x)).numpy()
        np.testing.assert_allclose(ours(bireme.to_tensor(x)).numpy(), expected, atol=1e-5)


def test_deform_conv_layer(paddle):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 4, 8, 7)).astype("float32")
    offset = rng.normal(size=(2, 36, 4, 4)).astype("float32")
    mask = rng.uniform(size=(2, 18, 4, 4)).astype("float32")
    options = {"stride": 2, "padding": 1, "deformable_groups": 2, "groups": 2}
    real = paddle.vision.ops.DeformConv2D(4, 6, 3, **options)
    ours = ops.DeformConv2D(4, 6, 3, **options)
    weights = {k: rng.normal(size=v.shape).astype("float32") for k, v in real.state_dict().items()}
    assert list(weights) == list(ours.state_dict())
    real.set_state_dict(weights)
    ours.set_state_dict(weights)
    for inputs in ((x, offset), (x, offset, mask)):
        expected = real(*map(paddle.to_tensor, inputs)).numpy()
        np.testing.assert_allclose(
            ours(*map(bireme.to_tensor, inputs)).numpy(), expected, atol=1e-4
        )


def test_files(paddle, tmp_path):
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(0).integers(0, 255, (9, 7, 3)).astype("uint8")
    path = str(tmp_path / "a.jpg")
    image.fromarray(pixels).save(path, quality=95)
    data = ops.read_file(path)
    np.testing.assert_array_equal(data.numpy(), paddle.vision.ops.read_file(path).numpy())
    with image.open(path) as opened:
        expected = np.asarray(opened)
        gray = np.asarray(opened.convert("L"))
    np.testing.assert_array_equal(ops.decode_jpeg(data).numpy(), expected.transpose(2, 0, 1))
    np.testing.assert_array_equal(ops.decode_jpeg(data, "gray").numpy(), gray[None])
    assert ops.decode_jpeg(data, "rgb").shape == [3, 9, 7]
    vision = bireme.vision
    assert np.asarray(vision.image_load(path)).shape == (9, 7, 3)
    np.testing.assert_array_equal(vision.image_load(path, "cv2"), expected[:, :, ::-1])
    assert vision.image_load(path, "tensor").shape == [3, 9, 7]
    assert vision.get_image_backend() == "pil"
    vision.set_image_backend("cv2")
    try:
        assert isinstance(vision.image_load(path), np.ndarray)
    finally:
        vision.set_image_backend("pil")
    with pytest.raises(BiremeError, match="backend must be one of"):
        vision.set_image_backend("jpeg")


@pytest.mark.parametrize(
    ("match", "wrong"),
    [
        ("boxes must be", lambda t: ops.nms(t([[1.0, 2.0]]))),
        ("needs categories", lambda t: ops.nms(t([[1.0] * 4]), 0.3, t([1.0]), t([0]))),
        ("top_k", lambda t: ops.nms(t([[1.0] * 4]), 0.3, t([1.0]), t([0]), [0], 2)),
        ("must be \\[N, M, 4\\]", lambda t: ops.matrix_nms(t([1.0]), t([1.0]), 0.1, 0.1, 1, 1)),
        ("levels", lambda t: ops.distribute_fpn_proposals(t([[1.0] * 4]), 3, 3, 3, 10)),
        ("uint8", lambda t: ops.decode_jpeg(t([1.0]))),
        ("mode must be", lambda t: ops.decode_jpeg(t([1.0]), "bgr")),
        ("groups", lambda t: ops.DeformConv2D(3, 4, 3, groups=2)),
        ("weight_attr", lambda t: ops.DeformConv2D(3, 4, 3, weight_attr=False)),
        ("steps", lambda t: ops.prior_box(t([1.0]), t([1.0]), 4.0, steps=[1.0])),
        ("max_sizes", lambda t: ops.prior_box(t([1.0]), t([1.0]), [4.0], [5.0, 6.0])),
        ("prior_box_var", lambda t: ops.box_coder(t([[1.0] * 4]), 3, t([[1.0] * 4]))),
    ],
)
def test_errors_say_what_to_do(match, wrong):
    with pytest.raises(BiremeError, match=match):
        wrong(bireme.to_tensor)
