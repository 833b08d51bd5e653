"""The drawing of a backward pass."""

from __future__ import annotations

import pathlib

import bireme as paddle


def test_backward_draws_what_it_walks(tmp_path: pathlib.Path) -> None:
    x = paddle.to_tensor([1.0, 2.0], stop_gradient=False)
    first, rest = (x * x).split(2)
    paddle.autograd.backward(
        [first.exp().sum(), rest.sum()], dump_backward_graph_path=str(tmp_path / "graphs")
    )
    (path,) = (tmp_path / "graphs").iterdir()
    assert path.name.endswith("_backward_graph.dot")
    text = path.read_text()
    assert text.startswith("digraph")
    assert "exp_grad" in text
    assert "float32[2]" in text
    assert text.count("multiply_grad") == 1
    assert x.grad is not None


def test_grad_and_the_method_draw_too(tmp_path: pathlib.Path) -> None:
    x = paddle.ones([2])
    x.stop_gradient = False
    paddle.grad((x * x).sum(), x, dump_backward_graph_path=str(tmp_path / "grad"))
    (x * x).sum().backward(dump_backward_graph_path=str(tmp_path / "method"))
    for folder in ("grad", "method"):
        (file,) = (tmp_path / folder).iterdir()
        assert "multiply_grad" in file.read_text()
