"""Training: what counts in a loss, packing, accumulation, recomputation, and killed runs."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest

import bireme as paddle
from bireme import zoo
from bireme.core.errors import BiremeError
from bireme.zoo.tuning import adapters
from bireme.zoo.tuning.losses import dpo_losses, log_probabilities, sum_of_losses
from bireme.zoo.tuning.plan import Plan
from bireme.zoo.tuning.samples import NONE, Tokens, cut, packed, padded, tokens_of
from bireme.zoo.tuning.trainer import step_on
from tests.zoo.tuning.conftest import Load

pytestmark = pytest.mark.filterwarnings("ignore::bireme.core.stats.RecompileWarning")
DATA: list[Any] = [
    *["abcabcabc"[:n] * k for k, n in enumerate((9, 5, 7, 4, 9, 3), 1)],
    {"prompt": "abc", "completion": " the end"},
    {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "the"}]},
]
RUN = {"steps": 6, "learning_rate": 1e-2, "batch_size": 2, "max_length": 64, "save_every": 2}


def _samples(tokenizer: Any) -> list[Tokens]:
    return cut([tokens_of(s, tokenizer) for s in DATA], 64)


def test_what_is_learned(load: Load) -> None:
    _, tokenizer = load()

    def learned(sample: Any) -> str:
        found = tokens_of(sample, tokenizer)
        return tokenizer.decode(found.ids[found.learned], skip_special_tokens=False)

    assert learned("abc") == "bc<|end|>"  # the tiny tokenizer has no first token
    assert learned({"prompt": "abc", "completion": " the"}) == " the<|end|>"
    assert learned(DATA[-1]) == "<|user|>the"
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}] * 2
    assert learned({"messages": turns}) == "<|user|>b<|user|>b"
    assert learned({"input_ids": [5, 6, 7], "labels": [-100, -100, 7]}) == tokenizer.decode([7])
    bad: Any
    for bad in (3, {"text": 3}, {"messages": []}, {"prompt": "a"}, {"input_ids": [1]}):
        with pytest.raises(BiremeError):
            tokens_of(bad, tokenizer)


@pytest.mark.usefixtures("cold")
def test_packed_samples_do_not_see_each_other(load: Load) -> None:
    model, tokenizer = load()
    samples = _samples(tokenizer)
    alone = sum(float(sum_of_losses(model, padded([s], 64, 1))) for s in samples)
    groups = [samples[:3], samples[3:5], samples[5:]]
    together = packed(groups, 64 * 2, 4)
    assert together.count == sum(int(s.learned.sum()) for s in samples)
    np.testing.assert_allclose(float(sum_of_losses(model, together)), alone, rtol=1e-6)


@pytest.mark.usefixtures("cold")
def test_eight_batches_of_different_lengths_count_as_one(load: Load) -> None:
    """The same losses, gradients and weights as one batch of the same samples; a mean of the
    batches' means would differ."""
    tokenizer = load()[1]
    samples = _samples(tokenizer)
    found = []
    for size in (8, 1):
        model = load()[0]
        model.train()
        optimizer = paddle.optimizer.SGD(0.5, parameters=model.parameters())
        batches = [padded(samples[i : i + size], 64, size) for i in range(0, 8, size)]
        assert len({b.ids.shape for b in batches}) == (4 if size == 1 else 1)
        loss, _ = step_on(model, batches, optimizer)
        found.append((loss, {n: p.numpy() for n, p in model.named_parameters()}))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-6)
    for name, one in found[0][1].items():
        np.testing.assert_allclose(found[1][1][name], one, rtol=1e-5, atol=1e-6)
    counts = [b.count for b in batches]
    means = [float(sum_of_losses(load()[0], b)) / b.count for b in batches]
    assert len(set(counts)) > 3
    assert abs(np.mean(means) - found[0][0]) > 1e-3


def test_steps_of_a_plan_follow_from_their_number(load: Load) -> None:
    samples = _samples(load()[1])
    plan = Plan(samples, 2, 2, 64, False, 3)
    assert plan.steps(1) == 2
    assert plan.steps(2.5) == 5
    seen = [sorted(i for b in plan.numbers(n) + plan.numbers(n + 1) for i in b) for n in (0, 2, 4)]
    assert seen == [list(range(8))] * 3
    assert plan.numbers(0) + plan.numbers(1) != plan.numbers(2) + plan.numbers(3)
    again = Plan(samples, 2, 2, 64, False, 3)
    assert again.numbers(4) == plan.numbers(4)
    whole = Plan(samples, 2, 1, 64, True, 3)
    assert sum(b.count for n in range(whole.steps(1)) for b in whole.step(n)) == sum(
        int(s.learned.sum()) for s in samples
    )


