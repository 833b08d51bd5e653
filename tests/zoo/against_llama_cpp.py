"""Does llama.cpp give the log-probabilities that Bireme gives, of GGUF files that Bireme wrote?

    python -m tests.zoo.against_llama_cpp write FOLDER      # where Bireme is
    python tests/zoo/against_llama_cpp.py compare FOLDER    # where xllamacpp is

The first writes made-up models, one of each type, and what they say after 40 tokens. The second
loads each in a process of its own and prints the largest difference.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from typing import Any

_TOKENS = 40


def write(folder: pathlib.Path) -> None:
    """The files and `expected.json`."""
    import numpy as np

    import bireme as paddle
    from bireme import zoo
    from bireme.zoo.loading import make_model, read_config
    from tests.zoo.make_gguf import tiny_llama
    from tests.zoo.test_gguf_writing import _FITTING, _SMALL

    tiny_llama(folder / "words.gguf")
    words = zoo.AutoTokenizer.from_pretrained(folder / "words.gguf")
    plain: dict[str, dict[str, Any]] = {
        **{kind: {} for kind in ("qwen2", "phi3", "granite", "olmo2", "stablelm")},
        **{kind: {"head_dim": 8} for kind in ("qwen3", "seed_oss", "gemma", "mixtral")},
        "internlm3": {"head_dim": 8},
        "mistral": {"sliding_window": None},
    }
    rng = np.random.default_rng(0)
    expected: dict[str, Any] = {}
    for kind, more in {**_FITTING, **plain}.items():
        model = make_model(read_config({**_SMALL, "model_type": kind, **more}))
        for p in model.parameters():
            scale = 0.3 if len(p.shape) > 1 else 0.1
            p.set_value(
                p + paddle.to_tensor(scale * rng.standard_normal(p.shape).astype("float32"))
            )
        zoo.save_gguf(model, folder / f"{kind}.gguf", words, dtype="F32")
        ids = rng.integers(2, _SMALL["vocab_size"], _TOKENS).tolist()
        logits = model.eval()(paddle.to_tensor([ids]))[0, -1]
        expected[kind] = ids, paddle.nn.functional.log_softmax(logits, -1).numpy().tolist()
    (folder / "expected.json").write_text(json.dumps(expected))


def ask(path: str, ids: list[int]) -> dict[int, float]:
    """llama.cpp's log-probabilities of the next token."""
    import xllamacpp as llama  # pyright: ignore[reportMissingImports]

    settings = llama.CommonParams()
    settings.model.path, settings.n_ctx, settings.n_parallel = path, 64, 1
    settings.warmup = settings.fit_params = False
    settings.flash_attn_type = llama.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    settings.cache_type_k = settings.cache_type_v = llama.ggml_type.GGML_TYPE_F32
    answer = llama.Server(settings).handle_completions(
        {"prompt": ids, "n_predict": 1, "temperature": 0, "n_probs": 37}
    )
    found = json.loads(answer) if isinstance(answer, str) else answer
    first = found["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
    return {t["id"]: t["logprob"] for t in first}


def compare(folder: pathlib.Path) -> None:
    """A line for each file."""
    for kind, (ids, want) in json.loads((folder / "expected.json").read_text()).items():
        path = str(folder / f"{kind}.gguf")
        done = subprocess.run(
            [sys.executable, __file__, "ask", path, json.dumps(ids)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            print(f"{kind:12} llama.cpp did not load it:\n{done.stderr.splitlines()[-1:]}")
            continue
        got = json.loads(done.stdout.splitlines()[-1])
        print(f"{kind:12} {max(abs(want[int(i)] - p) for i, p in got.items()):.1e}")


if __name__ == "__main__":
    if sys.argv[1] == "ask":
        print(json.dumps(ask(sys.argv[2], json.loads(sys.argv[3]))))
    else:
        target = pathlib.Path(sys.argv[2])
        target.mkdir(parents=True, exist_ok=True)
        {"write": write, "compare": compare}[sys.argv[1]](target)
