"""Operators in C++: compiled here, recorded, differentiated, captured, saved, packaged."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import bireme as paddle
from bireme.capture.graph_io import GraphFileError
from bireme.core.errors import AutogradError, ExecutionError, InvalidArgument, TypeMismatch
from bireme.host import config
from bireme.kernels.cuda import toolchain
from bireme.kernels.native import compiler
from bireme.utils import cpp_extension
from bireme.utils.cpp_extension import building, load

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")
SOURCES = Path(__file__).parent / "cpp"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(tmp_path_factory.mktemp("extensions"))


@pytest.fixture(scope="module")
def ops(folder):
    sources = [str(SOURCES / "custom_relu.cc"), str(SOURCES / "custom_many.cc")]
    return load(name="custom_ops", sources=sources, build_directory=folder)


def made(*shape, seed=0, grad=True):
    values = np.random.default_rng(seed).normal(size=shape).astype("float32")
    return paddle.to_tensor(values, stop_gradient=not grad)


def test_first_and_second_derivative(ops, tier, paddle):
    values = np.random.default_rng(1).normal(size=(4, 5))
    results = []
    for library, function in ((bireme(), ops.custom_relu), (paddle, paddle.nn.functional.relu)):
        x = library.to_tensor(values, stop_gradient=False)
        y = function(x)
        (first,) = library.grad((y * y).sum(), x, create_graph=True)
        (second,) = library.grad((first * first).sum(), x)
        results.append([t.numpy() for t in (y, first, second)])
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs)


def bireme():
    return paddle


def test_attributes_of_every_kind(ops, tier):
    out = ops.custom_attributes(
        paddle.ones([2]), True, 3, 0.5, 2**40, "héé", [1, 2], [0.5, 1], [2**33], ["a", "bc"]
    )
    assert out.dtype is paddle.float64
    assert out.tolist() == [1, 3, 0.5, 2**40, 5, 3, 1.5, 2**33, 12]
    by_name = ops.custom_scaled(x=paddle.ones([1]), shift=None, factor=2.0)
    assert by_name.tolist() == [2.0]


def test_lists_of_tensors(ops, tier):
    a, b = made(2, 3), made(1, 3, seed=1)
    joined = ops.custom_join([a, b])
    np.testing.assert_array_equal(joined.numpy(), np.concatenate([a.numpy(), b.numpy()]))
    (joined * paddle.arange(9, dtype="float32").reshape([3, 3])).sum().backward()
    np.testing.assert_array_equal(a.grad.numpy(), [[0, 1, 2], [3, 4, 5]])
    np.testing.assert_array_equal(b.grad.numpy(), [[6, 7, 8]])


def test_optional_tensors(ops, tier):
    x, shift = made(2, 3), made(2, 3, seed=1)
    ops.custom_scaled(x, None, 3.0).sum().backward()
    assert x.grad.numpy().tolist() == [[3.0] * 3] * 2
    out = ops.custom_scaled(x, shift, 2.0)
    out.sum().backward()
    np.testing.assert_allclose(out.numpy(), 2 * x.numpy() + shift.numpy(), rtol=1e-6)
    assert x.grad.numpy().tolist() == [[5.0] * 3] * 2
    assert shift.grad.numpy().tolist() == [[1.0] * 3] * 2


def test_several_results(ops, tier):
    x = made(7)
    sine, cosine = ops.custom_sine_cosine(x)
    np.testing.assert_allclose(sine.numpy(), np.sin(x.numpy()), rtol=1e-5)
    np.testing.assert_allclose(cosine.numpy(), np.cos(x.numpy()), rtol=1e-5)
    (2 * sine).sum().backward()  # the other result has no gradient
    np.testing.assert_allclose(x.grad.numpy(), 2 * np.cos(x.numpy()), rtol=1e-5)
    for half in ("bfloat16", "float16"):
        low = x.detach().astype(half)
        ours = ops.custom_sine_cosine(low)[0]
        expected = np.sin(low.astype("float32").numpy())
        assert ours.dtype.name == half
        np.testing.assert_allclose(ours.astype("float32").numpy(), expected, rtol=1e-2)


def test_in_place(ops, tier):
    x, y = made(2, 3), made(2, 3, seed=1)
    changed = x * 1
    view = changed[0]
    assert ops.custom_add_(changed, y) is changed
    np.testing.assert_allclose(changed.numpy(), x.numpy() + y.numpy(), rtol=1e-6)
    np.testing.assert_allclose(view.numpy(), changed.numpy()[0])
    (changed * changed).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * changed.numpy(), rtol=1e-6)


def test_without_rules(ops, tier):
    assert ops.custom_doubled(paddle.ones([2, 2])).tolist() == [[2, 2], [2, 2]]
    assert ops.custom_doubled(paddle.ones([0, 2])).shape == [0, 2]
    assert ops.custom_doubled(made(3)).stop_gradient


def test_errors(ops, tier):
    with pytest.raises(ExecutionError, match=r"thirteen elements .*custom_many.cc:\d+"):
        ops.custom_doubled(paddle.ones([13])).numpy()
    with pytest.raises(ExecutionError, match="no kernel for elements of type int64"):
        ops.custom_relu(paddle.to_tensor([1])).numpy()
    with pytest.raises(InvalidArgument, match="'factor' must be a float"):
        ops.custom_scaled(paddle.ones([1]), None, "2")
    with pytest.raises(TypeMismatch, match="'x' must be a Tensor"):
        ops.custom_relu("x")
    x = made(2, 3)
    (first,) = paddle.grad((ops.custom_join([x]) ** 2).sum(), x, create_graph=True)
    with pytest.raises(AutogradError, match="PD_BUILD_DOUBLE_GRAD_OP"):
        paddle.grad((first**2).sum(), x)[0].numpy()


def test_training_compiles_once(ops, monkeypatch):
    from bireme.host import config

    monkeypatch.setattr(config, "compile_mode", "sync")
    paddle.seed(1)
    layer = paddle.nn.Linear(4, 4)
    adam = paddle.optimizer.Adam(0.05, parameters=layer.parameters())
    x, target = made(8, 4, grad=False), made(8, 4, seed=1, grad=False).abs()
    losses = []
    with paddle.profiler.count_compiles() as compiled:
        for _ in range(30):
            loss = ((ops.custom_relu(layer(x)) - target) ** 2).mean()
            loss.backward()
            adam.step()
            adam.clear_grad()
            losses.append(float(loss))
    assert losses[-1] < losses[0]
    assert compiled[0] <= 3


class Net(paddle.nn.Layer):
    def __init__(self, ops):
        super().__init__()
        self.fc = paddle.nn.Linear(4, 3)
        self.ops = ops

    def forward(self, x):
        sine, _ = self.ops.custom_sine_cosine(self.fc(x))
        return self.ops.custom_scaled(self.ops.custom_relu(sine), None, 2.0)


def test_capture_save_and_load(ops, tmp_path):
    net = Net(ops)
    x = made(5, 4, grad=False)
    expected = net(x).numpy()
    spec = [paddle.static.InputSpec([None, 4], "float32")]
    captured = paddle.jit.to_static(net, input_spec=spec)
    np.testing.assert_allclose(captured(x).numpy(), expected, rtol=1e-6)
    path = str(tmp_path / "net")
    paddle.jit.save(captured, path)
    again = paddle.jit.load(path)
    np.testing.assert_allclose(again(x).numpy(), expected, rtol=1e-6)
    np.testing.assert_allclose(again(x[:2]).numpy(), expected[:2], rtol=1e-6)
    code = f"import bireme; bireme.jit.load({path!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert GraphFileError.__name__ in done.stderr
    assert "custom_relu" in done.stderr
    assert "package that defines them" in done.stderr


SMALL = """
#include "paddle/extension.h"
#include "factor.h"
std::vector<paddle::Tensor> F(const paddle::Tensor& x) {
  return {paddle::full(x.shape(), FACTOR, x.dtype())};
}
PD_BUILD_OP(%s).Inputs({"X"}).Outputs({"Out"}).SetKernelFn(PD_KERNEL(F));
"""


def small(folder, name="custom_small", text=SMALL):
    (folder / "factor.h").write_text("#define FACTOR 2\n")
    source = folder / "small.cc"
    source.write_text(text % name if "%s" in text else text)
    return source


def test_nothing_is_compiled_twice_and_headers_count(tmp_path, monkeypatch):
    source = small(tmp_path)
    arguments = {"name": "small", "sources": [str(source)], "build_directory": str(tmp_path / "b")}
    x = paddle.ones([2])
    assert load(**arguments).custom_small(x).tolist() == [2, 2]
    with monkeypatch.context() as patch:
        patch.setattr(building, "_run", lambda *a: pytest.fail("compiled again"))
        assert load(**arguments).custom_small(x).tolist() == [2, 2]
    (tmp_path / "factor.h").write_text("#define FACTOR 3\n")
    assert load(**arguments).custom_small(x).tolist() == [3, 3]


def test_compiler_errors_name_the_users_line(tmp_path):
    source = small(tmp_path, text='#include "paddle/extension.h"\nint broken = "text";\n')
    with pytest.raises(cpp_extension.BuildError, match=r"small\.cc:2:\d+: error"):
        load(name="broken", sources=[str(source)], build_directory=str(tmp_path / "b"))
    assert not list((tmp_path / "b" / "broken").glob("*.so"))


def test_bad_arguments(tmp_path):
    with pytest.raises(InvalidArgument, match="there is no source file"):
        load(name="n", sources=["missing.cc"], build_directory=str(tmp_path))
    with pytest.raises(InvalidArgument, match="must be a list of strings"):
        load(name="n", sources="missing.cc", build_directory=str(tmp_path))
    with pytest.raises(InvalidArgument, match="can be imported"):
        cpp_extension.setup(ext_modules=cpp_extension.CppExtension(["a.cc"]))


@pytest.mark.slow
def test_the_same_sources_with_paddle(ops, paddle, tmp_path):
    sources = [str(SOURCES / "custom_relu.cc"), str(SOURCES / "custom_many.cc")]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = paddle.utils.cpp_extension.load(
            name="their_ops", sources=sources, build_directory=str(tmp_path)
        )

    def results(library, module):
        def tensor(*shape):
            values = np.random.default_rng(len(shape)).normal(size=shape).astype("float32")
            return library.to_tensor(values, stop_gradient=False)

        x, y, row = tensor(3, 4), tensor(3, 4) * 2, tensor(4).reshape([1, 4])
        given = (True, 3, 0.5, 2**40, "text", [1, 2], [0.5, 1], [2**33], ["a", "bc"])
        sine, cosine = module.custom_sine_cosine(x)
        made = [
            module.custom_attributes(x, *given),
            module.custom_relu(x),
            module.custom_join([x, row]),
            module.custom_scaled(x, None, 2.0) + module.custom_scaled(x, y, 3.0),
            sine * cosine,
            module.custom_add_(x * 1, y),
        ]
        sum((m * m).sum() for m in made[1:]).backward()
        return [m.numpy() for m in (*made, x.grad)], [list(m.shape) for m in made]

    ours, expected = results(bireme(), ops), results(paddle, theirs)
    assert ours[1] == expected[1]
    for mine, other in zip(ours[0], expected[0], strict=True):
        assert mine.dtype == other.dtype
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_taken_names_and_unknown_gradients(tmp_path):
    source = small(tmp_path, name="matmul")
    with pytest.raises(InvalidArgument, match="Bireme's own"):
        load(name="taken", sources=[str(source)], build_directory=str(tmp_path / "b"))
    grad = 'PD_BUILD_GRAD_OP(odd).Inputs({"Z"}).Outputs({"X@GRAD"}).SetKernelFn(PD_KERNEL(F));'
    source = small(tmp_path, text=SMALL.replace("%s", "odd") + grad)
    with pytest.raises(InvalidArgument, match="takes 'Z'"):
        load(name="odd", sources=[str(source)], build_directory=str(tmp_path / "b"))


def test_build_directory(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PADDLE_EXTENSION_DIR", str(tmp_path / "here"))
    assert cpp_extension.get_build_directory() == str(tmp_path / "here")
    assert (tmp_path / "here").is_dir()
    monkeypatch.delenv("PADDLE_EXTENSION_DIR")
    cpp_extension.get_build_directory(verbose=True)
    assert "PADDLE_EXTENSION_DIR is not set" in capsys.readouterr().out


def test_a_build_directory_that_others_can_write_to_is_refused(tmp_path, monkeypatch):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    monkeypatch.setenv("PADDLE_EXTENSION_DIR", str(tmp_path / "open" / "inner"))
    with pytest.raises(building.BuildError, match=r"others can write to .*open'"):
        cpp_extension.get_build_directory()


def test_without_a_cache_extensions_are_built_for_this_process(tmp_path, monkeypatch):
    monkeypatch.delenv("PADDLE_EXTENSION_DIR", raising=False)
    monkeypatch.setattr(config, "cache_dir", "")
    monkeypatch.chdir(tmp_path)
    folder = cpp_extension.get_build_directory()
    assert os.path.isabs(folder)
    assert os.stat(folder).st_mode & 0o777 == 0o700
    assert os.listdir(tmp_path) == []


def test_a_folder_without_room_is_left_alone(tmp_path, monkeypatch):
    def full(*args):
        raise OSError(28, "No space left on device")

    assert building._with_room(tmp_path / "a") == tmp_path / "a"
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.warns(RuntimeWarning, match="takes no files .No space left"):
        other = building._with_room(tmp_path / "b")
    assert other.is_dir()
    assert tmp_path not in other.parents


@pytest.mark.parametrize("damage", ["none", "library", "old", "list"])
def test_a_library_is_taken_if_it_is_whole(tmp_path, damage):
    library, manifest = tmp_path / "ops.so", tmp_path / "ops.json"
    library.write_bytes(b"a library")
    said = {"library": "ops.so", "digest": building._digest(str(library)), "files": {}}
    if damage == "library":
        library.write_bytes(b"a lib")
    elif damage == "old":
        del said["digest"]
    manifest.write_text(json.dumps([said] if damage == "list" else said))
    assert building._built(manifest) == (library if damage == "none" else None)


@pytest.mark.slow
def test_packages(tmp_path, monkeypatch):
    source = small(tmp_path, name="custom_packaged")
    (tmp_path / "setup.py").write_text(
        "from bireme.utils.cpp_extension import CppExtension, setup\n"
        f"setup(name='packaged_ops', ext_modules=CppExtension(sources=[{str(source)!r}]))\n"
    )
    subprocess.run(
        [sys.executable, "setup.py", "build", "--build-lib", "lib"],
        cwd=tmp_path, check=True, capture_output=True, text=True,
    )  # fmt: skip
    monkeypatch.syspath_prepend(str(tmp_path / "lib"))
    module = importlib.import_module("packaged_ops")
    assert module.custom_packaged(paddle.ones([2])).tolist() == [2, 2]


def test_build_extension_is_a_command():
    command = cpp_extension.BuildExtension.with_options(debug=False)
    assert issubclass(command, cpp_extension.BuildExtension)


CUDA = """
#include "paddle/extension.h"
__global__ void Twice(const float* x, float* out, int64_t n) {
  int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (i < n) out[i] = 2 * x[i];
}
std::vector<paddle::Tensor> F(const paddle::Tensor& x) {
  auto out = paddle::empty_like(x);
  Twice<<<(x.numel() + 255) / 256, 256, 0, x.stream()>>>(x.data<float>(), out.data<float>(),
                                                          x.numel());
  return {out};
}
PD_BUILD_OP(custom_twice_on_gpu).Inputs({"X"}).Outputs({"Out"}).SetKernelFn(PD_KERNEL(F));
"""


@pytest.mark.slow
@pytest.mark.skipif(toolchain.nvcc() is None, reason="needs nvcc, the compiler of the CUDA toolkit")
def test_cuda_sources(tmp_path):
    source = tmp_path / "twice.cu"
    source.write_text(CUDA)
    module = load(name="twice", sources=[str(source)], build_directory=str(tmp_path / "b"))
    from bireme.utils.cpp_extension.library import Library

    assert Library(Path(module.__file__)).has_gpu
    if not paddle.is_compiled_with_cuda():
        pytest.skip("compiled; running it needs a GPU")
    paddle.set_device("gpu")
    try:
        assert module.custom_twice_on_gpu(paddle.ones([3])).tolist() == [2, 2, 2]
    finally:
        paddle.set_device("cpu")
