"""Programs: what is recorded, what runs, what is kept, and what is said when something is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import bireme as paddle
from bireme import static
from bireme.core.errors import AutogradError, CaptureError, InvalidArgument, TypeMismatch
from bireme.profiler import count_compiles

F = paddle.nn.functional


@pytest.fixture(autouse=True)
def programs() -> Iterator[tuple[Any, Any]]:
    """Static mode with fresh programs and a fresh scope."""
    main, startup = static.Program(), static.Program()
    paddle.enable_static()
    try:
        with static.scope_guard(static.Scope()), static.program_guard(main, startup):
            yield main, startup
    finally:
        paddle.disable_static()


def array(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.RandomState(seed).rand(*shape).astype("float32")


def contents(name: str) -> np.ndarray:
    found = static.global_scope().find_var(name)
    assert found is not None
    return np.array(found.get_tensor())


def regression(programs: Any, optimizer: Any) -> Any:
    x = static.data("x", [None, 4])
    loss = paddle.mean(paddle.square(static.nn.fc(x, 2) - 1.0))
    optimizer.minimize(loss)
    exe = static.Executor()
    exe.run(programs[1])
    return exe, loss


def test_variables_have_names_types_and_kinds(programs: Any) -> None:
    main, _ = programs
    x = static.data("x", [None, 4], "float64")
    y = static.nn.fc(x, 3)
    assert (x.name, x.dtype, x.stop_gradient, x.persistable) == ("x", paddle.float64, True, False)
    assert isinstance(y, static.Variable)
    assert y.shape[1] == 3
    names = [p.name for p in main.all_parameters()]
    assert [n.split(".")[1] for n in names] == ["w_0", "b_0"]
    assert all(p.persistable and not p.stop_gradient for p in main.all_parameters())
    assert [v.is_parameter for v in main.list_vars()] == [False, True, True]
    assert [v.name for v in main.list_vars()] == ["x", *names]
    block = main.global_block()
    assert block.has_var("x")
    assert not block.has_var("y")
    assert block.var("x") is x
    assert [op.type for op in block.ops] == ["matmul", "add"]
    assert block.ops[0].input_arg_names == ["x", names[0]]
    assert main.num_ops() == 2
    assert "matmul" in str(main)


def test_variables_know_their_block(programs: Any) -> None:
    main, _ = programs
    x = static.data("x", [None, 4])
    loss = static.nn.fc(x, 3).mean()
    for variable in (x, loss, main.all_parameters()[0]):
        assert variable.block == main.global_block()
        assert variable.block.program is main
    paddle.disable_static()
    assert paddle.ones([2]).block is None
    paddle.enable_static()


def test_modes() -> None:
    assert not paddle.in_dynamic_mode()
    paddle.disable_static()
    assert paddle.in_dynamic_mode()
    assert float(paddle.to_tensor(2.0) * 3) == 6.0
    paddle.enable_static()
    assert not paddle.in_dynamic_mode()


def test_eager_work_goes_on_where_it_was(programs: Any) -> None:
    paddle.disable_static()
    pending = paddle.to_tensor([1.0, 2.0]) * 3
    paddle.enable_static()
    x = static.data("x", [2])
    (got,) = static.Executor().run(feed={"x": array(2)}, fetch_list=[x + pending])
    np.testing.assert_allclose(got, array(2) + np.array([3, 6]), rtol=1e-6)
    paddle.disable_static()
    assert pending.tolist() == [3.0, 6.0]


def test_reading_a_variable_says_how_to_fetch_it() -> None:
    x = static.data("x", [None, 4])
    with pytest.raises(CaptureError, match=r"variable 'x'.*fetch_list"):
        x.numpy()
    with pytest.raises(CaptureError, match=r"\[add\].*fetch_list"):
        bool(x + 1)


@pytest.mark.parametrize(
    ("feed", "said"),
    [
        ({}, "needs 'x'.*not fed"),
        ({"x": array(2, 4).astype("complex64")}, "must be float32. Received: complex64"),
        ({"x": array(2, 5)}, r"must have shape \[-1, 4\]. Received: \[2, 5\]"),
        ({"x": array(5)}, r"must have shape"),
    ],
)
def test_bad_feeds(feed: dict[str, Any], said: str) -> None:
    x = static.data("x", [None, 4])
    with pytest.raises(InvalidArgument, match=said):
        static.Executor().run(feed=feed, fetch_list=[x * 2])


def test_a_feed_that_the_program_does_not_have_is_named() -> None:
    x = static.data("x", [None, 4])
    with pytest.warns(UserWarning, match="no input 'z'"):
        static.Executor().run(feed={"x": array(2, 4), "z": 1}, fetch_list=[x * 2])


def test_unknown_fetches_and_missing_state(programs: Any) -> None:
    x = static.data("x", [None, 4])
    y = static.nn.fc(x, 2)
    exe = static.Executor()
    with pytest.raises(InvalidArgument, match="no variable 'y'"):
        exe.run(feed={"x": array(2, 4)}, fetch_list=["y"])
    with pytest.raises(RuntimeError, match="Run the startup program first"):
        exe.run(feed={"x": array(2, 4)}, fetch_list=[y])
    with (
        static.program_guard(static.Program()),
        pytest.raises(CaptureError, match="belongs to another program"),
    ):
        _ = y + 1


def test_fetches_by_name_lists_and_tensors(programs: Any) -> None:
    x = static.data("x", [None, 2])
    y = x * 2
    exe = static.Executor()
    feed = {"x": [[1, 2]]}
    assert exe.run(feed=feed, fetch_list=[y.name])[0].tolist() == [[2, 4]]
    assert exe.run(feed=feed, fetch_list=y)[0].tolist() == [[2, 4]]
    (tensor,) = exe.run(feed=feed, fetch_list=[y], return_numpy=False)
    assert isinstance(tensor, paddle.Tensor)
    assert tensor.tolist() == [[2, 4]]
    assert exe.run(static.CompiledProgram(programs[0]), feed, ["x"])[0].tolist() == [[1, 2]]
    exe.close()
    with pytest.raises(InvalidArgument, match="closed"):
        exe.run(feed=feed, fetch_list=[y])


def test_a_training_loop_compiles_once_per_batch_size(programs: Any, monkeypatch: Any) -> None:
    from bireme.host import config

    monkeypatch.setattr(config, "compile_mode", "always")
    schedule = paddle.optimizer.lr.ExponentialDecay(0.1, 0.9)
    exe, loss = regression(programs, paddle.optimizer.Adam(schedule))
    with count_compiles() as compiled:
        for step in range(6):
            exe.run(feed={"x": array(3 if step % 2 else 5, 4)}, fetch_list=[loss])
            schedule.step()
    assert compiled == [2]


def test_the_learning_rate_is_read_in_every_run(programs: Any) -> None:
    optimizer = paddle.optimizer.SGD(0.5)
    exe, loss = regression(programs, optimizer)
    (name,) = [p.name for p in programs[0].all_parameters() if p.ndim == 2]
    feed = {"x": array(3, 4)}
    optimizer.set_lr(0.0)
    before = contents(name)
    exe.run(feed=feed, fetch_list=[loss])
    np.testing.assert_array_equal(contents(name), before)
    optimizer.set_lr(0.5)
    exe.run(feed=feed, fetch_list=[])
    assert np.abs(contents(name) - before).max() > 0.01


def test_runs_in_different_scopes_keep_apart(programs: Any) -> None:
    exe, loss = regression(programs, paddle.optimizer.Momentum(0.5))
    name = programs[0].all_parameters()[0].name
    other = static.Scope()
    exe.run(programs[1], scope=other)
    before = contents(name)
    exe.run(feed={"x": array(3, 4)}, fetch_list=[loss], scope=other)
    np.testing.assert_array_equal(contents(name), before)
    assert np.abs(other.tensor(name).numpy() - before).max() > 0


def test_gradients_may_follow_an_update(programs: Any) -> None:
    """The second loss was built on the weights that the first update replaces."""
    x = static.data("x", [None, 4])
    out = static.nn.fc(x, 2, bias_attr=False)
    paddle.optimizer.SGD(1.0).minimize(out.mean())
    (weight,) = programs[0].all_parameters()
    ((_, grad),) = static.append_backward(paddle.square(out).sum())
    exe = static.Executor()
    exe.run(programs[1])
    before, bx = contents(weight.name), array(3, 4)
    (got,) = exe.run(feed={"x": bx}, fetch_list=[grad])
    np.testing.assert_allclose(got, bx.T @ (2 * bx @ before), rtol=1e-4)
    assert np.abs(contents(weight.name) - before).max() > 0.1


def test_append_backward_names_and_refuses(programs: Any) -> None:
    x = static.data("x", [None, 4])
    out = static.nn.fc(x, 2)
    weight, bias = programs[0].all_parameters()
    ((_, of_all),) = static.append_backward(out, parameter_list=[bias])
    assert of_all.shape == bias.shape
    pairs = static.append_backward(out.mean(), no_grad_set=[bias.name])
    assert [(p.name, g.name) for p, g in pairs] == [(weight.name, f"{weight.name}@GRAD")]
    exe = static.Executor()
    exe.run(programs[1])
    (got,) = exe.run(feed={"x": array(3, 4)}, fetch_list=[f"{weight.name}@GRAD"])
    np.testing.assert_allclose(got, np.repeat(array(3, 4).mean(0)[:, None] / 2, 2, 1), rtol=1e-5)
    with pytest.warns(UserWarning, match="stop_gradient=True"):
        assert static.gradients(x * 2, x) == [None]
    with pytest.raises(InvalidArgument, match="callbacks"):
        static.append_backward(out.mean(), callbacks=[print])


def test_seeds_make_runs_repeatable(programs: Any) -> None:
    main, _ = programs
    x = static.data("x", [None, 50])
    y = F.dropout(x, 0.5)
    exe = static.Executor()
    feed = {"x": array(4, 50)}

    def twice() -> list[np.ndarray]:
        return [exe.run(feed=feed, fetch_list=[y])[0] for _ in range(2)]

    main.random_seed = 7
    first = twice()
    main.random_seed = 7
    np.testing.assert_array_equal(first, twice())
    assert not np.array_equal(*first)
    main.random_seed = 0
    paddle.seed(3)
    first = twice()
    paddle.seed(3)
    np.testing.assert_array_equal(first, twice())


def test_a_startup_program_starts_over(programs: Any) -> None:
    exe, _ = regression(programs, paddle.optimizer.Adam(0.1))
    name = programs[0].all_parameters()[0].name
    first = contents(name)
    exe.run(feed={"x": array(3, 4)})
    (moment,) = [n for n in programs[0].state_names("opt") if f"{name}_moment1" in n]
    assert np.abs(contents(moment)).max() > 0
    exe.run(programs[1])
    assert np.abs(contents(moment)).max() == 0
    assert not np.array_equal(contents(name), first)


def test_state_dicts(programs: Any) -> None:
    main, _ = programs
    exe, _ = regression(programs, paddle.optimizer.Adam(0.1))
    exe.run(feed={"x": array(3, 4)})
    assert set(main.state_dict("param")) == {p.name for p in main.all_parameters()}
    saved = {k: v.numpy() for k, v in main.state_dict().items()}
    exe.run(feed={"x": array(3, 4)})
    main.set_state_dict(saved)
    for name, want in saved.items():
        np.testing.assert_array_equal(contents(name), want)
    weight = main.all_parameters()[0].name
    with pytest.raises(InvalidArgument, match="has shape"):
        main.set_state_dict({weight: np.zeros(3)})


def test_the_same_layers_in_two_programs(programs: Any) -> None:
    x = static.data("x", [None, 4])
    layer = paddle.nn.Linear(4, 2)
    paddle.optimizer.SGD(0.5).minimize(layer(x).mean())
    exe = static.Executor()
    exe.run(programs[1])
    exe.run(feed={"x": array(3, 4)})
    other = static.Program()
    with static.program_guard(other, programs[1]):
        y = layer(static.data("x", [None, 4]))
    (got,) = exe.run(other, feed={"x": array(3, 4)}, fetch_list=[y])
    want = array(3, 4) @ contents(layer.weight.name) + contents(layer.bias.name)
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_a_captured_function_is_part_of_the_program(programs: Any) -> None:
    paddle.disable_static()

    @paddle.jit.to_static
    def double(x: Any) -> Any:
        return x * 2

    paddle.enable_static()
    y = double(static.data("x", [None, 2]))
    assert static.Executor().run(feed={"x": [[1, 2]]}, fetch_list=[y])[0].tolist() == [[2, 4]]


def test_control_flow_in_a_program(programs: Any) -> None:
    x = static.data("x", [None, 2])
    x.stop_gradient = False
    y = static.nn.cond(x.sum() > 0, lambda: x * x, lambda: x * 3)
    _, z = static.nn.while_loop(
        lambda i, a: i < 3, lambda i, a: [i + 1, a * 2], [paddle.full([], 0, "int64"), y]
    )
    (grad,) = static.gradients(y.sum(), x)
    exe = static.Executor()
    for start, values, slope in (([[1.0, 2.0]], [[8, 32]], [[2, 4]]), ([[-1.0, -2.0]], None, None)):
        got = exe.run(feed={"x": start}, fetch_list=[z, grad])
        want = values or [[-24, -48]]
        assert got[0].tolist() == want
        assert got[1].tolist() == (slope or [[3, 3]])


def test_name_scope_shows_in_the_details(programs: Any) -> None:
    x = static.data("x", [2])
    with static.name_scope("outer"), static.name_scope("inner"):
        x = x + 1
    _ = x * 2
    for program in (programs[0], programs[0].clone()):
        details = program.to_string(True, with_details=True)
        assert "/outer/inner/add: " in details
        assert "  /multiply: " in details


def test_weight_norm(programs: Any) -> None:
    x = static.data("x", [None, 4])
    y = static.nn.fc(x, 3, weight_attr=static.WeightNormParamAttr(dim=1, name="n"), bias_attr=False)
    names = [p.name for p in programs[0].all_parameters()]
    assert names == ["n.w_v", "n.w_g"]
    exe = static.Executor()
    exe.run(programs[1])
    v, g = map(contents, names)
    np.testing.assert_allclose(g, np.linalg.norm(v, axis=0, keepdims=True), rtol=1e-6)
    programs[0].set_state_dict({"n.w_g": 2 * g})
    (got,) = exe.run(feed={"x": array(3, 4)}, fetch_list=[y])
    np.testing.assert_allclose(got, array(3, 4) @ v * 2, rtol=1e-5)


def test_moving_average(programs: Any) -> None:
    x = static.data("x", [None, 4])
    out = static.nn.fc(x, 2, bias_attr=False)
    paddle.optimizer.SGD(0.5).minimize(out.mean())
    average = static.ExponentialMovingAverage(0.7)
    average.update()
    exe = static.Executor()
    exe.run(programs[1])
    (weight,) = programs[0].all_parameters()
    want, total = 0.0, 0.0
    for step in range(4):
        exe.run(feed={"x": array(3, 4, seed=step)})
        want = 0.7 * want + 0.3 * contents(weight.name)
        total = 0.7 * total + 0.3
    now = contents(weight.name)
    with average.apply(exe):
        np.testing.assert_allclose(contents(weight.name), want / total, rtol=1e-5)
    np.testing.assert_array_equal(contents(weight.name), now)


def test_a_gradient_of_ones_own(programs: Any) -> None:
    x = static.data("x", [2])
    x.stop_gradient = False
    y = static.nn.static_pylayer(lambda a: a * 2, [x], lambda g: g * 10)
    (grad,) = static.gradients(y.sum(), x)
    got = static.Executor().run(feed={"x": [1.0, 2.0]}, fetch_list=[y, grad])
    assert got[0].tolist() == [2, 4]
    assert got[1].tolist() == [10, 10]


def test_precision_recall_area(programs: Any) -> None:
    scores, labels = np.array([0.9, 0.7, 0.6, 0.2], "float32"), np.array([1, 0, 1, 0])
    x, y = static.data("x", [None, 2]), static.data("y", [None, 1], "int64")
    area, recent, _ = static.auc(x, y, curve="PR")
    exe = static.Executor()
    exe.run(programs[1])
    feed = {"x": np.stack([1 - scores, scores], 1), "y": labels[:, None]}
    got = exe.run(feed=feed, fetch_list=[area, recent])
    # Recall goes from 0 to 1/2 at precision 1, then to 1 while precision goes from 1/2 to 2/3.
    want = 0.5 * 1.0 + 0.5 * (1 / 2 + 2 / 3) / 2
    np.testing.assert_allclose(got, [want, want])


def test_unknown_sizes_are_minus_one_and_more(programs: Any) -> None:
    x = static.data("x", [None, 4, -1])
    assert x.shape == [-1, 4, -1]
    assert x.shape != [2, 4, 3]
    assert str(x.shape) == "paddle.Size([-1, 4, -1])"
    y = paddle.reshape(x, [x.shape[0], 4 * x.shape[2]])  # an entry can be computed with
    (got,) = static.Executor().run(feed={"x": array(2, 4, 3)}, fetch_list=[y])
    assert got.shape == (2, 12)
    paddle.disable_static()
    assert paddle.ones([2, 3]).shape == [2, 3]
    paddle.enable_static()


def test_variables_print_without_values(programs: Any) -> None:
    x = static.data("x", [None, 4])
    assert repr(x) == (
        "Variable(name='x', shape=[-1, 4], dtype=float32, stop_gradient=True, persistable=False)"
    )
    layer = paddle.nn.Linear(4, 2)
    assert "shape=[4, 2]" in repr(layer.weight)


def test_set_value_goes_to_the_scope(programs: Any) -> None:
    x = static.data("x", [None, 4])
    layer = paddle.nn.Linear(4, 2)
    y = layer(x)
    paddle.optimizer.SGD(0.1).minimize(y.mean())
    exe = static.Executor()
    exe.run(programs[1])
    with static.program_guard(static.Program()):  # whichever program is being written
        layer.weight.set_value(array(4, 2, seed=5))
    np.testing.assert_array_equal(contents(layer.weight.name), array(4, 2, seed=5))
    exe.run(feed={"x": array(3, 4)})
    assert np.abs(contents(layer.weight.name) - array(4, 2, seed=5)).max() > 0


def test_datasets(programs: Any, capsys: pytest.CaptureFixture[str]) -> None:
    exe, loss = regression(programs, paddle.optimizer.SGD(0.5))
    name = programs[0].all_parameters()[0].name
    feeds = [{"x": array(3, 4, seed=i)} for i in range(5)]
    before = contents(name)
    exe.infer_from_dataset(programs[0], feeds, fetch_list=[loss], fetch_info=["loss"])
    np.testing.assert_array_equal(contents(name), before)
    assert capsys.readouterr().out.startswith("loss: ")
    seen: list[Any] = []

    class Handler:
        def handler(self, found: dict[str, Any]) -> None:
            seen.append(found["loss"])

    exe.train_from_dataset(
        programs[0], feeds, fetch_list=[loss], fetch_info=["loss"], print_period=2,
        fetch_handler=Handler(),
    )  # fmt: skip
    assert len(seen) == 3
    assert np.abs(contents(name) - before).max() > 0.01


def test_pruned_runs_leave_the_state_alone(programs: Any) -> None:
    exe, loss = regression(programs, paddle.optimizer.SGD(0.5))
    name = programs[0].all_parameters()[0].name
    before = contents(name)
    exe.run(feed={"x": array(3, 4)}, fetch_list=[loss], use_prune=True)
    np.testing.assert_array_equal(contents(name), before)


def test_a_copy_does_not_guess_a_gradient(programs: Any) -> None:
    x = static.data("x", [2])
    x.stop_gradient = False
    loss = static.nn.static_pylayer(lambda a: a * 2, [x], lambda g: g * 10).sum()
    copy = programs[0].clone()
    with static.program_guard(copy), pytest.raises(AutogradError, match="clone then"):
        static.gradients(copy.find_copy(loss), copy.find_copy(x))


def test_autocast_while_a_program_is_written(programs: Any) -> None:
    x = static.data("x", [None, 4])
    layer = paddle.nn.Linear(4, 2)
    with paddle.amp.auto_cast(level="O1", dtype="bfloat16"):
        y = layer(x)
    assert y.dtype == paddle.bfloat16
    paddle.optimizer.SGD(0.5).minimize(y.astype("float32").mean())
    exe = static.Executor()
    exe.run(programs[1])
    before = contents(layer.weight.name)
    exe.run(feed={"x": array(3, 4)})
    want = np.repeat(array(3, 4).sum(0)[:, None] / 6 * 0.5, 2, 1)
    np.testing.assert_allclose(before - contents(layer.weight.name), want, rtol=2e-2)


def test_master_weights_start_as_the_parameters(programs: Any) -> None:
    x = static.data("x", [None, 4], "float16")
    out = static.nn.fc(x, 2, bias_attr=False)
    paddle.optimizer.SGD(1e-4, multi_precision=True).minimize(out.astype("float32").mean())
    exe = static.Executor()
    exe.run(programs[1])
    (weight,) = programs[0].all_parameters()
    (master,) = [n for n in programs[0].state_names("opt") if "fp32_master" in n]
    start = contents(weight.name).astype("float32")
    np.testing.assert_array_equal(contents(master), start)
    given = np.ones((2, 4), "float16")
    for _ in range(8):  # each step is too small for float16 to notice
        exe.run(feed={"x": given})
    np.testing.assert_allclose(contents(master), start - 8 * 1e-4 / 2, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(contents(weight.name), contents(master).astype("float16"))


def test_deformable_convolution_without_offsets_is_a_convolution(programs: Any) -> None:
    x = static.data("x", [None, 2, 5, 5])
    offset = static.data("offset", [None, 18, 5, 5])
    start = paddle.nn.initializer.Assign(array(3, 2, 3, 3))
    attr = paddle.ParamAttr(initializer=start)
    one = static.nn.deform_conv2d(x, offset, None, 3, 3, padding=1, weight_attr=attr)
    two = static.nn.conv2d(x, 3, 3, padding=1, param_attr=attr)
    exe = static.Executor()
    exe.run(programs[1])
    feed = {"x": array(2, 2, 5, 5), "offset": np.zeros((2, 18, 5, 5), "float32")}
    got = exe.run(feed=feed, fetch_list=[one, two])
    np.testing.assert_allclose(got[0], got[1], rtol=1e-4, atol=1e-5)


def test_minimize_by_names(programs: Any) -> None:
    x = static.data("x", [None, 4])
    loss = static.nn.fc(x, 2).mean()
    weight, bias = programs[0].all_parameters()
    optimizer = paddle.optimizer.SGD(0.5)
    with pytest.raises(InvalidArgument, match="no parameter 'nobody'"):
        optimizer.minimize(loss, parameters=["nobody"])
    _, pairs = optimizer.minimize(loss, parameters=[bias.name])
    assert [p.name for p, _ in pairs] == [bias.name]
    exe = static.Executor()
    exe.run(programs[1])
    before = contents(weight.name)
    exe.run(feed={"x": array(3, 4)})
    np.testing.assert_array_equal(contents(weight.name), before)
    np.testing.assert_allclose(contents(bias.name), [-0.25, -0.25])


def test_branches_and_loops_are_for_testing_too(programs: Any) -> None:
    x = static.data("x", [None, 40])
    y = static.nn.cond(x.sum() > 0, lambda: F.dropout(x, 0.5) * 2, lambda: x * 3)
    _, z = static.nn.while_loop(
        lambda i, a: i < 2,
        lambda i, a: [i + 1, F.dropout(a, 0.5) + paddle.uniform(a.shape, min=1.0, max=1.0)],
        [paddle.full([], 0, "int64"), y],
    )
    test = programs[0].clone(for_test=True)
    exe = static.Executor()
    for sign in (1, -1):
        feed = {"x": sign * (array(2, 40) + 1)}
        want = feed["x"] * (2 if sign > 0 else 3)
        got = exe.run(test, feed=feed, fetch_list=[y, z])
        np.testing.assert_allclose(got[0], want, rtol=1e-6)
        np.testing.assert_allclose(got[1], want + 2, rtol=1e-6)
    trained = exe.run(feed={"x": array(2, 40) + 1}, fetch_list=[y])[0]
    assert (trained == 0).any()


def test_state_that_another_program_changes(programs: Any) -> None:
    x = static.data("x", [None, 4])
    layer = paddle.nn.Linear(4, 2)
    y = layer(x)
    with static.program_guard(static.Program()):
        layer.weight._put((layer.weight * 2)._value)
    with pytest.raises(InvalidArgument, match="outside of this program"):
        static.Executor().run(feed={"x": array(3, 4)}, fetch_list=[y])


def test_a_length_that_is_not_known_yet(programs: Any) -> None:
    x = static.data("x", [None, 4])
    for look in (len, list):
        with pytest.raises(TypeMismatch, match=r"\[-1, 4\]\) is not known while"):
            look(x)
    assert len(static.data("y", [3, 4])) == 3
