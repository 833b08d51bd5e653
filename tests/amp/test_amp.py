"""Mixed precision: what is cast, what is skipped on overflow, what is restored."""

from __future__ import annotations

import numpy as np
import pytest

import bireme
from bireme import nn
from bireme.core import executor, trace
from bireme.host import config

F = nn.functional


def _model() -> nn.Layer:
    bireme.seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def _batch() -> tuple[bireme.Tensor, bireme.Tensor]:
    rng = np.random.default_rng(0)
    x = bireme.to_tensor(rng.standard_normal((6, 4)).astype("float32"))
    return x, bireme.to_tensor(rng.integers(0, 3, 6))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_white_and_black_ops(dtype: str) -> None:
    model, (x, y) = _model(), _batch()
    with bireme.amp.auto_cast(dtype=dtype):
        assert bireme.amp.is_autocast_enabled()
        assert bireme.amp.get_autocast_dtype().name == dtype
        logits = model(x)
        loss = F.cross_entropy(logits, y)
        kept = x + 1.0
    assert not bireme.amp.is_autocast_enabled()
    assert logits.dtype.name == dtype
    assert loss.dtype is bireme.float32
    assert kept.dtype is bireme.float32
    loss.backward()
    assert model[0].weight.grad.dtype is bireme.float32
    assert model(x).dtype is bireme.float32


def test_custom_lists_and_levels() -> None:
    model, (x, _) = _model(), _batch()
    with bireme.amp.auto_cast(custom_black_list=["matmul_v2"]):
        assert model(x).dtype is bireme.float32
    with bireme.amp.auto_cast(custom_white_list={"exp"}):
        assert bireme.exp(x).dtype is bireme.float16
    with bireme.amp.auto_cast(level="O0"):
        assert model(x).dtype is bireme.float32
    with bireme.amp.auto_cast(enable=False):
        assert model(x).dtype is bireme.float32
    with bireme.amp.auto_cast(level="O2", use_promote=False):
        assert (x + 1.0).dtype is bireme.float16
    with pytest.raises(ValueError, match="both custom lists"):
        bireme.amp.auto_cast(custom_white_list=["exp"], custom_black_list=["exp"])


def test_restored_after_errors_and_flushes() -> None:
    model, (x, _) = _model(), _batch()

    @bireme.amp.auto_cast()
    def fail() -> None:
        model(x).numpy()  # replaces the trace
        assert model(x).dtype is bireme.float16
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fail()
    assert not bireme.amp.is_autocast_enabled()
    with bireme.amp.auto_cast(dtype="bfloat16"):
        with bireme.amp.auto_cast(enable=False):
            assert model(x).dtype is bireme.float32
        assert model(x).dtype is bireme.bfloat16


def test_as_a_decorator() -> None:
    model, (x, _) = _model(), _batch()

    @bireme.amp.auto_cast()
    def run() -> bireme.Tensor:
        return model(x)

    assert run().dtype is bireme.float16
    assert run().dtype is bireme.float16


def test_scaled_training_equals_plain() -> None:
    x, y = _batch()
    plain, scaled = _model(), _model()
    first = bireme.optimizer.Adam(0.01, parameters=plain.parameters())
    second = bireme.optimizer.Adam(0.01, parameters=scaled.parameters())
    scaler = bireme.amp.GradScaler(init_loss_scaling=256.0)
    for _ in range(3):
        F.cross_entropy(plain(x), y).backward()
        first.step()
        first.clear_grad()
        scaler.scale(F.cross_entropy(scaled(x), y)).backward()
        scaler.step(second)
        scaler.update()
        second.clear_grad()
    for a, b in zip(plain.parameters(), scaled.parameters(), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-7)


