"""Which stacks of layers the CUDA kernel takes, and the calls that it is given."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bireme.core.aval import aval
from bireme.core.dtype import bfloat16, float16, float32, int32, int64
from bireme.kernels import cuda, gpu_decoder, nvidia
from bireme.kernels.cuda import toolchain
from bireme.nn.generation.stack import EACH, decoder_stack


def types_of(
    layers=2, width=2048, heads=32, groups=4, size=64, inner=5632, vocabulary=0, batch=1,
    dtype=bfloat16, place=int64,
):  # fmt: skip
    cache = (batch, 48, groups, size)
    each = [
        (width,), (width, heads * size), (width, groups * size), (width, groups * size),
        (heads * size, width), (width,), (width, inner), (width, inner), (inner, width), cache,
        cache,
    ]  # fmt: skip
    after = [(width,), (width, vocabulary)] if vocabulary else []
    x, turn = (batch, 1, width), (1, 1, 1, size)
    shapes = [x, turn, turn, None, *each * layers, *after]
    return [aval((batch,), place) if s is None else aval(s, dtype) for s in shapes]


def call_of(types, layers=2):
    layout = (-1,) * 4 + (len(types) - 4,)
    attrs = {"layers": layers, "head": len(types) > 4 + layers * EACH, "epsilon": 1e-5}
    return decoder_stack.op.call_with(tuple(types), layout, attrs, (None,) * len(types))


@pytest.fixture(autouse=True)
def a_gpu(monkeypatch):
    monkeypatch.setattr(nvidia, "available", lambda: True)
    monkeypatch.setattr(nvidia, "multiprocessors", lambda: 132)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"vocabulary": 32000},
        {"dtype": float16},
        {"width": 4096, "size": 128, "groups": 8, "inner": 14336},
    ],
)
def test_taken(given):
    assert gpu_decoder._accepts(call_of(types_of(**given)))


@pytest.mark.parametrize(
    "given",
    [
        {"dtype": float32},
        {"batch": 2},
        {"size": 32},
        {"inner": 4160},  # less than a unit of the gate for each block
        {"heads": 133, "groups": 1},
        {"vocabulary": 100},
        {"width": 16384},
        {"place": int32},
    ],
)
def test_left_to_others(given):
    assert not gpu_decoder._accepts(call_of(types_of(**given)))


def test_layers_of_different_shapes_are_left_to_others():
    types = types_of()
    wider = types_of(inner=6144)
    assert not gpu_decoder._accepts(call_of([*types[: 4 + EACH], *wider[4 + EACH :]]))


def test_without_the_compiler_there_is_no_kernel(monkeypatch):
    monkeypatch.setattr(cuda.native, "compiler", lambda: None)
    cuda._available.cache_clear()
    try:
        assert not cuda.available()
    finally:
        cuda._available.cache_clear()


@pytest.mark.skipif(toolchain.nvcc() is None, reason="needs nvcc, the compiler of the CUDA toolkit")
def test_the_library_is_built_whole(tmp_path):
    compilers = cuda.native.compiler(), toolchain.nvcc()
    path = cuda._library_path(str(tmp_path), compilers, "90")
    assert path != cuda._library_path(str(tmp_path), compilers, "100")
    library = cuda._opened(path, compilers, "90")
    assert all(getattr(library, name) for name in cuda.HANDLERS)
    assert {p.suffix for p in tmp_path.iterdir()} == {".so", ".lock"}


def test_calls_have_at_most_so_many_layers_and_write_caches_in_place(monkeypatch):
    seen = []

    def ffi_call(name, results, input_output_aliases):
        def run(*given, **attributes):
            for at, result in input_output_aliases.items():
                assert given[at].shape == results[result].shape
                assert given[at].dtype == results[result].dtype
            seen.append((name, len(given), len(results), attributes))
            return [jnp.zeros(r.shape, r.dtype) for r in results]

        return run

    monkeypatch.setattr(jax.ffi, "ffi_call", ffi_call)
    layers = 40
    types = types_of(layers, width=64, heads=2, groups=1, inner=128, vocabulary=64)
    call = call_of(types, layers)
    kinds = {bfloat16: jnp.dtype("bfloat16"), int64: np.int64}
    out, *caches = gpu_decoder._decoder_stack(
        call, *[np.zeros(t.shape, kinds[t.dtype]) for t in types]
    )
    assert out.shape == (1, 1, 64)
    assert len(caches) == 2 * layers
    assert [n for n, *_ in seen] == ["bireme_decoder"] * 2
    assert [int(a["layers"]) for *_, a in seen] == [32, 8]
    assert [n for _, n, *_ in seen] == [5 + 32 * EACH, 5 + 8 * EACH + 2]
    assert [n for _, _, n, _ in seen] == [2 + 64, 2 + 16]
    assert {(int(a["heads"]), int(a["groups"]), int(a["size"])) for *_, a in seen} == {(2, 1, 64)}
