"""An op with a kernel in Pallas for GPUs: a plain definition, and a faster one beside it.

The plain lowering is the reference and runs everywhere. The kernel replaces it in programs that
are compiled for a GPU; on a CPU Pallas interprets it, which is slow, and good for tests.
"""

import bireme as paddle
from bireme.utils import custom_kernel, custom_op

BLOCK = 1024


def gated_backward(xp, grad, x, gate):
    s = 1 / (1 + xp.exp(-gate))
    return grad * s, grad * x * s * (1 - s)


@custom_op(backward=gated_backward)
def gated(xp, x, gate):
    """x * sigmoid(gate)."""
    return x / (1 + xp.exp(-gate))


def kernel(xp, x, gate, interpret=False):
    """The same in one pass over memory, in blocks of 1024 elements."""
    import jax
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    def body(x_ref, gate_ref, out_ref):
        out_ref[...] = x_ref[...] / (1 + xp.exp(-gate_ref[...]))

    flat, count = x.reshape(-1), x.size
    blocks = -(-count // BLOCK)
    padded = [xp.pad(a.reshape(-1), (0, blocks * BLOCK - count)) for a in (x, gate)]
    block = pl.BlockSpec((BLOCK,), lambda i: (i,))
    run = pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct((blocks * BLOCK,), flat.dtype),
        grid=(blocks,),
        in_specs=[block, block],
        out_specs=block,
        interpret=interpret,
        compiler_params=None if interpret else triton.CompilerParams(),
    )
    return run(*padded)[:count].reshape(x.shape)


def fits(x, gate):
    """Both of one fixed shape and type; other calls keep the plain lowering."""
    return x == gate and x.is_static and x.size > 0


@custom_kernel(gated, platform="gpu", accepts=fits)
def gated_on_gpu(xp, x, gate):
    return kernel(xp, x, gate)


@custom_kernel(gated, platform="cpu", name="gated_interpreted", accepts=fits)
def gated_on_cpu(xp, x, gate):
    return kernel(xp, x, gate, interpret=True)


def main(steps=4):
    """Train a gate for a few steps; returns the losses."""
    paddle.seed(0)
    x, target = paddle.randn([30, 100]), paddle.randn([30, 100])
    gate = paddle.create_parameter([30, 100], "float32")
    adam = paddle.optimizer.Adam(0.1, parameters=[gate])
    losses = []
    for _ in range(steps):
        loss = ((gated(x, gate) - target) ** 2).mean()
        loss.backward()
        adam.step()
        adam.clear_grad()
        losses.append(float(loss))
    return losses


if __name__ == "__main__":
    print("losses:", main())