def test_overflow_skips_the_step_and_adapts_the_scale() -> None:
    model, (x, y) = _model(), _batch()
    optimizer = bireme.optimizer.Adam(0.01, parameters=model.parameters())
    scaler = bireme.amp.GradScaler(init_loss_scaling=64.0, incr_every_n_steps=2)
    scales = []
    for step in range(5):
        before = model[0].weight.numpy()
        loss = F.cross_entropy(model(x), y) * (float("inf") if step == 2 else 1.0)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.clear_grad()
        moved = not np.array_equal(before, model[0].weight.numpy())
        assert moved == (step != 2)
        scales.append(scaler.state_dict()["scale"].item())
    assert scales == [64.0, 128.0, 64.0, 64.0, 128.0]
    powers = [v for k, v in optimizer.state_dict().items() if "beta1_pow" in k]
    assert powers[0].item() == pytest.approx(0.9**5)  # four steps counted


def test_a_scaled_step_is_one_program(monkeypatch: pytest.MonkeyPatch) -> None:
    trace.flush()
    monkeypatch.setattr(config, "compile_mode", "never")
    model, (x, y) = _model(), _batch()
    optimizer = bireme.optimizer.SGD(0.01, parameters=model.parameters())
    scaler = bireme.amp.GradScaler()
    executor.clear_programs()
    for _ in range(3):
        with bireme.amp.auto_cast():
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.clear_grad()
    assert executor.program_count() == 1
    (program,) = executor._programs.values()
    assert len(program.outputs) == 4 + 3 + 1  # weights, scale and counters, loss


def test_unscale_then_clip() -> None:
    model, (x, y) = _model(), _batch()
    optimizer = bireme.optimizer.SGD(0.01, parameters=model.parameters())
    scaler = bireme.amp.GradScaler(init_loss_scaling=1024.0)
    scaler.scale(F.cross_entropy(model(x), y)).backward()
    scaler.unscale_(optimizer)
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    assert norm.item() < 10
    with pytest.raises(RuntimeError, match="already"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    with pytest.raises(RuntimeError, match="already"):
        scaler.step(optimizer)
    scaler.update()


def test_bfloat16_switches_the_scaler_off() -> None:
    scaler = bireme.amp.GradScaler()
    with bireme.amp.auto_cast(dtype="bfloat16"):
        loss = bireme.ones([])
    with pytest.warns(UserWarning, match="bfloat16"):
        assert scaler.scale(loss) is loss
    assert not scaler.is_enable()
    with bireme.amp.auto_cast(dtype="float16"):
        pass


def test_decorate() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1D(4), nn.LayerNorm(4), nn.Linear(4, 2))
    optimizer = bireme.optimizer.AdamW(0.01, parameters=model.parameters())
    keep = model[3]
    model, optimizer = bireme.amp.decorate(
        model, optimizer, level="O2", dtype="float16", excluded_layers=[keep], save_dtype="float32"
    )
    kinds = [p.dtype.name for p in (model[0].weight, model[1].weight, model[2].weight)]
    assert kinds == ["float16", "float32", "float32"]
    assert keep.weight.dtype is bireme.float32
    assert {t.dtype for t in model.state_dict().values()} == {bireme.float32}
    x = bireme.to_tensor(np.ones((3, 4), "float32"))
    with bireme.amp.auto_cast(level="O2"):
        loss = model(x).astype("float32").sum()
    loss.backward()
    optimizer.step()
    optimizer.clear_grad()
    assert list(optimizer.state_dict()["master_weights"]) == [
        model[0].weight.name, model[0].bias.name,
    ]  # fmt: skip
    assert model[0].weight.dtype is bireme.float16


def test_master_gradients() -> None:
    model = bireme.amp.decorate(nn.Linear(2, 2), level="O2", dtype="bfloat16", master_grad=True)
    model(bireme.ones([1, 2], "bfloat16")).sum().backward()
    assert model.weight.grad.dtype is bireme.float32


def test_scaler_state() -> None:
    first = bireme.amp.GradScaler(init_loss_scaling=8.0, incr_ratio=4.0)
    second = bireme.amp.GradScaler()
    second.load_state_dict(first.state_dict())
    assert second.state_dict() == first.state_dict()
    with pytest.raises(ValueError, match="incr_ratio must be above 1"):
        bireme.amp.GradScaler(incr_ratio=0.5)
