"""What a user reads when something is wrong: the op, what came in, what to write instead.

One line per kind of mistake and op family. `tests/parity/rows_errors.py` checks that Paddle
refuses the same things; here it is the words that count.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import bireme as paddle
import bireme.nn.functional as F
from bireme.core.errors import (
    AutogradError,
    BiremeError,
    IndexOutOfRange,
    InvalidArgument,
    ShapeMismatch,
    TypeMismatch,
    is_internal,
    without_internal_frames,
)


def f(*shape: int) -> Any:
    return paddle.ones(list(shape))


def i(*shape: int) -> Any:
    return paddle.zeros(list(shape), dtype="int64")


def b(*shape: int) -> Any:
    return paddle.zeros(list(shape), dtype="bool")


def overwritten() -> None:
    # A shape of its own: a call is shown with the line that made one of its kind first.
    x = f(3, 1, 41)
    x.stop_gradient = False
    y = x * 2
    z = y * y
    y.add_(f(3, 1, 41))
    z.sum().backward()


def backward_twice() -> None:
    x = f(3)
    x.stop_gradient = False
    y = (x * x).sum()
    y.backward()
    y.backward()


def write(tensor: Any, index: Any, value: Any) -> None:
    tensor[index] = value


# (what is called, class, words that must appear: the op, what came in, the way out)
MISTAKES: dict[str, tuple[Callable[[], Any], type[Exception], tuple[str, ...]]] = {
    # elementwise
    "broadcast": (
        lambda: f(2, 3) + f(4), ShapeMismatch,
        ("[add]", "float32[2, 3]", "float32[4]", "must be equal or contain a 1"),
    ),
    "broadcast-names-the-dimension": (
        lambda: f(5, 2, 3) * f(4, 3), ShapeMismatch, ("[multiply]", "dimension -2 is 2 and 4"),
    ),
    "mixed-dtypes": (
        lambda: f(3) + i(3), TypeMismatch,
        ("[add]", "float32", "int64", ".astype('float32')"),
    ),
    "unary-string": (
        lambda: paddle.exp("one"), TypeMismatch,
        ("[exp]", "'x' must be a Tensor", "str 'one'", "pass a Tensor"),
    ),
    "unary-list": (
        lambda: paddle.exp([1.0, 2.0]), TypeMismatch,
        ("[exp]", "list [1.0, 2.0]", "paddle.to_tensor"),
    ),
    "unary-none": (lambda: paddle.tanh(None), TypeMismatch, ("[tanh]", "NoneType")),
    "unary-array": (
        lambda: F.relu(np.ones(2, np.float32)), TypeMismatch, ("[relu]", "ndarray", "to_tensor"),
    ),
    "bitwise-float": (
        lambda: paddle.bitwise_and(f(3), f(3)), TypeMismatch,
        ("[bitwise_and]", "float32[3]", ".astype('int64')"),
    ),
    "unknown-dtype": (
        lambda: f(3).astype("float31"), TypeMismatch, ("'float31'", "Use one of", "float32"),
    ),
    "in-place-shape": (
        lambda: f(3).add_(f(2, 3)), ShapeMismatch, ("[add_]", "keep the shape", "[3]", "[2, 3]"),
    ),
    "truth-of-many": (lambda: bool(f(3)), InvalidArgument, ("[3]", ".any()", ".all()")),
    "item-of-many": (lambda: f(3).item(), InvalidArgument, ("[item]", "[3]", "x.item(0)")),
    "len-of-scalar": (lambda: len(f()), TypeError, ("0-d", ".item()")),
    # logic and reductions
    "compare-shapes": (
        lambda: paddle.equal(f(2, 3), f(4)), ShapeMismatch, ("[equal]", "float32[2, 3]"),
    ),
    "where-condition": (
        lambda: paddle.where(f(3), f(3), f(3)), InvalidArgument,
        ("[where]", "bool", "float32", "x > 0"),
    ),
    "reduction-axis": (
        lambda: paddle.sum(f(3, 4), axis=2), BiremeError,
        ("[sum]", "[-2, 1]", "float32[3, 4]", "2"),
    ),
    "reduction-axis-type": (
        lambda: paddle.mean(f(3, 4), axis="rows"), TypeMismatch, ("axis", "integer", "str"),
    ),
    "reduction-of-nothing": (lambda: paddle.max(f(0)), BiremeError, ("[max]", "float32[0]")),
    "topk-too-many": (lambda: paddle.topk(f(3, 4), 5), BiremeError, ("[topk]", "5", "4")),
    "cumsum-axis": (lambda: paddle.cumsum(f(3, 4), axis=7), BiremeError, ("[cumsum]", "7")),
    "argmax-string": (lambda: paddle.argmax("one"), TypeMismatch, ("[argmax]", "str 'one'")),
    # shapes
    "reshape-count": (
        lambda: f(2, 3).reshape([4]), ShapeMismatch, ("[reshape]", "[2, 3]", "6", "[4]"),
    ),
    "reshape-two-unknown": (
        lambda: f(2, 3).reshape([-1, -1]), BiremeError, ("[reshape]", "-1", "one"),
    ),
    "transpose-permutation": (
        lambda: paddle.transpose(f(2, 3), [0, 0]), BiremeError, ("[transpose]", "(0, 0)", "once"),
    ),
    "concat-shapes": (
        lambda: paddle.concat([f(2, 3), f(3, 2)]), ShapeMismatch, ("[concat]", "[2, 3]", "[3, 2]"),
    ),
    "concat-nothing": (lambda: paddle.concat([]), BiremeError, ("[concat]",)),
    "stack-shapes": (lambda: paddle.stack([f(2), f(3)]), ShapeMismatch, ("[stack]", "[2]", "[3]")),
    "split-parts": (
        lambda: paddle.split(f(4, 3), 3), BiremeError, ("[split]", "4", "3", "list"),
    ),
    "expand": (lambda: f(2, 3).expand([4, 3]), ShapeMismatch, ("[expand]", "2", "4")),
    "squeeze-axis": (lambda: paddle.squeeze(f(1, 3), 4), BiremeError, ("[squeeze]", "4")),
    "flatten-string": (lambda: paddle.flatten("one"), TypeMismatch, ("[flatten]", "str 'one'")),
    # indexing
    "index-range": (lambda: f(3, 4)[5], IndexOutOfRange, ("5", "dimension 0", "size 3", "[-3, 2]")),
    "index-too-many": (lambda: f(3, 4)[0, 0, 0], IndexError, ("2 dimensions", "[3, 4]")),
    "index-mask": (lambda: f(3, 4)[b(2)], IndexError, ("boolean", "[2]", "[3]")),
    "index-type": (lambda: f(3, 4)["one"], BiremeError, ("str", "'one'")),
    "write-shape": (lambda: write(f(3, 4), 0, f(3)), BiremeError, ("[4]", "[3]")),
    "gather-dtype": (
        lambda: paddle.gather(f(3, 4), f(2)), BiremeError,
        ("[gather]", "float32", "int"),
    ),
    "scatter-shape": (
        lambda: paddle.scatter(f(4, 3), i(2), f(2, 4)), BiremeError, ("[scatter]", "[2, 4]"),
    ),
    "masked-select-dtype": (
        lambda: paddle.masked_select(f(3), i(3)), BiremeError, ("[masked_select]", "bool", "int64"),
    ),
    # linear algebra
    "matmul": (
        lambda: paddle.matmul(f(2, 3), f(2, 3)), ShapeMismatch,
        ("[matmul]", "x has 3 and y has 2", "float32[2, 3]", "transpose_y=True would fit"),
    ),
    "matmul-scalar": (
        lambda: paddle.matmul(f(), f(3)), ShapeMismatch,
        ("[matmul]", "0-d", "x * y"),
    ),
    "bmm-rank": (lambda: paddle.bmm(f(2, 3), f(3, 4)), ShapeMismatch, ("[bmm]", "3", "[2, 3]")),
    "einsum": (
        lambda: paddle.einsum("ij,jk->ik", f(2, 3), f(4, 5)), BiremeError,
        ("[einsum]", "j", "3", "4"),
    ),
    "inverse-square": (
        lambda: paddle.linalg.inv(f(2, 3)), BiremeError,
        ("[inverse]", "[2, 3]", "square"),
    ),
    "cholesky-square": (
        lambda: paddle.linalg.cholesky(f(2, 3)), BiremeError,
        ("[cholesky]", "[2, 3]"),
    ),
    # creation
    "negative-size": (lambda: paddle.zeros([-2, 3]), BiremeError, ("[zeros]", "-2")),
    "ragged-list": (
        lambda: paddle.to_tensor([[1, 2], [3]]), TypeMismatch,
        ("[to_tensor]", "rectangular"),
    ),
    "text": (lambda: paddle.to_tensor("text"), TypeMismatch, ("[to_tensor]", "numbers", "str")),
    "arange-step": (lambda: paddle.arange(0, 5, 0), InvalidArgument, ("[arange]", "step", "0")),
    # nn.functional
    "linear": (
        lambda: F.linear(f(2, 3), f(4, 5)), ShapeMismatch,
        ("[linear]", "[2, 3]", "4", "in_features"),
    ),
    "embedding-dtype": (
        lambda: F.embedding(f(2), f(5, 3)), TypeMismatch,
        ("[embedding]", "float32", ".astype('int64')"),
    ),
    "conv-rank": (
        lambda: F.conv2d(f(3, 6, 6), f(4, 3, 3, 3)), ShapeMismatch,
        ("[conv2d]", "4 dimensions", "[3, 6, 6]"),
    ),
    "conv-channels": (
        lambda: F.conv2d(f(2, 3, 6, 6), f(4, 2, 3, 3)), ShapeMismatch,
        ("conv", "3 channels", "[out_channels, in_channels / groups, *kernel]"),
    ),
    "conv-padding": (
        lambda: F.conv2d(f(2, 3, 6, 6), f(4, 3, 3, 3), padding="HALF"), InvalidArgument,
        ("[conv2d]", "'SAME' or 'VALID'", "'HALF'"),
    ),
    "conv-string": (
        lambda: F.conv2d("one", f(4, 3, 3, 3)), TypeMismatch, ("[conv2d]", "'x'", "str 'one'"),
    ),
    "pool-rank": (
        lambda: F.max_pool2d(f(3, 6, 6), 2), ShapeMismatch,
        ("[max_pool2d]", "4 dimensions", "[3, 6, 6]"),
    ),
    "pool-kernel": (
        lambda: F.avg_pool2d(f(2, 3, 6, 6), [2, 2, 2]), InvalidArgument,
        ("[avg_pool2d]", "[2, 2, 2]"),
    ),
    "pad-mode": (
        lambda: F.pad(f(2, 3, 4, 4), [1, 1, 1, 1], mode="mirror"), InvalidArgument,
        ("[pad]", "'mirror'", "'reflect'"),
    ),
    "interpolate-nothing": (
        lambda: F.interpolate(f(1, 2, 4, 4)), InvalidArgument,
        ("[interpolate]", "size or scale_factor"),
    ),
    "dropout-p": (lambda: F.dropout(f(3), p=1.5), InvalidArgument, ("[dropout]", "[0, 1]", "1.5")),
    "softmax-axis": (
        lambda: F.softmax(f(3, 4), axis=2), BiremeError,
        ("[softmax]", "[-2, 1]", "2"),
    ),
    "softmax-dtype": (
        lambda: F.softmax(b(3)), TypeMismatch, ("[softmax]", "bool", ".astype('float32')"),
    ),
    "layer-norm": (
        lambda: F.layer_norm(f(4, 5), 4), ShapeMismatch,
        ("[layer_norm]", "[4]", "[4, 5]"),
    ),
    "group-norm": (
        lambda: F.group_norm(f(2, 4, 3, 3), 3), ShapeMismatch,
        ("[group_norm]", "4 channels", "3 groups"),
    ),
    "batch-norm": (
        lambda: F.batch_norm(f(4, 3), f(4), f(4), f(4), f(4)), ShapeMismatch,
        ("batch_norm", "3", "[4]"),
    ),
    "loss-reduction": (
        lambda: F.mse_loss(f(3), f(3), reduction="average"), InvalidArgument,
        ("[mse_loss]", "'mean'", "'average'"),
    ),
    "loss-shapes": (
        lambda: F.l1_loss(f(3, 4), f(5, 4)), ShapeMismatch, ("[l1_loss]", "[3, 4]", "[5, 4]"),
    ),
    "cross-entropy-labels": (
        lambda: F.cross_entropy(f(4, 5), i(3)), ShapeMismatch, ("[cross_entropy]", "[4]", "[3]"),
    ),
    "cross-entropy-string": (
        lambda: F.cross_entropy("one", i(3)), TypeMismatch,
        ("[cross_entropy]", "'input'", "str 'one'"),
    ),
    # layers
    "Linear": (
        lambda: paddle.nn.Linear(4, 3)(f(2, 5)), ShapeMismatch,
        ("[linear]", "[2, 5]", "float32[4, 3]"),
    ),
    "Conv2D-groups": (
        lambda: paddle.nn.Conv2D(3, 4, 3, groups=2), InvalidArgument, ("[Conv2D]", "2 groups", "3"),
    ),
    "BatchNorm2D-rank": (
        lambda: paddle.nn.BatchNorm2D(3)(f(4, 3)), ShapeMismatch, ("[BatchNorm2D]", "4D", "[4, 3]"),
    ),
    "MultiHeadAttention-heads": (
        lambda: paddle.nn.MultiHeadAttention(8, 3), InvalidArgument,
        ("[MultiHeadAttention]", "embed_dim=8", "num_heads=3"),
    ),
    "LSTM-direction": (
        lambda: paddle.nn.LSTM(3, 4, direction="sideways"), InvalidArgument,
        ("[LSTM]", "'bidirect'", "'sideways'"),
    ),
    # what Paddle answers with rubbish
    "kernel-too-large": (
        lambda: F.conv2d(f(2, 3, 6, 6), f(4, 3, 7, 7)), ShapeMismatch, ("7", "6", "smaller kernel"),
    ),
    "argmax-of-nothing": (lambda: paddle.argmax(f(0)), BiremeError, ("[argmax]", "float32[0]")),
    "mask-dtype": (
        lambda: paddle.masked_fill(f(3), i(3), 0.0), TypeMismatch, ("[masked_fill]", "int64[3]"),
    ),
    "list-index-range": (lambda: f(3, 4)[[0, 7]], IndexError, ("7", "dimension 0", "[-3, 2]")),
    "pad-pairs": (lambda: F.pad(f(2, 3, 4, 4), [1, 1, 1]), InvalidArgument, ("[pad]", "pairs")),
    # autograd
    "backward-twice": (backward_twice, AutogradError, ("second time", "retain_graph=True")),
    "overwritten": (
        overwritten, AutogradError, ("[multiply]", "in-place", "test_bad_input.py:", "clone()"),
    ),
    "leaf-in-place": (
        lambda: paddle.nn.Linear(2, 2).weight.add_(f(2, 2)), InvalidArgument,
        ("[add_]", "no_grad()"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_the_message_helps(name: str) -> None:
    call, kind, words = MISTAKES[name]
    with pytest.raises(kind) as caught:
        call()
    assert isinstance(caught.value, BiremeError)
    text = str(caught.value)
    for word in words:
        assert word in text, f"{word!r} is missing from: {text}"
    assert len(text) < 600
    assert not re.search(r"jax|Traced|0x[0-9a-f]{6}|/bireme/", text), text


@pytest.mark.parametrize("name", MISTAKES)
def test_the_traceback_shows_the_users_lines_only(name: str) -> None:
    with pytest.raises(BiremeError) as caught:
        MISTAKES[name][0]()
    frames = traceback.extract_tb(without_internal_frames(caught.value.__traceback__))
    assert frames
    assert all(frame.filename == __file__ for frame in frames), [f.filename for f in frames]
    assert not any(is_internal(frame.filename) for frame in frames)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


PROGRAM = """
import bireme as paddle

def forward(x):
    hidden = paddle.nn.functional.relu(x)
    return paddle.matmul(hidden, hidden)

forward(paddle.ones([2, 3]))
"""


def run_program(tmp_path: Any, **environment: str) -> str:
    path = tmp_path / "train.py"
    path.write_text(textwrap.dedent(PROGRAM))
    done = subprocess.run(
        [sys.executable, str(path)],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )
    assert done.returncode == 1
    return done.stderr


def test_an_uncaught_error_prints_the_users_own_lines(tmp_path: Any) -> None:
    printed = run_program(tmp_path)
    files = re.findall(r'File "([^"]+)", line (\d+)', printed)
    assert [(name.rpartition("train.py")[1], line) for name, line in files] == [
        ("train.py", "8"),
        ("train.py", "6"),
    ]
    assert "return paddle.matmul(hidden, hidden)" in printed
    assert "ShapeMismatch: [matmul]" in printed
    assert "During handling" not in printed


def test_the_full_traceback_can_be_had(tmp_path: Any) -> None:
    printed = run_program(tmp_path, BIREME_FULL_TRACEBACK="1")
    assert "op.py" in printed
    assert "ShapeMismatch: [matmul]" in printed
