"""Fourier transforms: round trips, derivatives of second order (Paddle has none), open shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bireme as paddle
from bireme.host import config

NORMS = ("backward", "forward", "ortho")


def _random(shape: tuple[int, ...], kind: str, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape)
    return x + 1j * rng.normal(size=shape) if kind == "complex" else x


@settings(max_examples=30, deadline=None)
@given(
    shape=st.lists(st.integers(1, 6), min_size=1, max_size=3),
    norm=st.sampled_from(NORMS),
    data=st.data(),
)
def test_inverse_undoes_and_numpy_agrees(shape: list[int], norm: str, data: Any) -> None:
    axes = data.draw(st.permutations(range(len(shape))))
    axes = axes[: data.draw(st.integers(1, len(axes)))]
    array = _random(tuple(shape), "complex")
    x = paddle.to_tensor(array)
    there = paddle.fft.fftn(x, axes=axes, norm=norm)
    np.testing.assert_allclose(there.numpy(), np.fft.fftn(array, axes=axes, norm=norm), atol=1e-12)
    back = paddle.fft.ifftn(there, axes=axes, norm=norm)
    np.testing.assert_allclose(back.numpy(), array, atol=1e-12)
    real = paddle.to_tensor(array.real)
    half = paddle.fft.rfftn(real, axes=axes, norm=norm)
    expected = np.fft.rfftn(array.real, axes=axes, norm=norm)
    np.testing.assert_allclose(half.numpy(), expected, atol=1e-12)
    sizes = [shape[a] for a in axes]
    again = paddle.fft.irfftn(half, s=sizes, axes=axes, norm=norm)
    np.testing.assert_allclose(again.numpy(), array.real, atol=1e-12)


def _energy(y: Any) -> Any:
    return (y.abs() ** 3).sum() if y.dtype.is_complex else (y**3).sum()


def _gradient_energy(name: str, x: Any) -> Any:
    (g,) = paddle.grad(_energy(getattr(paddle.fft, name)(x)), x, create_graph=True)
    return _energy(g)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("fft", "real"), ("rfft", "real"), ("ihfft", "real"), ("ifft2", "real"), ("fft", "complex"),
     ("irfft", "complex"), ("hfft", "complex"), ("irfftn", "complex")],
)  # fmt: skip
def test_second_derivative_is_the_slope_of_the_first(
    name: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "compile_mode", "never")
    array = _random((3, 5), kind)
    x = paddle.to_tensor(array, stop_gradient=False)
    (gradient,) = paddle.grad(_gradient_energy(name, x), x)
    direction = _random((3, 5), kind, 1)
    step = 1e-6

    def at(moved: np.ndarray) -> float:
        return float(_gradient_energy(name, paddle.to_tensor(moved, stop_gradient=False)))

    slope = (at(array + step * direction) - at(array - step * direction)) / (2 * step)
    expected = np.real(np.sum(np.conj(gradient.numpy()) * direction))
    assert slope == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("name", ["fft", "rfft", "irfft", "hfft", "ihfft", "fftshift"])
def test_open_batch_and_open_length(name: str) -> None:
    dtype = "complex64" if name in ("irfft", "hfft") else "float32"
    spec = paddle.static.InputSpec([None, None], dtype)
    function = getattr(paddle.fft, name)
    captured = paddle.jit.to_static(function, input_spec=[spec])
    for shape in ((2, 6), (3, 8)):
        x = paddle.to_tensor(_random(shape, "complex" if dtype == "complex64" else "real"), dtype)
        np.testing.assert_allclose(captured(x).numpy(), function(x).numpy(), rtol=1e-4, atol=1e-4)


def test_half_precision_is_computed_in_single(tier: str) -> None:
    x = paddle.ones([4], dtype="bfloat16")
    assert paddle.fft.rfft(x).dtype is paddle.complex64


def test_stft_and_back_again(both_tiers: Callable[..., Any]) -> None:
    array = _random((2, 200), "real").astype("float32")
    window = paddle.to_tensor(np.hanning(34)[1:-1].astype("float32"))

    def round_trip() -> Any:
        x = paddle.to_tensor(array)
        spectrum = paddle.signal.stft(x, 32, 8, window=window)
        return paddle.signal.istft(spectrum, 32, 8, window=window, length=200)

    np.testing.assert_allclose(both_tiers(round_trip), array, atol=1e-5)


def test_stft_of_an_open_batch() -> None:
    spec = paddle.static.InputSpec([None, 64], "float32")
    captured = paddle.jit.to_static(lambda x: paddle.signal.stft(x, 16).abs(), input_spec=[spec])
    for batch in (2, 3):
        x = paddle.to_tensor(_random((batch, 64), "real"), "float32")
        expected = paddle.signal.stft(x, 16).abs().numpy()
        np.testing.assert_allclose(captured(x).numpy(), expected, rtol=1e-4, atol=1e-4)


def test_dense_overlap_in_either_tier(both_tiers: Callable[..., Any]) -> None:
    frames = paddle.to_tensor(_random((2, 70, 5), "real"))
    got = both_tiers(lambda: paddle.signal.overlap_add(frames, 1))
    assert got.shape == (2, 74)


def test_an_axis_named_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="each dimension once"):
        paddle.fft.fftn(paddle.ones([3, 3]), axes=(0, -2))
