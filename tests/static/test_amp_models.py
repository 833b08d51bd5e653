"""Programs put into low precision without an optimizer, against the wheel's old programs (on its
new ones these functions fail)."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import bireme as paddle
from bireme import static
from bireme.core.errors import InvalidArgument

# Numbers that bfloat16 holds: the wheel is fed in bfloat16, we in float32.
X = (np.random.default_rng(1).integers(-8, 8, (5, 8)) / 8).astype("float32")
W = (0.3 * np.random.default_rng(2).standard_normal((8, 16))).astype("float32")
V = (0.3 * np.random.default_rng(3).standard_normal((16, 4))).astype("float32")


@pytest.fixture(autouse=True)
def programs() -> Iterator[None]:
    paddle.enable_static()
    try:
        with static.scope_guard(static.Scope()):
            yield
    finally:
        paddle.disable_static()


def net(module: Any, bias: bool = True) -> tuple[Any, Any, list[Any]]:
    """(program, startup program, results), by the same calls in both frameworks."""
    main, startup = module.static.Program(), module.static.Program()
    with module.static.program_guard(main, startup), module.utils.unique_name.guard():

        def layer(x: Any, weight: np.ndarray) -> Any:
            value = module.nn.initializer.Assign(weight)
            return module.static.nn.fc(
                x, weight.shape[1], weight_attr=value, bias_attr=None if bias else False
            )

        x = module.static.data("x", [None, 8], "float32")
        first = layer(x, W)
        with module.static.amp.bf16.bf16_guard():
            second = layer(module.nn.functional.relu(first), V)
        last = module.nn.functional.softmax(second)
    return main, startup, [first, second, last]


def wheels(real: Any, change: Any, bias: bool = True) -> tuple[Any, list[str], list[np.ndarray]]:
    """(what `change` gave, the results' types, the results) of the real Paddle."""
    with import_module("paddle.pir_utils").OldIrGuard():
        real.enable_static()
        try:
            with real.static.scope_guard(real.static.Scope()):
                main, startup, results = net(real, bias)
                gave = change(real.static.amp.bf16, main)
                exe = real.static.Executor(real.CPUPlace())
                exe.run(startup)
                bf16 = real.static.amp.bf16
                bf16.cast_parameters_to_bf16(real.CPUPlace(), main, to_bf16_var_names=gave)
                x = bf16.convert_float_to_uint16(X) if gave and "x" in gave else X
                outs = exe.run(main, feed={"x": x}, fetch_list=results)
                kinds = ["bfloat16" if o.dtype == np.uint16 else str(o.dtype) for o in outs]
        finally:
            real.disable_static()
    return gave, kinds, [_wide(o) for o in outs]


def _wide(array: np.ndarray) -> np.ndarray:
    if array.dtype == np.uint16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32)


def ours(change: Any, bias: bool = True) -> tuple[Any, list[str], list[np.ndarray]]:
    main, startup, results = net(paddle, bias)
    gave = change(static.amp.bf16, main)
    exe = static.Executor()
    exe.run(startup)
    static.amp.bf16.cast_parameters_to_bf16(None, main, to_bf16_var_names=gave)
    outs = exe.run(main, feed={"x": X}, fetch_list=results)
    return gave, [r.dtype.name for r in results], [np.asarray(o, np.float32) for o in outs]


@pytest.mark.parametrize(
    "change",
    [
        lambda bf16, main: bf16.cast_model_to_bf16(main, use_bf16_guard=False),
        lambda bf16, main: bf16.cast_model_to_bf16(
            main, None, bf16.AutoMixedPrecisionListsBF16(custom_fp32_list={"softmax"}), False
        ),
    ],
)
def test_whole_models(change: Any) -> None:
    real: Any = pytest.importorskip("paddle")
    names, kinds, results = wheels(real, change)
    our_names, our_kinds, our_results = ours(change)
    assert our_names == names == {"x", "fc_0.w_0", "fc_0.b_0", "fc_1.w_0", "fc_1.b_0"}
    assert our_kinds[:2] == kinds[:2] == ["bfloat16", "bfloat16"]
    assert our_kinds[2] == "float32"  # ours stays there by itself, the wheel's if it is told
    for got, want in zip(our_results, results, strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-2, atol=2e-2)
    assert not np.allclose(our_results[0], X @ W, rtol=1e-6, atol=1e-7)  # it is in bfloat16


