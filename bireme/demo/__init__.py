"""`bireme demo`: train, plot, save, reload in a new process, compare."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import bireme as paddle
from bireme import profiler
from bireme.demo.mnist_cnn import DigitNet, Digits, accuracy, load_digits, predict, train
from bireme.profiler.tables import table

TARGET = 0.95


def run(folder: Path, epochs: int) -> int:
    """The whole demo; returns 0 when it reached its aims."""
    from tqdm import tqdm

    paddle.seed(0)
    np.random.seed(0)
    training, held_out = load_digits()
    model = DigitNet()
    losses: list[float] = []
    scores: list[float] = []
    batch_size = 50
    start = time.perf_counter()
    with tqdm(total=epochs * (len(training) // batch_size), unit="step") as bar:

        def on_step(loss: float) -> None:
            losses.append(loss)
            bar.set_postfix(loss=f"{loss:.3f}", refresh=False)
            bar.update()

        def on_epoch(epoch: int) -> None:
            scores.append(accuracy(model, held_out))
            bar.set_description(f"epoch {epoch + 1}/{epochs}, accuracy {scores[-1]:.3f}")

        train(model, training, epochs, batch_size, on_step, on_epoch)
    seconds = time.perf_counter() - start

    folder.mkdir(parents=True, exist_ok=True)
    _plot(losses, scores, folder / "curve.png")
    paddle.save(model.state_dict(), folder / "model.safetensors")
    paddle.save({"images": held_out.images}, folder / "digits.safetensors")
    here = predict(model, held_out.images)
    there = _predict_elsewhere(folder)
    same = bool((here.argmax(1) == there.argmax(1)).all())
    rows = [
        ("training time", f"{seconds:.1f} s for {len(losses)} steps"),
        ("compiled programs", str(profiler.compile_count())),
        ("final loss", f"{np.mean(losses[-20:]):.4f}"),
        ("accuracy on held-out digits", f"{scores[-1]:.1%} of {len(held_out)}"),
        ("reloaded in a new process", _comparison(here, there, held_out)),
        ("curve", str(folder / "curve.png")),
        ("model", str(folder / "model.safetensors")),
    ]
    sys.stdout.write("\n" + table("Bireme demo", ("what", "result"), rows) + "\n")
    if not same or scores[-1] < TARGET:
        sys.stderr.write(f"The demo missed its aims: {TARGET:.0%} and identical predictions.\n")
        return 1
    return 0


def _comparison(here: np.ndarray, there: np.ndarray, digits: Digits) -> str:
    equal = int((here.argmax(1) == there.argmax(1)).sum())
    return (
        f"{equal} of {len(digits)} predictions identical, "
        f"outputs differ by at most {np.abs(here - there).max():.1g}"
    )


def _predict_elsewhere(folder: Path) -> np.ndarray:
    """The predictions of a new process that has nothing but the saved files."""
    command = [sys.executable, "-m", "bireme.demo.reload", str(folder)]
    subprocess.run(command, check=True)
    return paddle.load(folder / "predictions.safetensors", return_numpy=True)["scores"]


def _plot(losses: list[float], scores: list[float], path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="constrained")
    FigureCanvasAgg(figure)
    left = figure.add_subplot()
    left.plot(losses, color="tab:blue", linewidth=0.8, alpha=0.5)
    window = min(20, len(losses))
    smooth = np.convolve(losses, np.ones(window) / window, "valid")
    left.plot(np.arange(len(smooth)) + window - 1, smooth, color="tab:blue", label="loss")
    left.set(xlabel="step", ylabel="training loss", yscale="log")
    right = left.twinx()
    ends = np.linspace(0, len(losses), len(scores) + 1)[1:]
    right.plot(ends, scores, "o-", color="tab:orange", label="accuracy")
    right.set(ylabel="accuracy on held-out digits", ylim=(min(0.8, *scores), 1.0))
    figure.legend(loc="outside upper center", ncols=2)
    figure.savefig(path, dpi=120)
