"""Gradients by complex inputs: Paddle's conjugate convention in every op family.

Each function is compared with a finite difference along a complex direction, and with Paddle
where its gradient is right (several are not: see docs/differences.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bireme
from bireme.host import config


@dataclass
class Row:
    name: str
    run: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    paddle: bool = True  # Paddle has a gradient, and it is right


ROWS: list[Row] = []


def row(name: str, run: Callable[..., Any], *shapes: tuple[int, ...], paddle: bool = True) -> None:
    ROWS.append(Row(name, run, shapes or ((3, 3),), paddle))


def plain(names: str, *shapes: tuple[int, ...], paddle: bool = True) -> None:
    for name in names.split():
        row(name, lambda p, *xs, name=name: _find(p, name)(*xs), *shapes, paddle=paddle)


def _find(p: Any, name: str) -> Any:
    for part in name.split("."):
        p = getattr(p, part)
    return p


def _hermitian(p: Any, x: Any) -> Any:
    return x + p.conj(x).transpose([1, 0])


def _written(p: Any, x: Any) -> Any:
    y = x * 1
    y[0] = x[1]
    return y


plain("abs neg exp expm1 log log2 log10 log1p sqrt reciprocal sin cos tan asin acos atan sinh cosh")
plain("tanh asinh atanh nn.functional.sigmoid square conj angle sgn real imag as_real")
plain("stanh nn.functional.softplus nn.functional.log_sigmoid", (3,))
plain("remainder nn.functional.swiglu", (3,), (3,), paddle=False)
plain("nn.functional.softsign", (3,), paddle=False)
row("l1_loss", lambda p, x, y: p.nn.functional.l1_loss(x, y, "sum") + 0j * x[0], (3,), (3,))
plain("sum mean cumsum nn.functional.silu t flatten tril triu trace unbind nansum diag")
plain("acosh prod rsqrt logsumexp", paddle=False)
plain("linalg.det linalg.inv linalg.norm")
plain("linalg.pinv linalg.svdvals linalg.eigvals linalg.matrix_exp", paddle=False)
plain("add subtract multiply divide matmul outer inner kron cross tensordot hypot", (3, 3), (3, 3))
plain("pow dist bmm", (2, 3, 3), (2, 3, 3), paddle=False)
plain("linalg.solve mv", (3, 3), (3,), paddle=False)
plain("dot linalg.vecdot", (3,), (3,))
plain("linalg.triangular_solve nn.functional.linear", (3, 3), (3, 3))
plain("nn.functional.mse_loss", (3, 3), (3, 3))
row("prod-axis", lambda p, x: p.prod(x, 1), paddle=False)
row("cumprod", lambda p, x: p.cumprod(x, 1))
row("x ** 2.5", lambda p, x: x**2.5)
row("2 ** x", lambda p, x: 2.0**x, paddle=False)
row("broadcast", lambda p, x, y: x * y + x / y - y, (2, 3), (3,))
row("with reals", lambda p, x: x * p.to_tensor(np.arange(1.0, 4.0)) - 1j / x)
row("einsum", lambda p, x, y: p.einsum("ij,kj->ik", x, y), (2, 3), (4, 3))
row("addmm", lambda p, x, y: p.addmm(x, x, y), (3, 3), (3, 3), paddle=False)
row("matrix_power", lambda p, x: p.linalg.matrix_power(x, 3), paddle=False)
row("eigvalsh", lambda p, x: p.linalg.eigvalsh(_hermitian(p, x)))
row("eig", lambda p, x: p.linalg.eig(x)[1].abs())
row("cholesky", lambda p, x: p.linalg.cholesky(x @ _adjoint(p, x) + p.eye(3, dtype=x.dtype)),
    paddle=False)  # fmt: skip
row("slogdet", lambda p, x: p.linalg.slogdet(x)[1].real(), paddle=False)
row("vector_norm", lambda p, x: p.linalg.vector_norm(x, 3.0))
row("norm by rows", lambda p, x: p.linalg.norm(x, 1, axis=1))
row("parts", lambda p, x: p.complex(p.imag(x), p.real(x) * 2) + p.as_complex(p.as_real(x) * 3))
row("polar", lambda p, x: p.polar(p.abs(x), 2 * p.angle(x)))
row("moved", lambda p, x: p.roll(p.flip(p.transpose(x, [1, 0]), [0]), 1))
row("picked", lambda p, x: [x[1:, 0], p.gather(x, p.to_tensor([0, 2])), p.gather_nd(
    x, p.to_tensor([[0, 1]])), p.masked_select(x, p.real(x) > 0)])  # fmt: skip
row("joined", lambda p, x: [p.concat([x, 2 * x]), p.stack([x, -x]), p.tile(x, [2, 1]), p.expand(
    x, [2, 3, 3]), p.nn.functional.pad(x, [1, 1, 0, 0])])  # fmt: skip
row("where", lambda p, x: p.where(p.real(x) > 0, x, x * 2j))
row("written", _written)
row("cast", lambda p, x: x.astype("complex64").astype("complex128"))
row("scale", lambda p, x: p.scale(x, 2.0, 1.0) / 3)
row("diff", lambda p, x: p.diff(x))
row("scatter", lambda p, x: p.scatter(x, p.to_tensor([0]), x[1:2]), paddle=False)
row("cdist", lambda p, x: (x.unsqueeze(1) - x.unsqueeze(0)).abs().sum())
row("fft", lambda p, x: p.fft.fft2(p.fft.ifft(x * x)))
row("irfft", lambda p, x: p.fft.irfftn(x))
row("stft", lambda p, x: p.signal.stft(x.reshape([9]), 4, center=False, onesided=False))


def _adjoint(p: Any, x: Any) -> Any:
    return p.conj(x).transpose([1, 0])


def _numbers(shapes: Any, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=s) + 1j * rng.normal(size=s) for s in shapes]


def _loss(p: Any, found: Any) -> Any:
    """A real number in which every part of every result counts."""
    rng = np.random.default_rng(5)
    total = p.zeros([], "float64")
    for out in found if isinstance(found, list | tuple) else [found]:
        if "complex" in str(out.dtype):
            out = p.real(out) * 0.7 + p.imag(out) * 1.3
        weight = rng.uniform(0.5, 1.5, tuple(out.shape))
        total = total + (out.astype("float64") * p.to_tensor(weight)).sum()
    return total


def _gradients(p: Any, case: Row, arrays: list[np.ndarray]) -> list[np.ndarray]:
    tensors = [p.to_tensor(a, stop_gradient=False) for a in arrays]
    _loss(p, case.run(p, *tensors)).backward()
    return [t.grad.numpy() for t in tensors]


@pytest.fixture(autouse=True)
def cold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "compile_mode", "never")


@pytest.mark.parametrize("case", [r for r in ROWS if r.paddle], ids=lambda r: r.name)
def test_equals_paddle(case: Row, paddle: Any) -> None:
    arrays = _numbers(case.shapes, 1)
    for a, b in zip(
        _gradients(bireme, case, arrays), _gradients(paddle, case, arrays), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("case", ROWS, ids=lambda r: r.name)
@settings(
    max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seed=st.integers(0, 2**20))
def test_equals_finite_difference(case: Row, seed: int) -> None:
    arrays = _numbers(case.shapes, seed)
    step = 1e-6

    def at(moved: list[np.ndarray]) -> float:
        return float(_loss(bireme, case.run(bireme, *[bireme.to_tensor(a) for a in moved])))

    if case.name == "cast":
        return  # single precision in between is too coarse for differences
    for i, gradient in enumerate(_gradients(bireme, case, arrays)):
        (direction,) = _numbers([arrays[i].shape], seed + 1)
        plus, minus = list(arrays), list(arrays)
        plus[i], minus[i] = arrays[i] + step * direction, arrays[i] - step * direction
        if any(_crosses(a, b) for a, b in zip(plus, minus, strict=True)):
            continue  # a branch of log, sqrt … lies between them
        slope = (at(plus) - at(minus)) / (2 * step)
        expected = np.real(np.sum(np.conj(gradient) * direction))
        size = max(1.0, float(np.abs(gradient).max()))
        assert slope == pytest.approx(expected, rel=1e-3, abs=1e-4 * size)


def _crosses(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(
        (np.sign(a.real) != np.sign(b.real)).any() or (np.sign(a.imag) != np.sign(b.imag)).any()
    )


@pytest.mark.parametrize("name", ["std", "var", "logcumsumexp"])
def test_what_has_no_meaning_for_complex_numbers_is_refused(name: str) -> None:
    with pytest.raises(TypeError, match="takes real numbers"):
        getattr(bireme, name)(bireme.ones([2, 2], "complex64"))
