"""Searches text files by meaning: `python examples/semantic_search.py MODEL QUESTION FILE...`

MODEL is a text encoder, such as a folder of sentence-transformers' all-MiniLM-L6-v2. Paragraphs
become vectors, which are kept beside the files until they change.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import pathlib
from collections.abc import Callable, Sequence

import numpy as np

from bireme import zoo
from bireme.io import atomic


def paragraphs(path: str) -> list[str]:
    text = pathlib.Path(path).read_text("utf-8", "replace")
    return [" ".join(p.split()) for p in text.split("\n\n") if p.strip()]


def vectors_of(embed: Callable[..., np.ndarray], parts: list[str], kept: str) -> np.ndarray:
    """The vectors of the paragraphs, from the file `kept` if it belongs to them."""
    mark = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    if os.path.exists(kept):
        with np.load(kept, allow_pickle=False) as file:
            if str(file["mark"]) == mark:
                return file["vectors"]
    vectors = np.asarray(embed(parts))
    with atomic.replacing(kept) as out:
        np.savez(out, vectors=vectors, mark=np.array(mark))
    return vectors


def main(arguments: Sequence[str] | None = None) -> list[tuple[float, str]]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("question")
    parser.add_argument("files", nargs="+")
    parser.add_argument("--best", type=int, default=3, help="how many paragraphs to show")
    parser.add_argument("--index", default="search.npz", help="where the vectors are kept")
    options = parser.parse_args(arguments)

    embed = zoo.task("embedding", options.model)
    parts = [p for file in options.files for p in paragraphs(file)]
    vectors = vectors_of(embed, parts, options.index)
    asked = np.asarray(embed([options.question]))[0]
    scores = vectors @ asked / np.linalg.norm(vectors, axis=1) / np.linalg.norm(asked)
    found = [(float(scores[i]), parts[i]) for i in np.argsort(-scores)[: options.best]]
    for score, part in found:
        print(f"{score:.3f}  {part[:200]}")
    return found


if __name__ == "__main__":
    main()