@pytest.mark.parametrize("more", [{"recompute": True}, {"batch_size": 1, "accumulate": 2}])
@pytest.mark.usefixtures("cold")
def test_other_ways_to_the_same_losses(more: Any, load: Load, tmp_path: pathlib.Path) -> None:
    plain = zoo.finetune(*load(), DATA, tmp_path / "a", **RUN)
    other = zoo.finetune(*load(), DATA, tmp_path / "b", **{**RUN, **more})
    np.testing.assert_allclose(other.losses, plain.losses, rtol=1e-4)
    assert plain.losses[-1] < plain.losses[0]
    kept = zoo.AutoModelForCausalLM.from_pretrained(tmp_path / "a")
    copy = zoo.AutoModelForCausalLM.from_pretrained(tmp_path / "b")
    for name, tensor in kept.state_dict().items():
        np.testing.assert_allclose(copy.state_dict()[name].numpy(), tensor.numpy(), atol=1e-3)


@pytest.mark.usefixtures("cold")
def test_only_the_adapter_is_trained_and_written(load: Load, tmp_path: pathlib.Path) -> None:
    model, tokenizer = load()
    before = {n: t.numpy() for n, t in model.state_dict().items()}
    state = paddle.get_rng_state()
    lora = zoo.Lora(4, targets="all-linear", dropout=0.1)
    done = zoo.finetune(model, tokenizer, DATA, tmp_path / "out", lora=lora, pack=True, **RUN)
    assert not model.training
    assert str(paddle.get_rng_state()) == str(state)
    assert done.losses[-1] < done.losses[0]
    for name, value in before.items():
        np.testing.assert_array_equal(model.state_dict()[name].numpy(), value)
    again = zoo.load_adapter(load()[0], tmp_path / "out")
    ids = paddle.to_tensor(np.array([[3, 4, 5]]))
    np.testing.assert_array_equal(again(ids).numpy(), model(ids).numpy())


@pytest.mark.usefixtures("cold")
def test_bfloat16_has_masters(load: Load, tmp_path: pathlib.Path) -> None:
    model, tokenizer = load()
    half = zoo.make_model(model.config, dtype="bfloat16")
    half.set_state_dict({n: t.astype("bfloat16") for n, t in model.state_dict().items()})
    done = zoo.finetune(half, tokenizer, DATA, tmp_path / "out", **{**RUN, "learning_rate": 1e-3})
    assert done.losses[-1] < done.losses[0]
    state = paddle.load(tmp_path / "out" / "checkpoint.pdparams")
    assert len(state["optimizer"]["master_weights"]) == len(half.parameters())
    assert {p.dtype.name for p in half.parameters()} == {"bfloat16"}


@pytest.mark.slow
def test_nothing_compiles_after_the_first_pass(load: Load, tmp_path: pathlib.Path) -> None:
    from bireme import profiler

    model, tokenizer = load()
    options = {**RUN, "accumulate": 2, "epochs": 2.0, "steps": None}
    zoo.finetune(model, tokenizer, DATA, tmp_path / "a", **options)
    with profiler.count_compiles() as compiled:
        zoo.finetune(model, tokenizer, DATA, tmp_path / "b", seed=0, **options)
    assert compiled == [0]


SCRIPT = """
import sys
from bireme import zoo
from tests.zoo.tuning.test_finetune import DATA, RUN
model, tokenizer = zoo.load(sys.argv[1])
lora = zoo.Lora(2, targets="all-linear", dropout=0.2)
zoo.finetune(model, tokenizer, DATA, sys.argv[2], lora=lora, resume=True, progress=True,
             pack=True, **{**RUN, "steps": 40, "save_every": 3})
"""


def _start(model: pathlib.Path, out: pathlib.Path) -> subprocess.Popen[str]:
    root = str(pathlib.Path(__file__).resolve().parents[3])
    env = {**os.environ, "PYTHONPATH": root}
    command = [sys.executable, "-c", SCRIPT, str(model), str(out)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env, cwd=root)


