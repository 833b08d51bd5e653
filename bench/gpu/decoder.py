"""`python -m bench.gpu.decoder`: the kernel for a stack of decoder layers against its composition.

For models of several shapes and tokens at several places: how far the kernel's results and the
plain lowering's are from the composition in float32, as a share of the largest element. The kernel
is right where it is about as near as the plain one.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Shape:
    """Layers, and the place of the token."""

    layers: int
    width: int
    heads: int
    groups: int
    size: int
    inner: int
    vocabulary: int
    length: int
    place: int
    dtype: str = "bfloat16"


SHAPES = (
    Shape(2, 2048, 32, 4, 64, 5632, 32000, 512, 300),
    Shape(2, 2048, 32, 4, 64, 5632, 0, 512, 0),
    Shape(1, 2048, 32, 32, 64, 5632, 640, 512, 511),
    Shape(3, 1024, 16, 2, 64, 4288, 1088, 64, 5, "float16"),
    Shape(2, 4096, 32, 8, 128, 14336, 0, 2048, 1999),
    Shape(1, 1088, 17, 1, 128, 4352, 64, 96, 64, "float16"),
    Shape(34, 1024, 8, 8, 128, 4224, 128, 128, 100),
    Shape(1, 8192, 64, 8, 128, 4224, 0, 64, 63),
)
NEAR = 1.5  # times the plain lowering's distance


def drawn(rng: np.random.Generator) -> Shape:
    """Some shape that the kernel takes."""
    size = int(rng.choice([64, 128]))
    groups, length = int(rng.integers(1, 9)), int(rng.integers(1, 700))
    heads = groups * int(rng.integers(1, 16 // groups + 1))
    width, inner = (64 * int(rng.integers(a, b)) for a, b in ((1, 40), (66, 120)))
    place, vocabulary = int(rng.integers(0, length)), 64 * int(rng.integers(0, 30))
    kind = str(rng.choice(["bfloat16", "float16"]))
    layers = int(rng.integers(1, 5))
    return Shape(layers, width, heads, groups, size, inner, vocabulary, length, place, kind)


def compare(shape: Shape, seed: int = 0) -> dict[str, float]:
    """Distances of the kernel and of the plain lowering from the composition in float32."""
    from bireme.core import dtype as dt
    from bireme.core import kernels
    from bireme.core.aval import aval
    from bireme.host import jax_door
    from bireme.kernels import install
    from bireme.nn.generation import stack

    install()
    jax = jax_door.jax()
    jnp = jax.numpy
    keys = itertools.count(seed << 16)
    kind = jnp.dtype(shape.dtype)

    def normal(*sizes: int, scale: float = 1.0, mean: float = 0.0) -> Any:
        drawn = jax.random.normal(jax.random.key(next(keys)), sizes, jnp.float32)
        return (drawn * scale + mean).astype(kind)

    def weight(n_in: int, n_out: int) -> Any:
        return normal(n_in, n_out, scale=n_in**-0.5)

    d, kv = shape.width, shape.groups * shape.size
    arrays = []
    for _ in range(shape.layers):
        cache = (1, shape.length, shape.groups, shape.size)
        arrays += [
            normal(d, scale=0.1, mean=1), weight(d, shape.heads * shape.size), weight(d, kv),
            weight(d, kv), weight(shape.heads * shape.size, d), normal(d, scale=0.1, mean=1),
            weight(d, shape.inner), weight(d, shape.inner), weight(shape.inner, d),
            normal(*cache), normal(*cache),
        ]  # fmt: skip
    if shape.vocabulary:
        arrays += [normal(d, scale=0.1, mean=1), weight(d, shape.vocabulary)]
    angles = normal(1, 1, 1, shape.size, scale=3).astype(jnp.float32)
    turns = [f(angles).astype(kind) for f in (jnp.cos, jnp.sin)]
    given = [normal(1, 1, d), *turns, jnp.asarray([shape.place], jnp.int64), *arrays]

    types = tuple([aval(a.shape, getattr(dt, str(a.dtype))) for a in given])
    call = stack.decoder_stack.op.call_with(
        types, (-1,) * 4 + (len(arrays),),
        {"layers": shape.layers, "head": shape.vocabulary > 0, "epsilon": 1e-5},
        (None,) * len(types),
    )  # fmt: skip

    def plain(*leaves: Any) -> Any:
        return call.op.lower(jnp, call, list(leaves))

    with kernels.lowering_for("gpu") as chosen:
        got = jax.jit(lambda *leaves: call.run(jnp, list(leaves)))(*given)
    if not chosen:
        raise RuntimeError(f"no kernel took {shape}")
    usual = jax.jit(plain)(*given)
    exact = [a.astype(jnp.float32) if a.dtype == kind else a for a in given]
    with jax.default_matmul_precision("highest"):
        want = jax.jit(plain)(*exact)

    def distance(results: Any) -> float:
        worst = 0.0
        for a, b in zip(results, want, strict=True):
            a, b = np.asarray(a, np.float32), np.asarray(b)
            worst = max(worst, float(np.abs(a - b).max() / np.abs(b).max()))
        return worst if np.isfinite(worst) else float("inf")

    return {"kernel": distance(got), "plain": distance(usual)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--drawn", type=int, default=8, help="so many shapes more, by chance")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--skip", type=int, default=0, help="leave out so many of the first")
    parser.add_argument("--out", help="write the figures here")
    options = parser.parse_args()
    # The composition is compiled twice for each shape, and no time is measured.
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_autotune_level=0"
    rows = []
    rng = np.random.default_rng(options.seed)
    shapes = [*SHAPES, *[drawn(rng) for _ in range(options.drawn)]]
    for shape in shapes[options.skip :]:
        row = compare(shape)
        near = row["kernel"] <= NEAR * row["plain"]
        rows.append({"shape": str(shape), **row, "near": near})
        print(
            f"kernel {row['kernel']:.2e}, plain {row['plain']:.2e}"
            f"{'' if near else '  FAR'}  {shape}",
            flush=True,
        )
    if options.out:
        with open(options.out, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
    if not all(row["near"] for row in rows):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