def test_products_only() -> None:
    real: Any = pytest.importorskip("paddle")

    def change(bf16: Any, main: Any) -> None:
        bf16.rewrite_program_bf16(main)

    _, kinds, results = wheels(real, change, bias=False)
    _, our_kinds, our_results = ours(change, bias=False)
    assert our_kinds == kinds == ["bfloat16", "bfloat16", "float32"]
    for got, want in zip(our_results, results, strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_only_what_is_guarded(kind: str) -> None:
    main, _, results = net(paddle)
    names = static.amp.cast_model_to_fp16(main, dest_type=kind)
    assert names == {"fc_1.w_0", "fc_1.b_0"}
    assert [r.dtype.name for r in results] == ["float32", kind, "float32"]


@pytest.mark.parametrize("for_test", [False, True])
def test_copies_know_what_is_guarded(for_test: bool) -> None:
    main, _, results = net(paddle)
    copy = main.clone(for_test).clone(for_test)
    names = static.amp.cast_model_to_fp16(copy)
    assert names == {"fc_1.w_0", "fc_1.b_0"}
    assert [r.dtype.name for r in results] == ["float32"] * 3  # the program itself stays


def test_levels_lists_and_refusals() -> None:
    kinds = {}
    lists = static.amp.AutoMixedPrecisionLists(custom_black_varnames=["fc_0.w_0"])
    for case, options in {"O1": {}, "names": {"amp_lists": lists}, "O0": {}}.items():
        main, _, results = net(paddle, bias=False)
        level = "O0" if case == "O0" else "O1"
        static.amp.cast_model_to_fp16(main, use_fp16_guard=False, level=level, **options)
        kinds[case] = [r.dtype.name for r in results]
    assert kinds["O1"] == ["float16", "float16", "float32"]
    assert kinds["names"] == ["float32", "float16", "float32"]
    assert kinds["O0"] == ["float32"] * 3
    with pytest.raises(InvalidArgument, match="use_promote"):
        static.amp.cast_model_to_fp16(main, use_promote=True)
    with pytest.raises(InvalidArgument, match="float16 or bfloat16"):
        static.amp.cast_model_to_fp16(main, dest_type="float32")
    with pytest.raises(InvalidArgument, match="startup_prog"):
        static.amp.bf16.cast_model_to_bf16(main, static.Program())


def test_parameters_are_rounded() -> None:
    main, startup, _ = net(paddle)
    static.Executor().run(startup)
    scope = static.global_scope()
    static.amp.cast_parameters_to_fp16(None, main, to_fp16_var_names={"fc_0.w_0"})
    masters = {"fc_1.w_0": None}
    static.amp.cast_parameters_to_fp16(
        None, main, scope, {"fc_1.w_0"}, "bfloat16", master_weights=masters
    )

    def contents(name: str) -> np.ndarray:
        variable = scope.find_var(name)
        assert variable is not None
        return np.array(variable.get_tensor())

    np.testing.assert_array_equal(contents("fc_0.w_0"), W.astype("float16").astype("float32"))
    np.testing.assert_array_equal(contents("fc_1.w_0"), V)
    static.amp.cast_parameters_to_fp16(
        None, main, scope, {"fc_1.w_0"}, "bfloat16", True, master_weights=masters
    )
    assert contents("fc_1.w_0").dtype == np.float32
    assert 0 < np.abs(contents("fc_1.w_0") - V).max() < 1e-2


@pytest.mark.parametrize("guarded", [True, False])
def test_training_in_bfloat16(guarded: bool) -> None:
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        x = static.data("x", [None, 8])
        with static.amp.bf16.bf16_guard():
            hidden = static.nn.fc(x, 16, activation="relu")
        loss = (hidden - 1).square().mean()
        test = main.clone(for_test=True)
        optimizer = static.amp.bf16.decorate_bf16(
            paddle.optimizer.SGD(0.1), use_pure_bf16=True, use_bf16_guard=guarded
        )
        optimizer.minimize(loss)
    assert hidden.dtype == paddle.bfloat16
    assert (loss.dtype == paddle.float32) or not guarded
    exe = static.Executor()
    exe.run(startup)
    losses = [float(exe.run(main, feed={"x": X}, fetch_list=[loss])[0]) for _ in range(20)]
    assert losses[-1] < 0.9 * losses[0]
    if guarded:
        return  # a copy does not know what was guarded
    optimizer.amp_init(None, test_program=test)
    (out,) = exe.run(test, feed={"x": X}, fetch_list=[hidden])
    assert str(out.dtype) == "bfloat16"


def test_numbers_cut_off() -> None:
    real: Any = pytest.importorskip("paddle")
    given = np.random.default_rng(5).standard_normal((3, 4)).astype("float32")
    got = static.amp.bf16.convert_float_to_uint16(given)
    want = real.static.amp.bf16.convert_float_to_uint16(given)
    assert got.dtype == want.dtype == np.uint16
    np.testing.assert_array_equal(got, want)
