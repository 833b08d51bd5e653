"""Names that programs written for Paddle take from below its public API."""

from __future__ import annotations

import hashlib
import subprocess
import sys

import numpy as np
import pytest

import bireme
from bireme import compat
from bireme.core.errors import ShapeMismatch, TypeMismatch


@pytest.fixture(autouse=True)
def _without_the_wheel(monkeypatch):
    """Another test in this process may have imported the real paddle."""
    for name in [m for m in sys.modules if m.partition(".")[0] == "paddle"]:
        monkeypatch.delitem(sys.modules, name)


def test_older_addresses_are_the_same_functions():
    assert bireme.tensor.matmul is bireme.matmul
    assert bireme.framework.load is bireme.load
    assert bireme.framework.core.VarDesc.VarType.FP16 is bireme.float16
    assert bireme.base.framework.EagerParamBase is bireme.Parameter
    with compat.installed():
        from paddle.nn.layer.layers import in_declarative_mode
        from paddle.nn.loss import CrossEntropyLoss

        assert not in_declarative_mode()
        assert CrossEntropyLoss is bireme.nn.CrossEntropyLoss


def test_inner_files_of_paddle_resolve_to_their_packages():
    with compat.installed():
        import paddle
        from paddle.distribution.gumbel import Gumbel
        from paddle.io.dataloader.dataset import Dataset
        from paddle.tensor import math

        assert Gumbel is bireme.distribution.Gumbel
        assert Dataset is bireme.io.Dataset
        assert paddle.optimizer.adamw.AdamW is bireme.optimizer.AdamW
        assert math.frexp is paddle.tensor.math.frexp is bireme.frexp
        assert paddle.tensor([1.0]).item() == bireme.tensor([1.0]).item() == 1.0
        assert not callable(paddle.nn)


def test_a_modules_names_can_be_looked_through():
    with compat.installed():
        import paddle

        names = paddle.nn.layer.activation.__dict__
    assert names["ReLU"] is bireme.nn.ReLU


def test_some_missing_names_may_be_imported_but_not_used():
    with compat.installed():
        from paddle.utils.cpp_extension.extension_utils import _jit_compile

        class Derived(_jit_compile):
            pass

        for missing in (_jit_compile, Derived):
            with pytest.raises(compat.MissingAttributeError, match="_jit_compile is not in Bireme"):
                missing()


def test_modules_of_such_names_can_be_imported():
    with compat.installed():
        import paddle.static.quantization.utils as utils
        from paddle.distributed.flex_checkpoint.aoa.lexer import TokenType

        with pytest.raises(compat.MissingAttributeError, match="load_state_dict"):
            TokenType()
        with pytest.raises(compat.MissingAttributeError, match="QAT"):
            utils.load_variable_data()


def test_helpers_below_the_public_names():
    with compat.installed():
        import paddle.incubate.multiprocessing as mp
        from paddle.distributed.fleet.recompute.recompute import recompute
        from paddle.nn.clip import _squared_l2_norm

        assert callable(mp.Queue)
        assert recompute is bireme.distributed.fleet.utils.recompute
        assert _squared_l2_norm(bireme.to_tensor([3.0, 4.0])).item() == 25


def test_other_missing_names_fail_at_once():
    with compat.installed():
        with pytest.raises(ImportError, match="nearest"):
            from paddle.nn.functional import reluu  # noqa: F401
        with pytest.raises(ImportError, match=r"paddle\.fluid"):
            import paddle.fluid  # noqa: F401


def test_checks_of_arguments():
    from bireme.base.data_feeder import check_variable_and_dtype, convert_dtype

    x = bireme.ones([2])
    check_variable_and_dtype(x, "x", ["float32", "float64"], "f")
    assert convert_dtype(x.dtype) == "float32"
    with pytest.raises(TypeMismatch, match=r"\[f\] x must have one of the types"):
        check_variable_and_dtype(x, "x", ["int32"], "f")
    with pytest.raises(TypeMismatch, match=r"\[f\] x must be"):
        check_variable_and_dtype([1], "x", ["int32"], "f")


