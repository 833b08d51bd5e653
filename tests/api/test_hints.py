"""Keywords of PyTorch, given to functions whose Paddle names are others: what to write instead."""

from __future__ import annotations

import inspect
import pathlib
import subprocess
import sys

import pytest

import bireme as paddle
import bireme.nn.functional as F
from bireme import nn
from bireme.api import hints
from bireme.core.errors import TypeMismatch

optimizer, transforms = paddle.optimizer, paddle.vision.transforms
ones = paddle.ones


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: optimizer.SGD(lr=0.1), "[SGD] *'lr': write learning_rate="),
        (lambda: optimizer.AdamW(0.1, params=[]), "[AdamW] *'params': write parameters="),
        (lambda: optimizer.Adam(0.1, betas=(0.9, 0.9)), "'betas': write beta1= and beta2="),
        (lambda: optimizer.Adam(0.1, eps=1e-3), "'eps': write epsilon="),
        (lambda: optimizer.Momentum(0.1, weight_decays=1), "write weight_decay="),
        (lambda: optimizer.lr.StepDecay(0.1, 3, optimizer=1), "SGD(learning_rate=scheduler"),
        (lambda: nn.Linear(2, 2, bias=False), "[Linear] *write bias_attr=False for bias=False"),
        (lambda: nn.Conv2D(2, 2, kernel=3), "[Conv2D] *write kernel_size="),
        (lambda: nn.BatchNorm2D(2, eps=1e-3), "[BatchNorm2D] *write epsilon="),
        (lambda: nn.BatchNorm2D(2, affine=False), "write weight_attr=False, bias_attr=False"),
        (lambda: nn.LSTM(2, 2, batch_first=True), "[LSTM] *default is batch first"),
        (lambda: nn.GRU(2, 2, bidirectional=True), "write direction='bidirectional'"),
        (lambda: nn.Softmax(dims=1), "'dims': write axis="),
        (lambda: paddle.metric.Accuracy(top_k=1), "[Accuracy] *write topk="),
        (lambda: transforms.Normalize(mena=1), "[Normalize] *write mean="),
        (lambda: nn.Linear(2, 2, colour=1), "'colour': it takes bias_attr, in_features, name"),
        (lambda: paddle.sum(ones([2]), dims=0), "[sum] *write axis="),
        (lambda: paddle.split(ones([4]), split_size_or_sections=2), "write num_or_sections="),
        (lambda: F.nll_loss(ones([2, 2]), target=ones([2])), "[nll_loss] *write label="),
        (lambda: F.dropout(ones([2]), prob=0.1), "[dropout] *write p="),
        (lambda: ones([2]).sum(dimension=0), "[sum] *write axis="),
    ],
)
def test_the_right_keyword_is_named(call, message):
    with pytest.raises(TypeError, match="got an unexpected keyword argument") as caught:
        call()
    assert isinstance(caught.value, TypeMismatch)
    for part in message.split("*"):
        assert part.strip() in str(caught.value)
    assert caught.value.__suppress_context__


def test_users_own_classes_are_left_alone():
    class Net(nn.Layer):
        def __init__(self, dim):
            super().__init__()

    with pytest.raises(TypeError, match=r"Net.__init__\(\) got") as caught:
        Net(dims=1)
    assert type(caught.value) is TypeError

    class Plain(nn.Linear):
        def __init__(self, size):
            super().__init__(size, size, bias=True)

    with pytest.raises(TypeMismatch, match=r"\[Plain\] .*write bias_attr=False"):
        Plain(2)

    class Broken(nn.Layer):
        def __init__(self):
            super().__init__()
            int(colour=1)

    with pytest.raises(TypeError) as caught:
        Broken()
    assert type(caught.value) is TypeError


def test_signatures_and_docstrings_stay():
    assert list(inspect.signature(nn.Linear).parameters)[:2] == ["in_features", "out_features"]
    assert nn.Linear.__init__.__module__ == "bireme.nn.layer.common"
    assert next(iter(inspect.signature(optimizer.SGD).parameters)) == "learning_rate"


def test_every_name_that_is_advised_exists_somewhere():
    """A hint that no function can ever give is a mistake in the table."""
    spaces = (paddle, nn, F, optimizer, optimizer.lr, paddle.linalg, paddle.io, paddle.vision.ops)
    found = {
        parameter
        for space in spaces
        for name in vars(space)
        if not name.startswith("_") and callable(getattr(space, name))
        for parameter in _parameters(getattr(space, name))
    }
    for keyword, names in hints._NAMES.items():
        assert set(names) <= found, keyword
    for keyword, advice in hints._ADVICE.items():
        assert {needed for needed, _ in advice} <= found, keyword


def _parameters(function):
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return []


@pytest.mark.parametrize(
    ("expression", "last"),
    [
        ("paddle.nn.functional.relu(inputs=x)", "[relu] got an unexpected keyword *write x="),
        ("paddle.abs(inputs=x)", "[abs] got an unexpected keyword argument 'inputs': write x="),
        ("(lambda: 3)()()", "TypeError: 'int' object is not callable"),
        ("(lambda: 3)(dims=3)", "TypeError: <lambda>() got an unexpected keyword argument 'dims'"),
    ],
)  # fmt: skip
def test_uncaught_errors_are_explained(tmp_path, expression, last):
    root = str(pathlib.Path(__file__).parents[2])
    path = tmp_path / "script.py"
    path.write_text(
        f"import sys; sys.path.insert(0, {root!r})\n"
        "import bireme as paddle\npaddle.device.tune_process()\n"
        f"x = paddle.ones([2, 3])\ny = {expression}\n"
    )
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    for part in last.split("*"):
        assert part in done.stderr.splitlines()[-1], done.stderr