@pytest.mark.parametrize("mode", ["never", pytest.param("auto", marks=pytest.mark.slow)])
def test_a_killed_run_ends_as_an_undisturbed_one(
    mode: str, load: Load, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed when its line shows steps 2, 8 and 21, in the middle of what it does then."""
    monkeypatch.setenv("BIREME_COMPILE", mode)
    load()
    out, whole = tmp_path / "killed", tmp_path / "whole"
    for step in (2, 8, 21):
        run = _start(tmp_path / "tiny.gguf", out)
        assert run.stderr is not None
        text = ""
        while f"step {step}/" not in text:
            piece = run.stderr.read(1)
            assert piece, text
            text += piece
        time.sleep(0.001 * step)
        run.send_signal(signal.SIGKILL)
        run.communicate()
        assert not (out / "adapter_model.safetensors").exists()
    for folder in (out, whole):
        run = _start(tmp_path / "tiny.gguf", folder)
        said = run.communicate()[1]
        assert run.returncode == 0, said
    one, other = (paddle.load(f / "checkpoint.pdparams") for f in (out, whole))
    np.testing.assert_array_equal(one["losses"], other["losses"])
    assert len(one["losses"]) == 40
    name = "adapter_model.safetensors"
    assert (out / name).read_bytes() == (whole / name).read_bytes()


@pytest.mark.usefixtures("cold")
def test_a_run_goes_on_with_the_same_settings_only(load: Load, tmp_path: pathlib.Path) -> None:
    out = tmp_path / "out"
    zoo.finetune(*load(), DATA, out, **RUN)
    with pytest.raises(BiremeError, match="holds a run already"):
        zoo.finetune(*load(), DATA, out, **RUN)
    with pytest.raises(BiremeError, match=r"learning_rate: 0\.01 then, 0\.02 now"):
        zoo.finetune(*load(), DATA, out, resume=True, **{**RUN, "learning_rate": 0.02})
    with pytest.raises(BiremeError, match="data: "):
        zoo.finetune(*load(), DATA[:-1], out, resume=True, **RUN)
    assert len(zoo.finetune(*load(), DATA, out, resume=True, **RUN).losses) == 6


@pytest.mark.usefixtures("cold")
def test_a_loss_that_is_no_number_ends_the_run(load: Load, tmp_path: pathlib.Path) -> None:
    model, tokenizer = load()
    model.model.norm.weight.set_value(model.model.norm.weight * float("nan"))
    with pytest.raises(BiremeError, match="the loss of step 0 is nan"):
        zoo.finetune(model, tokenizer, DATA, tmp_path / "out", **RUN)


def test_dpo_is_its_formula(load: Load) -> None:
    """Values and gradients of -log sigmoid(beta ((c - r) - (rc - rr))), smoothed, in float64."""
    rng = np.random.default_rng(0)
    given = [paddle.to_tensor(rng.normal(-40, 6, 5).astype(np.float32)) for _ in range(4)]
    for t in given:
        t.stop_gradient = False
    losses = dpo_losses(*given, beta=0.3, smoothing=0.1)
    losses.sum().backward()
    c, r, rc, rr = (t.numpy().astype(np.float64) for t in given)
    margin = 0.3 * ((c - r) - (rc - rr))
    sigmoid = 1 / (1 + np.exp(-margin))
    want = -0.9 * np.log(sigmoid) - 0.1 * np.log(1 - sigmoid)
    np.testing.assert_allclose(losses.numpy(), want, rtol=1e-4)
    slope = 0.3 * (-0.9 * (1 - sigmoid) + 0.1 * sigmoid)
    for t, sign in zip(given, (1, -1, -1, 1), strict=True):
        assert t.grad is not None
        np.testing.assert_allclose(t.grad.numpy(), sign * slope, rtol=1e-4, atol=1e-6)


@pytest.mark.usefixtures("cold")
def test_preferences_are_learned(load: Load, tmp_path: pathlib.Path) -> None:
    model, tokenizer = load()
    pairs = [{"prompt": "abc", "chosen": "the" * k, "rejected": "a" * k} for k in range(1, 6)]
    more = {"lora": zoo.Lora(4, targets="all-linear"), "dpo": zoo.Dpo(0.5)}
    done = zoo.finetune(model, tokenizer, pairs, tmp_path / "out", **more, **RUN)
    assert done.losses[0] == pytest.approx(np.log(2), rel=1e-6)
    assert done.losses[-1] < 0.6
    split = zoo.finetune(
        *load(), pairs, tmp_path / "split", **more, **{**RUN, "batch_size": 1, "accumulate": 2}
    )
    np.testing.assert_allclose(split.losses, done.losses, rtol=1e-4)
    row = padded([tokens_of({"prompt": "abc", "completion": "the"}, tokenizer)], 64, 1)
    assert float(log_probabilities(model, row)) == pytest.approx(-float(sum_of_losses(model, row)))
    with pytest.raises(BiremeError, match="three strings"):
        zoo.finetune(*load(), ["a"], tmp_path / "x", **more, **RUN)


def test_bad_arguments(load: Load, tmp_path: pathlib.Path) -> None:
    model, tokenizer = load()
    for bad in (
        {"learning_rate": 0.0}, {"schedule": "steep"}, {"batch_size": 0}, {"lora": 8},
        {"steps": 0}, {"dpo": zoo.Dpo(), "pack": True}, {"save_every": 0},
    ):  # fmt: skip
        with pytest.raises(BiremeError):
            zoo.finetune(model, tokenizer, DATA, tmp_path / "out", **{**RUN, **bad})
    assert not adapters.adapters(model)
    with pytest.raises(BiremeError, match="no sample"):
        zoo.finetune(model, tokenizer, ["a"], tmp_path / "out", max_length=1)
    with pytest.raises(BiremeError, match="causal language model"):
        zoo.finetune(paddle.nn.Linear(2, 2), tokenizer, DATA, tmp_path / "out")
    assert NONE == -100
