"""The commands `bireme finetune` and `bireme evaluate`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any


def add(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    add_model: Callable[[argparse.ArgumentParser], None],
) -> None:
    """Add the parsers to those of `bireme`."""
    tune = commands.add_parser("finetune", help="train a language model on texts")
    add_model(tune)
    tune.add_argument(
        "data",
        help="a .jsonl file of texts, prompts with completions, chats or preferences, or "
        "a text whose paragraphs are the samples",
    )
    tune.add_argument("output", help="the folder for the adapter or the model")
    tune.add_argument("--full", action="store_true", help="train all parameters, not an adapter")
    tune.add_argument("--rank", type=int, default=8, help="of the adapter")
    tune.add_argument("--alpha", type=float, default=16.0, help="its product counts alpha / rank")
    tune.add_argument(
        "--targets", nargs="+", default=["q_proj", "v_proj"], help="layers; or all-linear"
    )
    tune.add_argument("--dropout", type=float, default=0.0)
    tune.add_argument("--dpo", action="store_true", help="the data are preferences")
    tune.add_argument("--beta", type=float, default=0.1, help="how near the reference stays")
    tune.add_argument("--epochs", type=float, default=1.0)
    tune.add_argument("--steps", type=int)
    tune.add_argument("--batch-size", type=int, default=4)
    tune.add_argument("--accumulate", type=int, default=1, help="batches of one step")
    tune.add_argument("--max-length", type=int, default=512)
    tune.add_argument("--pack", action="store_true", help="several samples in a row")
    tune.add_argument("--learning-rate", type=float)
    tune.add_argument("--warmup", type=int, default=0, help="steps")
    tune.add_argument("--schedule", choices=["cosine", "linear", "constant"], default="cosine")
    tune.add_argument(
        "--dtype", default="float32", help="of the weights: float32, bfloat16 or keep"
    )
    tune.add_argument("--recompute", action="store_true", help="less memory, more time")
    tune.add_argument("--seed", type=int, default=0)
    tune.add_argument("--save-every", type=int, default=100, help="steps between checkpoints")
    tune.add_argument("--resume", action="store_true", help="go on from the last checkpoint")
    tune.set_defaults(function=_finetune)

    score = commands.add_parser("evaluate", help="bits per byte of a text, or accuracy on items")
    add_model(score)
    score.add_argument("data", help="a text, or a .jsonl file of items: prompt, choices, answer")
    score.add_argument("--adapter", help="an adapter's folder")
    score.add_argument("--window", type=int, default=1024, help="tokens seen at once")
    score.add_argument("--dtype", default="float32", help="of the weights; keep: as in the GGUF")
    score.set_defaults(function=_evaluate)


def _finetune(options: argparse.Namespace) -> int:
    from bireme import zoo
    from bireme.zoo.commands import told
    from bireme.zoo.tuning.samples import read_samples

    def run() -> int:
        samples = read_samples(options.data)
        model, tokenizer = zoo.load(options.model, task="causal_lm", dtype=options.dtype)
        targets: Any = options.targets
        targets = targets[0] if targets == ["all-linear"] else tuple(targets)
        lora = zoo.Lora(options.rank, options.alpha, targets, options.dropout)
        names = (
            "epochs", "steps", "batch_size", "accumulate", "max_length", "pack", "learning_rate",
            "warmup", "schedule", "recompute", "seed", "save_every", "resume",
        )  # fmt: skip
        done = zoo.finetune(
            model,
            tokenizer,
            samples,
            options.output,
            lora=None if options.full else lora,
            dpo=zoo.Dpo(options.beta) if options.dpo else None,
            **{name: getattr(options, name) for name in names},
        )
        print(f"{len(done.losses)} steps, loss {done.losses[-1]:.4f}, written to {done.folder}")
        return 0

    return told(run)


def _evaluate(options: argparse.Namespace) -> int:
    from bireme import zoo
    from bireme.io.foreign import open_regular
    from bireme.zoo.commands import told
    from bireme.zoo.tuning.samples import read_samples

    def run() -> int:
        data: Any
        if options.data.endswith(".jsonl"):
            data = read_samples(options.data)
        else:
            with open_regular(options.data, "evaluate") as file:
                data = str(file.read(), "utf-8", "replace")
        model, tokenizer = zoo.load(options.model, task="causal_lm", dtype=options.dtype)
        if options.adapter:
            zoo.load_adapter(model, options.adapter)
        found = zoo.evaluate(model, tokenizer, data, window=options.window)
        for name, value in found.items():
            print(f"{name:18} {value:.4f}")
        return 0

    return told(run)
