"""Two ops in Python: one in array code that is compiled, one that calls SciPy from any program."""

import numpy as np

import bireme as paddle
from bireme.utils import custom_op


def softclip_backward(xp, grad, out, limit):
    return grad * (1 - (out / limit) ** 2)


@custom_op(backward=softclip_backward)
def softclip(xp, x, limit=1.0):
    """x for small x, never beyond the limit. `xp` is NumPy or jax.numpy."""
    return limit * xp.tanh(x / limit)


def bessel_backward(xp, grad, x):
    from scipy.special import j1

    return -grad * j1(x)


@custom_op(backward=bessel_backward, infer=lambda x: x, host=True)
def bessel(xp, x):
    """The Bessel function of order 0. With host=True x is a NumPy array, wherever this runs."""
    from scipy.special import j0

    return j0(x)


@paddle.jit.to_static
def model(x):
    return bessel(softclip(x, 5.0)).sum()


def main():
    """The largest error of the gradient against differences; the model is one compiled program."""
    x = paddle.linspace(-8, 8, 50, dtype="float64")
    x.stop_gradient = False
    model(x).backward()
    assert x.grad is not None
    step = 1e-6
    with paddle.no_grad():
        moved = x.unsqueeze(0) + step * paddle.eye(50, dtype="float64")
        slopes = [(model(row).item() - model(x).item()) / step for row in moved]
    return float(np.abs(x.grad.numpy() - np.array(slopes)).max())


if __name__ == "__main__":
    print(f"largest error of the gradient: {main():.1e}")