def test_layer_helper_makes_parameters_and_appends_no_ops():
    helper = bireme.framework.LayerHelper("scale", input=bireme.ones([2]))
    assert helper.input_dtype() is bireme.float32
    assert helper.create_parameter(None, [3, 4]).shape == [3, 4]
    assert helper.create_parameter(False, [3]) is None
    with pytest.raises(AttributeError, match=r"append_op .*\[scale\]"):
        helper.append_op(type="scale")


def test_dygraph_only_refuses_programs():
    @bireme.framework.dygraph_only
    def read(x):
        return x

    assert read(1) == 1
    bireme.enable_static()
    try:
        with pytest.raises(RuntimeError, match=r"\[read\]"):
            read(1)
        with bireme.base.dygraph.guard():
            assert read(2) == 2
        assert not bireme.in_dynamic_mode()
    finally:
        bireme.disable_static()


def test_amp_state():
    from bireme.amp.auto_cast import amp_state

    assert amp_state() is None
    with bireme.amp.auto_cast(level="O1", dtype="bfloat16"):
        state = amp_state()
    assert state is not None
    assert (state["level"], state["dtype"]) == ("O1", "bfloat16")


@pytest.mark.parametrize("shape", [(6, 8), (4, 6, 3, 3)])
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("kaiming_uniform_", {"a": 0.3}),
        ("kaiming_normal_", {"mode": "fan_out", "nonlinearity": "relu"}),
        ("xavier_uniform_", {"gain": 2.0}),
        ("xavier_normal_", {"fan_in": 10}),
        ("uniform_", {"a": -1.0, "b": 3.0}),
        ("normal_", {"mean": 2.0, "std": 0.5}),
        ("trunc_normal_", {"std": 0.7}),
    ],
)
def test_random_init_has_paddles_spread(paddle, name, arguments, shape):
    big = (shape[0] * 16, shape[1] * 16, *shape[2:])
    ours, real = bireme.zeros(big), paddle.zeros(big)
    assert getattr(bireme.nn.init, name)(ours, **arguments) is ours
    getattr(paddle.nn.init, name)(real, **arguments)
    a, b = ours.numpy(), real.numpy()
    assert a.mean() == pytest.approx(b.mean(), abs=0.1 * float(b.std()))
    assert a.std() == pytest.approx(b.std(), rel=0.05)


@pytest.mark.parametrize(
    ("name", "arguments", "shape"),
    [
        ("zeros_", (), (3,)), ("ones_", (), (3, 2)), ("constant_", (2.5,), (2,)),
        ("eye_", (), (3, 5)), ("dirac_", (2,), (4, 2, 3)),
    ],
)  # fmt: skip
def test_plain_init_is_paddles(paddle, name, arguments, shape):
    ours, real = bireme.rand(shape), paddle.rand(shape)
    getattr(bireme.nn.init, name)(ours, *arguments)
    getattr(paddle.nn.init, name)(real, *arguments)
    np.testing.assert_array_equal(ours.numpy(), real.numpy())


def test_orthogonal_init_and_eye_of_a_cube():
    x = bireme.nn.init.orthogonal_(bireme.zeros([4, 9]), gain=2.0)
    np.testing.assert_allclose((x @ x.T).numpy(), 4 * np.eye(4), atol=1e-5)
    with pytest.raises(ShapeMismatch, match="eye_"):
        bireme.nn.init.eye_(bireme.zeros([2, 2, 2]))


def test_a_convolution_of_ones_own():
    from bireme.nn.layer.conv import _ConvNd

    class Valid(_ConvNd):
        def forward(self, x):
            return bireme.nn.functional.conv2d(x, self.weight, self.bias, self._stride)

    layer = Valid(3, 4, 3, False, 2, stride=2)
    assert layer.weight.shape == [4, 3, 3, 3]
    assert layer(bireme.rand([1, 3, 9, 9])).shape == [1, 4, 4, 4]
    assert Valid(3, 4, (3, 5), True, 2).weight.shape == [3, 4, 3, 5]


