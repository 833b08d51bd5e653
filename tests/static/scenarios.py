"""Static programs that are run twice, with Bireme here and with the real wheel in a subprocess:

    FLAGS_enable_pir_api=0 python scenarios.py out.npz old
    python scenarios.py out.npz new

Each scenario takes the `paddle` module and returns arrays by name. Weights come from a seed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

SCENARIOS: dict[str, Callable[[Any], dict[str, Any]]] = {}
OLD: set[str] = set()


def scenario(function: Callable[[Any], dict[str, Any]]) -> Callable[[Any], dict[str, Any]]:
    SCENARIOS[function.__name__] = function
    return function


def old(function: Callable[[Any], dict[str, Any]]) -> Callable[[Any], dict[str, Any]]:
    """A scenario with functions that the wheel has in its older representation only."""
    OLD.add(function.__name__)
    return scenario(function)


class Weights:
    """Parameter attributes with contents from a seed, the same for both libraries."""

    def __init__(self, paddle: Any, seed: int = 0):
        self.paddle, self.rng = paddle, np.random.RandomState(seed)

    def __call__(self, *shape: int, **settings: Any) -> Any:
        array = (self.rng.rand(*shape) - 0.5).astype("float32")
        start = self.paddle.nn.initializer.Assign(array)
        return self.paddle.ParamAttr(initializer=start, **settings)


def programs(paddle: Any) -> tuple[Any, Any]:
    return paddle.static.Program(), paddle.static.Program()


def batches(count: int, *shapes: tuple[int, ...], classes: int = 3, seed: int = 1) -> Any:
    rng = np.random.RandomState(seed)
    for _ in range(count):
        xs = [rng.rand(*s).astype("float32") for s in shapes]
        yield (*xs, rng.randint(0, classes, (shapes[0][0], 1)).astype("int64"))


def _mlp(paddle: Any, make_optimizer: Callable[[Any], Any], **weight: Any) -> dict[str, Any]:
    static, functional = paddle.static, paddle.nn.functional
    main, startup = programs(paddle)
    w = Weights(paddle)
    with static.program_guard(main, startup):
        x = static.data("x", [None, 4], "float32")
        y = static.data("y", [None, 1], "int64")
        h = static.nn.fc(x, 8, weight_attr=w(4, 8, **weight), bias_attr=w(8), activation="tanh")
        out = static.nn.fc(h, 3, weight_attr=w(8, 3), bias_attr=w(3))
        loss = functional.cross_entropy(out, y)
        optimizer = make_optimizer(paddle)
        _, pairs = optimizer.minimize(loss)
    exe = static.Executor(paddle.CPUPlace())
    exe.run(startup)
    pairs = sorted(pairs, key=lambda pair: (len(pair[0].shape), *pair[0].shape))
    losses, grads = [], []
    rate = optimizer._learning_rate
    for bx, by in batches(6, (5, 4)):
        got = exe.run(main, feed={"x": bx, "y": by}, fetch_list=[loss, *[g for _, g in pairs]])
        losses.append(got[0])
        grads = got[1:]
        if hasattr(rate, "step"):
            rate.step()
    state = [np.array(static.global_scope().find_var(p.name).get_tensor()) for p, _ in pairs]
    named = {f"grad{i}": g for i, g in enumerate(grads)}
    named |= {f"param{i}": s for i, s in enumerate(state)}
    return {"losses": np.array(losses), **named}


@scenario
def mlp_sgd(paddle: Any) -> dict[str, Any]:
    return _mlp(paddle, lambda p: p.optimizer.SGD(0.5))


@scenario
def mlp_adam_decay_clip(paddle: Any) -> dict[str, Any]:
    return _mlp(
        paddle,
        lambda p: p.optimizer.Adam(
            p.optimizer.lr.StepDecay(0.1, step_size=2),
            weight_decay=p.regularizer.L2Decay(0.01),
            grad_clip=p.nn.ClipGradByGlobalNorm(0.1),
        ),
    )


@scenario
def mlp_momentum_own_settings(paddle: Any) -> dict[str, Any]:
    return _mlp(
        paddle,
        lambda p: p.optimizer.Momentum(
            p.optimizer.lr.PiecewiseDecay([2, 4], [0.2, 0.1, 0.05]), 0.9, use_nesterov=True
        ),
        learning_rate=0.5,
        regularizer=paddle.regularizer.L1Decay(0.02),
    )


@scenario
def mlp_adamw_by_norm(paddle: Any) -> dict[str, Any]:
    return _mlp(
        paddle,
        lambda p: p.optimizer.AdamW(
            p.optimizer.lr.NoamDecay(16, 3), grad_clip=p.nn.ClipGradByNorm(0.05)
        ),
    )


@old
def cnn_batch_norm(paddle: Any) -> dict[str, Any]:
    static, functional = paddle.static, paddle.nn.functional
    main, startup = programs(paddle)
    w = Weights(paddle)
    with static.program_guard(main, startup):
        x = static.data("x", [-1, 2, 8, 8], "float32")
        y = static.data("y", [-1, 1], "int64")
        h = static.nn.conv2d(x, 4, 3, padding=1, param_attr=w(4, 2, 3, 3), bias_attr=w(4))
        h = static.nn.batch_norm(
            h, act="relu", param_attr=w(4), bias_attr=w(4), moving_mean_name="moving_mean",
            moving_variance_name="moving_variance",
        )  # fmt: skip
        h = functional.max_pool2d(h, 2)
        out = static.nn.fc(h, 3, weight_attr=w(64, 3), bias_attr=w(3))
        loss = functional.cross_entropy(out, y)
        paddle.optimizer.SGD(0.1).minimize(loss)
    exe = static.Executor(paddle.CPUPlace())
    exe.run(startup)
    losses = [
        exe.run(main, feed={"x": bx, "y": by}, fetch_list=[loss])[0]
        for bx, by in batches(5, (6, 2, 8, 8))
    ]
    find = static.global_scope().find_var
    return {
        "losses": np.array(losses),
        "mean": np.array(find("moving_mean").get_tensor()),
        "variance": np.array(find("moving_variance").get_tensor()),
    }


@old
def embedding_lstm(paddle: Any) -> dict[str, Any]:
    static, functional = paddle.static, paddle.nn.functional
    main, startup = programs(paddle)
    w = Weights(paddle)
    with static.program_guard(main, startup):
        ids = static.data("ids", [None, 7], "int64")
        y = static.data("y", [None, 1], "int64")
        h = static.nn.embedding(ids, [11, 6], param_attr=w(11, 6))
        lstm = paddle.nn.LSTM(
            6, 5, weight_ih_attr=w(20, 6), weight_hh_attr=w(20, 5), bias_ih_attr=w(20),
            bias_hh_attr=w(20),
        )  # fmt: skip
        seq, _ = lstm(h)
        out = static.nn.fc(seq[:, -1], 3, weight_attr=w(5, 3), bias_attr=w(3))
        loss = paddle.mean(functional.cross_entropy(out, y))
        paddle.optimizer.Adam(0.05).minimize(loss)
    exe = static.Executor(paddle.CPUPlace())
    exe.run(startup)
    rng, losses = np.random.RandomState(3), []
    for size in (4, 4, 6, 2):
        feed = {"ids": rng.randint(0, 11, (size, 7)), "y": rng.randint(0, 3, (size, 1))}
        losses.append(exe.run(main, feed=feed, fetch_list=[loss])[0])
    return {"losses": np.array(losses)}


@scenario
def gradients_of_inputs(paddle: Any) -> dict[str, Any]:
    static = paddle.static
    main, startup = programs(paddle)
    with static.program_guard(main, startup):
        x = static.data("x", [None, 3], "float32")
        x.stop_gradient = False
        y = paddle.tanh(x * x) + paddle.square(x)
        (dx,) = static.gradients([y], [x])
        (ddx,) = static.gradients([dx], [x])
        weighted = static.data("g", [None, 3], "float32")
        (dxg,) = static.gradients(y, x, target_gradients=weighted)
    exe = static.Executor()
    bx, bg = (a for a in np.random.RandomState(0).rand(2, 4, 3).astype("float32"))
    got = exe.run(main, feed={"x": bx, "g": bg}, fetch_list=[dx, ddx, dxg])
    return dict(zip(("dx", "ddx", "dxg"), got, strict=True))


@old
def layer_functions(paddle: Any) -> dict[str, Any]:
    static, nn = paddle.static, paddle.static.nn
    main, startup = programs(paddle)
    w = Weights(paddle)
    with static.program_guard(main, startup):
        x = static.data("x", [None, 4, 6, 6], "float32")
        flat = static.data("flat", [None, 5], "float32")
        other = static.data("other", [None, 3], "float32")
        outs = {
            "fc_flat": nn.fc(x, 3, weight_attr=w(144, 3), bias_attr=w(3)),
            "fc_last": nn.fc(x, 3, 3, weight_attr=w(6, 3), bias_attr=False),
            "fc_two": nn.fc([flat, other], 2, weight_attr=[w(5, 2), w(3, 2)], bias_attr=w(2)),
            "transposed": nn.conv2d_transpose(
                x, 3, filter_size=3, stride=2, padding=1, param_attr=w(4, 3, 3, 3), bias_attr=w(3)
            ),
            "transposed_sized": nn.conv2d_transpose(
                x, 2, output_size=12, stride=2, param_attr=w(4, 2, 2, 2), bias_attr=w(2)
            ),
            "grouped": nn.conv2d(
                x, 6, 3, stride=2, padding="SAME", groups=2, param_attr=w(6, 2, 3, 3),
                bias_attr=w(6), act="relu",
            ),
            "layer_norm": nn.layer_norm(x, begin_norm_axis=2, param_attr=w(36), bias_attr=w(36)),
            "group_norm": nn.group_norm(x, 2, param_attr=w(4), bias_attr=w(4), act="sigmoid"),
            "instance_norm": nn.instance_norm(x, param_attr=w(4), bias_attr=w(4)),
            "prelu_all": nn.prelu(x - 0.5, "all", param_attr=w(1)),
            "prelu_channel": nn.prelu(x - 0.5, "channel", param_attr=w(1, 4, 1, 1)),
            "prelu_element": nn.prelu(x - 0.5, "element", param_attr=w(1, 4, 6, 6)),
            "bilinear": nn.bilinear_tensor_product(
                flat, other, 4, param_attr=w(4, 5, 3), bias_attr=w(1, 4)
            ),
        }  # fmt: skip
    exe = static.Executor()
    exe.run(startup)
    rng = np.random.RandomState(5)
    feed = {
        "x": rng.rand(2, 4, 6, 6).astype("float32"),
        "flat": rng.rand(2, 5).astype("float32"),
        "other": rng.rand(2, 3).astype("float32"),
    }
    return dict(zip(outs, exe.run(main, feed=feed, fetch_list=list(outs.values())), strict=True))


@old
def volumes_and_sequences(paddle: Any) -> dict[str, Any]:
    static, nn = paddle.static, paddle.static.nn
    main, startup = programs(paddle)
    w = Weights(paddle)
    with static.program_guard(main, startup):
        x = static.data("x", [None, 4, 5, 6, 6], "float32")
        steps = static.data("steps", [None, 7, 3], "float32")
        weight = static.data("weight", [4, 3, 2], "float32")
        x.stop_gradient = steps.stop_gradient = False
        outs = {
            "conv3d": nn.conv3d(
                x, 6, 3, stride=2, padding=1, groups=2, param_attr=w(6, 2, 3, 3, 3),
                bias_attr=w(6), act="relu",
            ),
            "conv3d_last": nn.conv3d(
                paddle.transpose(x, [0, 2, 3, 4, 1]), 2, [1, 3, 3], dilation=2,
                param_attr=w(2, 4, 1, 3, 3), bias_attr=False, data_format="NDHWC",
            ),
            "transposed": nn.conv3d_transpose(
                x, 3, filter_size=3, stride=2, padding=1, param_attr=w(4, 3, 3, 3, 3),
                bias_attr=w(3), act="tanh",
            ),
            "transposed_sized": nn.conv3d_transpose(
                x, 2, output_size=[10, 12, 12], stride=2, param_attr=w(4, 2, 2, 2, 2),
                bias_attr=w(2),
            ),
            "row_conv": nn.row_conv(steps, 2, param_attr=w(3, 3), act="sigmoid"),
            # So many turns end in one place, wherever they begin.
            "norm_0": nn.spectral_norm(weight, dim=0, power_iters=200),
            "norm_1": nn.spectral_norm(weight, dim=1, power_iters=200, eps=1e-6),
        }  # fmt: skip
        total = sum((out * out).mean() for out in outs.values())
        outs |= dict(zip(("dx", "dsteps"), static.gradients([total], [x, steps]), strict=True))
    exe = static.Executor()
    exe.run(startup)
    rng = np.random.RandomState(5)
    feed = {
        "x": rng.rand(2, 4, 5, 6, 6).astype("float32"),
        "steps": rng.rand(2, 7, 3).astype("float32"),
        "weight": rng.rand(4, 3, 2).astype("float32"),
    }
    return dict(zip(outs, exe.run(main, feed=feed, fetch_list=list(outs.values())), strict=True))


@old
def shared_parameter_and_frozen(paddle: Any) -> dict[str, Any]:
    static = paddle.static
    main, startup = programs(paddle)
    w = Weights(paddle)
    with static.program_guard(main, startup):
        x = static.data("x", [None, 4], "float32")
        shared = w(4, 4, name="shared_by_two")
        fixed = w(4, trainable=False)
        h = static.nn.fc(x, 4, weight_attr=shared, bias_attr=fixed, activation="tanh")
        h = static.nn.fc(h, 4, weight_attr=shared, bias_attr=False)
        loss = paddle.mean(h * h)
        pairs = static.append_backward(loss)
        (gradient,) = [g for p, g in pairs if p.name == "shared_by_two"]
    exe = static.Executor()
    exe.run(startup)
    bx = np.random.RandomState(0).rand(3, 4).astype("float32")
    got = exe.run(main, feed={"x": bx}, fetch_list=[loss, gradient])
    return {"loss": got[0], "gradient": got[1], "count": np.array(len(pairs))}


@old
def state_that_counts(paddle: Any) -> dict[str, Any]:
    static = paddle.static
    main, startup = programs(paddle)
    with static.program_guard(main, startup):
        x = static.data("x", [2], "float32")
        total = static.create_global_var([2], 1.5, "float32", persistable=True, name="total")
        paddle.assign(total + x, total)
        twice = total * 2
    exe = static.Executor()
    exe.run(startup)
    feed = {"x": np.array([1, 2], "float32")}
    got = [exe.run(main, feed=feed, fetch_list=[twice])[0] for _ in range(3)]
    return {"twice": np.array(got)}


@old
def clone_for_test(paddle: Any) -> dict[str, Any]:
    """Dropout and batch norm in testing, cloned before and after minimize."""
    static, functional = paddle.static, paddle.nn.functional
    main, startup = programs(paddle)
    w = Weights(paddle)
    with static.program_guard(main, startup):
        x = static.data("x", [None, 4], "float32")
        y = static.data("y", [None, 1], "int64")
        h = static.nn.fc(x, 6, weight_attr=w(4, 6), bias_attr=w(6))
        h = static.nn.batch_norm(h, param_attr=w(6), bias_attr=w(6))
        h = functional.dropout(h, 0.3, mode="downscale_in_infer")
        h = h + functional.dropout(h, 1.0, mode="downscale_in_infer")
        out = static.nn.fc(functional.dropout(h, 0.0), 3, weight_attr=w(6, 3), bias_attr=w(3))
        loss = functional.cross_entropy(out, y)
        before = main.clone(for_test=True)
        paddle.optimizer.SGD(0.0).minimize(loss)
        after = main.clone(for_test=True)
    exe = static.Executor()
    exe.run(startup)
    results: dict[str, Any] = {}
    for i, (bx, by) in enumerate(batches(3, (7, 4))):
        feed = {"x": bx, "y": by}
        exe.run(main, feed=feed)
        results[f"before{i}"] = exe.run(before, feed=feed, fetch_list=[loss])[0]
        results[f"after{i}"] = exe.run(after, feed=feed, fetch_list=[loss.name])[0]
    return results


@old
def metrics(paddle: Any) -> dict[str, Any]:
    static = paddle.static
    main, startup = programs(paddle)
    with static.program_guard(main, startup):
        x = static.data("x", [None, 2], "float32")
        y = static.data("y", [None, 1], "int64")
        share = static.accuracy(x, y)
        area, recent, _ = static.auc(x, y, num_thresholds=100)
        whole, _, _ = static.auc(x, y, num_thresholds=50, slide_steps=0)
    exe = static.Executor()
    exe.run(startup)
    rng, got = np.random.RandomState(2), []
    for _ in range(3):
        up = rng.rand(20, 1).astype("float32")
        feed = {"x": np.concatenate([1 - up, up], 1), "y": rng.randint(0, 2, (20, 1))}
        got.append(exe.run(main, feed=feed, fetch_list=[share, area, recent, whole]))
    names = ("share", "area", "recent", "whole")
    return {n: np.array([np.ravel(g[i])[0] for g in got]) for i, n in enumerate(names)}


@scenario
def two_players(paddle: Any) -> dict[str, Any]:
    """Two optimizers on parts of one program, as in adversarial training."""
    static = paddle.static
    main, startup = programs(paddle)
    w = Weights(paddle)
    with static.program_guard(main, startup):
        x = static.data("x", [None, 4], "float32")
        first = paddle.nn.Linear(4, 4, weight_attr=w(4, 4), bias_attr=w(4))
        second = paddle.nn.Linear(4, 1, weight_attr=w(4, 1), bias_attr=w(1))
        one = paddle.mean(second(paddle.tanh(first(x))))
        paddle.optimizer.SGD(0.2, parameters=second.parameters()).minimize(one)
        two = paddle.mean(paddle.square(second(paddle.tanh(first(x)))))
        paddle.optimizer.Adam(0.1, parameters=first.parameters()).minimize(two)
    exe = static.Executor()
    exe.run(startup)
    got = [exe.run(main, feed={"x": bx}, fetch_list=[one, two]) for bx, _ in batches(4, (3, 4))]
    return {"one": np.array([g[0] for g in got]), "two": np.array([g[1] for g in got])}


@scenario
def sequences_of_two_lengths(paddle: Any) -> dict[str, Any]:
    """Source and target length are both unknown, and differ."""
    static, functional = paddle.static, paddle.nn.functional
    main, startup = programs(paddle)
    w = Weights(paddle)
    with static.program_guard(main, startup):
        source = static.data("source", [None, None, 4], "float32")
        target = static.data("target", [None, None, 4], "float32")
        mix = paddle.nn.Linear(4, 4, weight_attr=w(4, 4), bias_attr=w(4))
        weights = functional.softmax(paddle.matmul(mix(target), source, transpose_y=True))
        out = paddle.tanh(paddle.matmul(weights, source))
        loss = paddle.mean(paddle.square(out - target))
        paddle.optimizer.SGD(0.5).minimize(loss)
    exe = static.Executor()
    exe.run(startup)
    rng, losses = np.random.RandomState(4), []
    for long, short in ((5, 3), (3, 3), (4, 6), (5, 3)):
        feed = {
            "source": rng.rand(2, long, 4).astype("float32"),
            "target": rng.rand(2, short, 4).astype("float32"),
        }
        losses.append(exe.run(main, feed=feed, fetch_list=[loss])[0])
    return {"losses": np.array(losses)}


@scenario
def encoder_layer(paddle: Any) -> dict[str, Any]:
    """Contents that are put into the scope by hand."""
    static = paddle.static
    main, startup = programs(paddle)
    with static.program_guard(main, startup):
        x = static.data("x", [None, 5, 8], "float32")
        layer = paddle.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0)
        loss = paddle.mean(paddle.square(layer(x) - 0.3))
        paddle.optimizer.AdamW(0.01, epsilon=1e-3).minimize(loss)
    exe = static.Executor()
    exe.run(startup)
    rng = np.random.RandomState(6)
    for p in layer.parameters():
        array = (rng.rand(*p.shape) - 0.5).astype("float32")
        static.global_scope().find_var(p.name).get_tensor().set(array, paddle.CPUPlace())
    data = batches(4, (3, 5, 8))
    losses = [exe.run(main, feed={"x": bx}, fetch_list=[loss])[0] for bx, _ in data]
    return {"losses": np.array(losses)}


@scenario
def choices_with_gradients(paddle: Any) -> dict[str, Any]:
    """cond, case and switch_case: values, and gradients by inputs and parameters."""
    static = paddle.static
    main, startup = programs(paddle)
    w = Weights(paddle)
    with static.program_guard(main, startup):
        x = static.data("x", [3], "float32")
        k = static.data("k", [1], "int32")
        x.stop_gradient = False
        p = static.create_parameter([3], "float32", attr=w(3))
        s = x.sum()
        a = static.nn.cond(s > 0, lambda: x * p, lambda: x - p * p)
        b, c = static.nn.cond(s > 1, lambda: (a * 2, p), lambda: (a * x, p * x))
        d = static.nn.case(
            [(s > 2, lambda: x * x), (s > 0, lambda: x * 0.5)], default=lambda: x * 3
        )
        e = static.nn.switch_case(
            k, {1: lambda: x * 2, 3: lambda: p * x}, default=lambda: x * x * x
        )
        loss = (a + b * c + d * e).sum()
        dx, dp = static.gradients([loss], [x, p])
    exe = static.Executor(paddle.CPUPlace())
    exe.run(startup)
    results = {}
    names = ("a", "b", "c", "d", "e", "loss", "dx", "dp")
    for i, scale in enumerate((3.0, 0.2, -1.0, 0.5)):
        feed = {
            "x": np.array([1.0, -0.5, 0.75], "float32") * np.float32(scale),
            "k": np.array([i], "int32"),
        }
        got = exe.run(main, feed=feed, fetch_list=[a, b, c, d, e, loss, dx, dp])
        results |= {f"{n}{i}": v for n, v in zip(names, got, strict=True)}
    return results


@scenario
def loops_with_gradients(paddle: Any) -> dict[str, Any]:
    """A while_loop whose count comes from the data, trained through."""
    static = paddle.static
    main, startup = programs(paddle)
    w = Weights(paddle)
    with static.program_guard(main, startup):
        x = static.data("x", [2, 3], "float32")
        n = static.data("n", [1], "int64")
        x.stop_gradient = False
        p = static.create_parameter([3], "float32", attr=w(3))
        i = paddle.zeros([1], "int64")
        h = x * 1.0
        _, h = static.nn.while_loop(
            lambda i, h: (i < n).all(), lambda i, h: [i + 1, paddle.tanh(h * p + x)], [i, h]
        )
        loss = (h * h).sum()
        dx, dp = static.gradients([loss], [x, p])
    exe = static.Executor(paddle.CPUPlace())
    exe.run(startup)
    results = {}
    data = np.random.RandomState(4).rand(2, 3).astype("float32")
    for count in (1, 2, 5):
        feed = {"x": data, "n": np.array([count], "int64")}
        got = exe.run(main, feed=feed, fetch_list=[loss, dx, dp])
        results |= {f"{k}{count}": v for k, v in zip(("loss", "dx", "dp"), got, strict=True)}
    return results


@scenario
def gradients_that_are_cut(paddle: Any) -> dict[str, Any]:
    """no_grad_set of gradients and append_backward, and parameter_list."""
    static = paddle.static
    main, startup = programs(paddle)
    w = Weights(paddle)
    with static.program_guard(main, startup):
        x = static.data("x", [None, 3], "float32")
        x.stop_gradient = False
        p = static.create_parameter([3], "float32", attr=w(3))
        q = static.create_parameter([3], "float32", attr=w(3))
        h = paddle.tanh(x * p)
        loss = (h * q + x * q * q).sum()
        (dx,) = static.gradients([loss], [x])
        (cut,) = static.gradients([loss], [x], no_grad_set={h})
        both = static.gradients([h, loss], [x, q])
        pairs = static.append_backward(loss, parameter_list=[p, q])
        (one,) = static.append_backward(loss, parameter_list=[q])
        rest = static.append_backward(loss, no_grad_set={p})
    exe = static.Executor(paddle.CPUPlace())
    exe.run(startup)
    feed = {"x": np.random.RandomState(5).rand(4, 3).astype("float32")}
    fetches = {"dx": dx, "cut": cut, "both0": both[0], "both1": both[1], "one": one[1]}
    fetches |= {f"pair{i}": g for i, (_, g) in enumerate(pairs)}
    fetches |= {f"rest{i}": g for i, (_, g) in enumerate(rest) if g is not None}
    return dict(zip(fetches, exe.run(main, feed=feed, fetch_list=[*fetches.values()]), strict=True))


@scenario
def saved_for_inference(paddle: Any) -> dict[str, Any]:
    """save_inference_model and load_inference_model; serialized, normalized, put into a program."""
    import pathlib
    import tempfile

    static = paddle.static
    main, startup = programs(paddle)
    w = Weights(paddle)
    with static.program_guard(main, startup):
        x = static.data("x", [None, 4], "float32")
        y = static.data("y", [None, 1], "int64")
        h = static.nn.fc(x, 6, weight_attr=w(4, 6), bias_attr=w(6), activation="relu")
        out = static.nn.fc(h, 3, weight_attr=w(6, 3), bias_attr=w(3))
        loss = paddle.nn.functional.cross_entropy(out, y)
        paddle.optimizer.SGD(0.1).minimize(loss)
    exe = static.Executor(paddle.CPUPlace())
    exe.run(startup)
    for bx, by in batches(3, (5, 4)):
        exe.run(main, feed={"x": bx, "y": by})
    data = np.random.RandomState(7).rand(2, 4).astype("float32")
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        prefix = str(pathlib.Path(folder) / "model")
        static.save_inference_model(prefix, [x], [out, h], exe, program=main)
        with static.scope_guard(static.Scope()):
            program, feeds, fetches = static.load_inference_model(prefix, exe)
            got = exe.run(program, feed={feeds[0]: data}, fetch_list=fetches)
            results |= {"out": got[0], "h": got[1]}
    pruned = static.normalize_program(main, [x], [out])
    (results["pruned"],) = exe.run(pruned, feed={"x": data}, fetch_list=[out])
    return results


@old
def runs_of_the_executor(paddle: Any) -> dict[str, Any]:
    """CompiledProgram, fetches by name, results that stay tensors, a scope of one's own."""
    static = paddle.static
    main, startup = programs(paddle)
    w = Weights(paddle)
    with static.program_guard(main, startup):
        x = static.data("x", [None, 4], "float32")
        h = static.nn.fc(x, 2, weight_attr=w(4, 2), bias_attr=w(2))
        loss = (h * h).mean()
        paddle.optimizer.SGD(0.5).minimize(loss)
    exe = static.Executor(paddle.CPUPlace())
    compiled = static.CompiledProgram(main)
    feed = {"x": np.random.RandomState(8).rand(3, 4).astype("float32")}
    scope = static.Scope()
    results = {}
    exe.run(startup)
    exe.run(startup, scope=scope)
    for i in range(3):
        results[f"mine{i}"] = exe.run(main, feed=feed, fetch_list=[loss], scope=scope)[0]
    results["compiled"] = exe.run(compiled, feed=feed, fetch_list=[loss])[0]
    kept = exe.run(main, feed=feed, fetch_list=[loss, h], return_numpy=False)
    results |= {f"kept{i}": np.array(t) for i, t in enumerate(kept)}
    return results


def run_some(paddle: Any, names: list[str]) -> dict[str, np.ndarray]:
    """These scenarios' results as `scenario/name`."""
    results = {}
    paddle.enable_static()
    for name in names:
        results |= {f"{name}/{k}": np.asarray(v) for k, v in SCENARIOS[name](paddle).items()}
    return results


if __name__ == "__main__":
    import paddle as real

    chosen = [name for name in SCENARIOS if (name in OLD) == (sys.argv[2] == "old")]
    np.savez(sys.argv[1], **run_some(real, chosen))
