"""Pooling against the real paddle: windows, padding, ceil mode, masks, gradients, both tiers."""

import numpy as np
import pytest

import bireme
from bireme.core.errors import InvalidArgument, ShapeMismatch
from bireme.host import jax_door
from bireme.ops import pooling
from tests.ops.functional_oracle import BF, check, rand, randint

COLD = {"tiers": ("never",)}
OPTIONS = [
    {"kernel_size": 2},
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": [3, 2], "stride": [2, 1], "padding": [1, 0]},
    {"kernel_size": 3, "stride": 2, "ceil_mode": True},
    {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
    {"kernel_size": 3, "stride": 2, "padding": "SAME"},
    {"kernel_size": 2, "stride": 3, "padding": "VALID"},
    {"kernel_size": 3, "stride": 2, "padding": [0, 1, 1, 0]},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_max_pool2d(options):
    check("max_pool2d", rand(2, 3, 9, 8), **options)


@pytest.mark.parametrize("options", OPTIONS)
def test_avg_pool2d(options):
    check("avg_pool2d", rand(2, 3, 9, 8), **options)
    check("avg_pool2d", rand(2, 3, 9, 8), exclusive=False, **COLD, **options)


def test_first_of_equal_maxima_gets_the_gradient():
    x = randint(2, 3, 8, 8, high=3).astype("float32")
    check("max_pool2d", x, kernel_size=3, stride=2, padding=1)
    check("max_pool2d", np.zeros((1, 1, 6, 6), "float32"), kernel_size=2, **COLD)


@pytest.mark.parametrize("options", OPTIONS[:5])
def test_masks(options):
    check("max_pool2d", rand(2, 3, 9, 8), return_mask=True, **options)


def test_other_ranks_and_layouts():
    check("max_pool1d", rand(2, 3, 9), kernel_size=3, stride=2, padding=1)
    check("max_pool1d", rand(2, 3, 9), kernel_size=3, return_mask=True, **COLD)
    check("max_pool3d", rand(1, 2, 5, 6, 5), kernel_size=3, stride=2, padding=1)
    check("max_pool3d", rand(1, 2, 6, 6, 4), kernel_size=2, return_mask=True, **COLD)
    check("max_pool2d", rand(2, 9, 8, 3), kernel_size=3, stride=2, data_format="NHWC")
    check("avg_pool1d", rand(2, 3, 9), kernel_size=3, stride=2, padding=1)
    check("avg_pool3d", rand(1, 2, 5, 6, 5), kernel_size=3, stride=2, padding=1)
    check("avg_pool2d", rand(2, 9, 8, 3), kernel_size=3, stride=2, padding=1, data_format="NHWC")
    check("avg_pool2d", rand(2, 3, 9, 8), kernel_size=3, divisor_override=5, **COLD)


@pytest.mark.parametrize("size", [1, [3, 2], [4, 5], [None, 3]])
def test_adaptive(size):
    check("adaptive_avg_pool2d", rand(2, 3, 6, 8), size)
    check("adaptive_max_pool2d", rand(2, 3, 6, 8), size)
    if size != [None, 3]:
        check("adaptive_max_pool2d", rand(2, 3, 6, 8), size, return_mask=True, **COLD)


def test_adaptive_ranks():
    check("adaptive_avg_pool1d", rand(2, 3, 8), 5, **COLD)
    check("adaptive_max_pool1d", rand(2, 3, 8), 5, **COLD)
    check("adaptive_avg_pool3d", rand(2, 3, 4, 5, 6), [2, 3, 4], **COLD)
    check("adaptive_max_pool3d", rand(2, 3, 4, 5, 6), [2, 3, 4], **COLD)
    check("adaptive_avg_pool2d", rand(2, 6, 8, 3), [4, 3], data_format="NHWC", **COLD)


def test_lp_pool():
    x = rand(2, 3, 8, 9, low=0.1)
    check("lp_pool2d", x, 2, 3, stride=2, rtol=1e-4)
    check("lp_pool2d", x, 3.0, 3, stride=2, padding=1, rtol=1e-4, **COLD)
    check("lp_pool1d", x[0], 2, 3, **COLD, rtol=1e-4)
    check("lp_pool2d", x, float("inf"), 3, **COLD)


def test_unpool():
    for n, shape in ((1, (2, 3, 8)), (2, (2, 3, 8, 6)), (3, (1, 2, 4, 4, 6))):
        pooled, mask = getattr(BF, f"max_pool{n}d")(bireme.to_tensor(rand(*shape)), 2,
                                                    return_mask=True)  # fmt: skip
        tiers = COLD if n != 2 else {}
        check(f"max_unpool{n}d", pooled.numpy(), mask.numpy(), kernel_size=2, **tiers)


def test_fractional():
    x = rand(2, 3, 9, 8)
    for options in ({"random_u": 0.3}, {"random_u": 0.7, "kernel_size": 2},
                    {"random_u": 0.5, "return_mask": True}):  # fmt: skip
        check("fractional_max_pool2d", x, [4, 3], grads=False, **COLD, **options)
    check(
        "fractional_max_pool3d", rand(1, 2, 6, 7, 8), [3, 3, 4], random_u=0.4, grads=False, **COLD
    )
    assert BF.fractional_max_pool2d(bireme.to_tensor(x), 4).shape == [2, 3, 4, 4]


def test_integers_and_float16():
    ints = bireme.to_tensor(randint(1, 2, 6, 6, high=50))
    np.testing.assert_array_equal(
        BF.max_pool2d(ints, 2).numpy(), ints.numpy().reshape(1, 2, 3, 2, 3, 2).max((3, 5))
    )
    half = BF.avg_pool2d(bireme.to_tensor(rand(1, 2, 6, 6, dtype="float16")), 3)
    assert half.numpy().dtype == np.float16


def test_bad_input():
    x = bireme.to_tensor(rand(1, 2, 5, 5))
    with pytest.raises(ShapeMismatch, match="4 dimensions"):
        BF.max_pool2d(bireme.to_tensor(rand(2, 5, 5)), 2)
    with pytest.raises(ShapeMismatch, match="does not fit"):
        BF.max_pool2d(x, 7, stride=1)
    with pytest.raises(InvalidArgument, match="kernel_size"):
        BF.max_pool2d(x, [2, 2, 2])
    with pytest.raises(InvalidArgument, match="positive"):
        BF.avg_pool2d(x, 2, stride=0)
    with pytest.raises(InvalidArgument, match="data_format"):
        BF.avg_pool2d(x, 2, data_format="CHW")
    with pytest.raises(InvalidArgument, match="return_mask"):
        BF.max_pool2d(x, 2, return_mask=True, data_format="NHWC")
    with pytest.raises(InvalidArgument, match="output_size"):
        BF.adaptive_avg_pool2d(x, [1, 2, 3])
    with pytest.raises(InvalidArgument, match="random_u"):
        BF.fractional_max_pool2d(x, 2, random_u=1.5)


# --- large windows: an axis of their own in compiled programs -----------------------------------


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize(
    ("pool", "shape", "arguments"),
    [
        (BF.max_pool2d, (2, 3, 40, 37), {"kernel_size": (19, 18)}),
        (BF.max_pool2d, (2, 3, 23, 37), {"kernel_size": (18, 2), "stride": (2, 1), "padding": 1}),
        (BF.max_pool1d, (2, 1, 30), {"kernel_size": 30}),
        (BF.adaptive_max_pool2d, (1, 2, 37, 31), {"output_size": 1}),
        (BF.adaptive_max_pool2d, (1, 2, 37, 31), {"output_size": (2, 4)}),
        (BF.max_pool2d, (0, 3, 20, 20), {"kernel_size": 20}),
    ],
)
def test_large_windows_are_the_same_compiled(pool, shape, arguments, mask, both_tiers):
    # Few different numbers, so that many are equal; none of them is read from the padding.
    x = np.random.default_rng(0).integers(-3, 3, shape).astype("float32")
    if x.size:
        x[0, 0, ..., 5] = np.nan

    def run():
        t = bireme.to_tensor(x, stop_gradient=False)
        made = pool(t, return_mask=True, **arguments) if mask else [pool(t, **arguments)]
        weight = bireme.arange(made[0].size, dtype="float32").reshape(made[0].shape)
        (made[0] * weight).sum().backward()
        return [*made, t.grad]

    both_tiers(run)


def test_programs_of_large_windows_do_not_grow_with_them():
    def lines(size):
        def pool(x):
            return pooling._max_vjp(jax_door.jnp(), x[..., :1, :1], x, (2, 3), plans, ((0, 0),) * 2)

        plans = ((size, size, 1),) * 2
        x = np.zeros((1, 1, size, size), np.float32)
        return len(jax_door.jax().jit(pool).lower(x).as_text().splitlines())

    assert lines(300) == lines(30)
    assert lines(30) < lines(16)