def test_one_downloader_per_host():
    from bireme.utils.download import _get_unique_endpoints

    given = ["b:2", "a:9", "a:1", "b:1"]
    assert _get_unique_endpoints(given) == {"a:1", "b:1"}


@pytest.mark.parametrize("reentrant", [True, False])
def test_recompute_repeats_random_numbers(reentrant):
    from bireme.distributed.fleet.utils import recompute

    net = bireme.nn.Sequential(
        bireme.nn.Linear(4, 8), bireme.nn.Dropout(0.5), bireme.nn.Tanh(), bireme.nn.Linear(8, 2)
    )
    x = bireme.randn([5, 4])
    x.stop_gradient = False
    state = bireme.get_rng_state()
    (net(x) ** 2).sum().backward()
    expected = [p.grad.numpy() for p in (*net.parameters(), x)]
    net.clear_gradients()
    x.clear_grad()
    bireme.set_rng_state(state)
    after = recompute(net, x, use_reentrant=reentrant)
    (after**2).sum().backward()
    for p, g in zip((*net.parameters(), x), expected, strict=True):
        np.testing.assert_allclose(p.grad.numpy(), g, rtol=1e-6)


def test_names_that_trainers_import(tmp_path):
    """paddlenlp's Trainer and paddlex's models import these at the top of their files."""
    with compat.installed():
        from paddle.dataset.common import md5file
        from paddle.distributed.fleet.meta_optimizers.dygraph_optimizer import (
            HybridParallelOptimizer,
        )
        from paddle.distributed.fleet.utils.log_util import logger
        from paddle.incubate.tensor.manipulation import create_async_load
        from paddle.io.dataloader.dataloader_iter import _DataLoaderIterBase
    file = tmp_path / "file"
    file.write_bytes(b"oars")
    assert md5file(file) == hashlib.md5(b"oars").hexdigest()
    rule = bireme.optimizer.SGD(parameters=bireme.nn.Linear(1, 1).parameters())
    assert not isinstance(rule, HybridParallelOptimizer)
    assert not isinstance(iter([]), _DataLoaderIterBase)
    assert callable(logger.info)
    with pytest.raises(AttributeError, match="create_async_load is not in Bireme"):
        create_async_load()


def test_a_method_marked_as_property_is_not_captured():
    class Net(bireme.nn.Layer):
        @bireme.jit.to_static(property=True)
        def rate(self):
            return 4

    assert Net().rate() == 4


def test_programs_see_paddles_version():
    with compat.installed():
        import paddle

        assert paddle.__version__ == bireme.version.full_version == "3.3.1"
        assert paddle.__git_commit__ == bireme.version.commit
    assert bireme.__version__ != "3.3.1"


def test_places_answer_what_they_are():
    place = bireme.to_tensor([1.0]).place
    assert not place.is_cuda_pinned_place()
    assert not place.is_xpu_place()
    assert place.gpu_device_id() == 0
    assert bireme.CUDAPinnedPlace().is_cuda_pinned_place()


def test_the_instance_is_what_the_name_gives() -> None:
    with compat.installed():
        import paddle as alias
        import paddle.distributed.fleet.fleet

        assert callable(alias.distributed.fleet.fleet.get_hybrid_communicate_group)


def test_setuptools_can_be_imported_after_pip() -> None:
    """`import pip` alone makes setuptools 65 unusable; clients of Paddle import both."""
    pytest.importorskip("_distutils_hack")
    pytest.importorskip("pip")
    lines = "from bireme import compat; compat.install()", "import pip, setuptools, distutils"
    command = [sys.executable, "-W", "ignore", "-c", "\n".join(lines)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
