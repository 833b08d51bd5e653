"""Fine-tuning: all parameters of a model, or adapters beside them, on texts or preferences."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, nullcontext
from typing import Any, Literal

import bireme as paddle
from bireme.core import trace
from bireme.core.errors import BiremeError, InvalidArgument
from bireme.distributed.fleet.utils.recomputing import recompute as run_again
from bireme.host import config as switches
from bireme.nn.layer.layer import Layer
from bireme.zoo.saving import save_pretrained
from bireme.zoo.tokenizer import Tokenizer
from bireme.zoo.tuning import adapters, checkpoint, peft_files
from bireme.zoo.tuning.adapters import Lora
from bireme.zoo.tuning.losses import sum_of_losses
from bireme.zoo.tuning.plan import Plan
from bireme.zoo.tuning.preferences import Dpo, Preferences
from bireme.zoo.tuning.progress import Line
from bireme.zoo.tuning.samples import Rows, Sample, cut, tokens_of

Schedule = Literal["cosine", "linear", "constant"]


@dataclasses.dataclass(frozen=True)
class Tuned:
    """A finished run: its folder, and the mean loss per token (per pair) of each step."""

    folder: str
    losses: list[float]


def finetune(
    model: Layer,
    tokenizer: Tokenizer,
    data: Iterable[Sample],
    output: str | os.PathLike[str],
    *,
    lora: Lora | None = None,
    dpo: Dpo | None = None,
    epochs: float = 1.0,
    steps: int | None = None,
    batch_size: int = 4,
    accumulate: int = 1,
    max_length: int = 512,
    pack: bool = False,
    learning_rate: float | None = None,
    warmup: int = 0,
    schedule: Schedule = "cosine",
    weight_decay: float = 0.0,
    clip: float = 1.0,
    recompute: bool = False,
    seed: int = 0,
    save_every: int = 100,
    resume: bool = False,
    progress: bool | None = None,
) -> Tuned:
    """Train a causal language model from the zoo on `data` and write the result to `output`.

        zoo.finetune(model, tokenizer, ["a text", ...], "tuned", lora=zoo.Lora(rank=8))

    `data` are texts, {"prompt", "completion"}, {"messages"} (answers are learned), or with `dpo`
    {"prompt", "chosen", "rejected"}. With `lora` (or if the model has adapters) only adapters are
    trained and written, as peft writes them; else all parameters, as `save_pretrained` does.

    A step is `accumulate` batches of `batch_size` samples, cut to `max_length` tokens. Its loss
    is the mean over all learned tokens of these batches together. `pack` puts several samples into
    one row of `max_length` tokens; they do not see each other. Weights of half precision are
    trained with float32 masters; adapters are float32. `recompute` keeps only what goes into each
    layer and computes its insides again in the backward pass.

    Every `save_every` steps a checkpoint replaces the last one; `resume=True` goes on from it. A
    run that was killed and resumed ends with the same numbers as one that was not, to the bit.
    """
    folder = os.fspath(output)
    _check(model, lora, learning_rate, warmup, schedule, save_every, steps, clip)
    samples = list(data)
    with _settled(model), _compiled():
        if lora is not None:
            paddle.seed(seed)
            _attach(model, lora)
        has_adapters = bool(adapters.adapters(model))
        work: _Texts | Preferences
        sizes = (max_length, batch_size, accumulate)
        if dpo is None:
            work = _Texts(model, tokenizer, samples, *sizes, pack, seed)
        elif pack:
            raise InvalidArgument("[finetune] preferences are not packed: leave pack out")
        else:
            work = Preferences(model, tokenizer, samples, *sizes, seed, dpo)
        total = steps if steps is not None else work.steps(epochs)
        rate = learning_rate if learning_rate is not None else (2e-4 if has_adapters else 2e-5)
        about = {
            "data": work.fingerprint, "steps": total, "batch_size": batch_size,
            "accumulate": accumulate, "max_length": max_length, "pack": pack,
            "learning_rate": rate, "warmup": warmup, "schedule": schedule,
            "weight_decay": weight_decay, "clip": clip, "seed": seed,
            "lora": None if lora is None else dataclasses.asdict(lora),
            "dpo": None if dpo is None else dataclasses.asdict(dpo),
        }  # fmt: skip
        optimizer = _optimizer(model, rate, weight_decay, clip)
        losses = _begun(folder, about, model, optimizer, resume)
        line = Line(total, len(losses), progress)
        with _recomputed(model) if recompute else nullcontext(), closing(line):
            model.train()
            for number in range(len(losses), total):
                optimizer.set_lr(rate * _share(number, total, warmup, schedule))
                paddle.seed((seed << 32) + number)
                loss, tokens = work.run(number, optimizer)
                if not math.isfinite(loss):
                    raise Diverged(
                        f"[finetune] the loss of step {number} is {loss}. Try a smaller "
                        "learning_rate; the last checkpoint is unchanged"
                    )
                losses.append(loss)
                line.at(number + 1, loss, tokens)
                if (number + 1) % save_every == 0 or number + 1 == total:
                    checkpoint.save(folder, about, model, optimizer, losses)
    if has_adapters:
        peft_files.save_adapter(model, folder)
        tokenizer.save_pretrained(folder)
    else:
        save_pretrained(model, folder, tokenizer)
    return Tuned(folder, losses)


class Diverged(BiremeError, ArithmeticError):
    """A loss that is no finite number."""


def _attach(model: Layer, lora: Lora) -> None:
    """Adapters that can be written when the run is over, or an error and none."""
    adapters.attach(model, lora)
    try:
        peft_files.check_names(model)
    except InvalidArgument:
        adapters.remove(model)
        raise


def _optimizer(model: Layer, rate: float, decay: float, clip: float) -> paddle.optimizer.AdamW:
    params = [p for p in model.parameters() if not p.stop_gradient]
    if not params:
        raise InvalidArgument("[finetune] no parameter of the model is to be trained")
    return paddle.optimizer.AdamW(
        rate,
        parameters=params,
        weight_decay=decay,
        grad_clip=paddle.nn.ClipGradByGlobalNorm(clip) if clip else None,
        multi_precision=any(p.dtype.name in ("bfloat16", "float16") for p in params),
    )


@contextmanager
def _settled(model: Layer) -> Iterator[None]:
    """The generator's state and the model's mode of before, afterwards."""
    state, training = paddle.get_rng_state(), model.training
    try:
        yield
    finally:
        paddle.set_rng_state(state)
        model.train() if training else model.eval()


class _Texts:
    """Steps on texts."""

    def __init__(
        self,
        model: Layer,
        tokenizer: Tokenizer,
        samples: list[Sample],
        longest: int,
        batch_size: int,
        accumulate: int,
        pack: bool,
        seed: int,
    ):
        found = cut((tokens_of(s, tokenizer) for s in samples), longest)
        self.model, self.fingerprint = model, checkpoint.fingerprint([found])
        self._plan = Plan(found, batch_size, accumulate, longest, pack, seed)
        self.steps = self._plan.steps

    def run(self, number: int, optimizer: paddle.optimizer.Optimizer) -> tuple[float, int]:
        """One step; (the mean loss, how many tokens it saw)."""
        return step_on(self.model, self._plan.step(number), optimizer)


def step_on(
    model: Layer, batches: list[Rows], optimizer: paddle.optimizer.Optimizer
) -> tuple[float, int]:
    """One step on batches that count as one: every learned token counts the same, whichever batch
    it is in. Returns (the mean loss, how many tokens there were)."""
    count = sum(rows.count for rows in batches)
    parts = []
    for rows in batches:
        loss = sum_of_losses(model, rows) * (1.0 / count)
        loss.backward()
        parts.append(loss.detach())
        if len(batches) > 1:
            trace.flush()
    optimizer.step()
    optimizer.clear_grad()
    return sum(float(p) for p in parts), sum(int(rows.ids.size) for rows in batches)


def _check(
    model: Any, lora: Any, rate: Any, warmup: int, schedule: str, every: int, steps: Any, clip: Any
) -> None:
    if getattr(model, "task", None) != "causal_lm":
        raise InvalidArgument(
            "[finetune] the model must be a causal language model from bireme.zoo. Received: "
            f"{type(model).__name__}, for the task {getattr(model, 'task', None)!r}"
        )
    if lora is not None and not isinstance(lora, Lora):
        raise InvalidArgument(f"[finetune] lora must be a zoo.Lora. Received: {lora!r}")
    if schedule not in ("cosine", "linear", "constant"):
        raise InvalidArgument(
            f"[finetune] schedule must be 'cosine', 'linear' or 'constant'. Received: {schedule!r}"
        )
    wrong = every < 1 or warmup < 0 or (steps is not None and steps < 1) or clip < 0
    if wrong or (rate is not None and not rate > 0):
        raise InvalidArgument(
            "[finetune] learning_rate, steps and save_every must be positive, warmup and clip not "
            f"negative. Received: {rate}, {steps}, {every}, {warmup} and {clip}"
        )


def _begun(
    folder: str, about: dict[str, Any], model: Layer, optimizer: Any, resume: bool
) -> list[float]:
    """The losses of the steps that are done already."""
    os.makedirs(folder, exist_ok=True)
    if resume:
        return checkpoint.load(folder, about, model, optimizer)
    if os.path.exists(os.path.join(folder, checkpoint.NAME)):
        raise InvalidArgument(
            f"[finetune] {folder!r} holds a run already. Give resume=True to go on with it, or "
            "another folder"
        )
    return []


def _share(number: int, total: int, warmup: int, schedule: str) -> float:
    """The share of the learning rate that a step has."""
    if number < warmup:
        return (number + 1) / warmup
    part = (number - warmup) / max(total - warmup, 1)
    if schedule == "cosine":
        return 0.5 * (1 + math.cos(math.pi * part))
    return 1.0 if schedule == "constant" else 1 - part


@contextmanager
def _compiled() -> Iterator[None]:
    """Every step compiled before it runs: the two tiers round differently, and a run that is
    resumed must not begin in the other one."""
    before = switches.compile_mode
    trace.flush()
    if before == "auto":
        switches.compile_mode = "always"
    try:
        yield
    finally:
        trace.flush()
        switches.compile_mode = before


@contextmanager
def _recomputed(model: Any) -> Iterator[None]:
    """The model's layers keep only what goes into them."""
    layers = list(model.model.layers)
    for layer in layers:
        layer.forward = functools.partial(run_again, layer.forward, use_reentrant=False)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward
