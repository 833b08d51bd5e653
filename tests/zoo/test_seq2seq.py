"""Encoder-decoders write what transformers writes: greedy and with beams, batches as singles."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest

import bireme as paddle
from bireme.core.errors import InvalidArgument
from bireme.nn.generation import seq2seq
from bireme.nn.generation.beams import Beams
from bireme.nn.generation.rules import Barred, Biased, Forced, Least, Suppress
from bireme.profiler import count_compiles
from bireme.zoo.files import open_source
from bireme.zoo.loading import load_model
from tests.zoo import made_up

CASES = [c for c in made_up.cases() if "beams" in made_up.read(c)[1]]


def _loaded(case: str, folder: pathlib.Path) -> tuple[Any, dict[str, Any], dict[str, np.ndarray]]:
    about, arrays = made_up.read(case)
    return load_model(open_source(made_up.folder(case, about, folder))), about["config"], arrays


def _write(model: Any, config: dict[str, Any], ids: Any, mask: Any, beams: int, **more: Any) -> Any:
    ends = config.get("eos_token_id")
    last = config.get("forced_eos_token_id")
    return seq2seq.write(
        model,
        ids,
        12,
        attention_mask=mask,
        start=np.full((len(ids), 1), config.get("decoder_start_token_id") or 0),
        num_beams=beams,
        eos_token_id=ends,
        pad_token_id=config.get("pad_token_id") or 0,
        rules=[Forced(last=last, longest=12)] if last is not None else [],
        **more,
    )


@pytest.mark.filterwarnings("ignore::bireme.core.stats.RecompileWarning")  # many models
@pytest.mark.parametrize("case", CASES)
def test_as_transformers(case: str, tmp_path: pathlib.Path) -> None:
    model, config, arrays = _loaded(case, tmp_path)
    ids, mask = arrays["in.input_ids"], arrays["in.attention_mask"]
    for name, beams in (("greedy", 1), ("beams", 4)):
        found = _write(model, config, ids, mask, beams).lists()
        for row, wanted in zip(found, arrays[name], strict=True):
            assert row[0] == wanted[1 : 1 + len(row[0])].tolist()
            rest = wanted[1 + len(row[0]) :]
            assert (rest == (config.get("pad_token_id") or 0)).all() or not rest.size


@pytest.mark.filterwarnings("ignore::bireme.core.stats.RecompileWarning")  # of other lengths
@pytest.mark.parametrize("beams", [1, 4])
def test_a_batch_gives_what_singles_give(beams: int, tmp_path: pathlib.Path) -> None:
    model, config, arrays = _loaded("bart-lm", tmp_path)
    ids, mask = arrays["in.input_ids"], arrays["in.attention_mask"]
    together = _write(model, config, ids, mask, beams)
    for i, row in enumerate(ids):
        real = int(mask[i].sum())
        alone = _write(model, config, row[None, :real], None, beams)
        assert alone.lists()[0] == together.lists()[i]
        np.testing.assert_allclose(alone.scores[0], together.scores[i], atol=1e-4)


def test_one_program_for_each_of_two_parts(tmp_path: pathlib.Path) -> None:
    model, config, arrays = _loaded("marian-mt", tmp_path)
    ids, mask = arrays["in.input_ids"], arrays["in.attention_mask"]
    with count_compiles() as compiled:
        _write(model, config, ids, mask, 4)
    assert compiled == [2]
    with count_compiles() as compiled:
        _write(model, config, ids[:, ::-1].copy(), mask[:, ::-1].copy(), 4)
    assert compiled == [0]


def test_rules(tmp_path: pathlib.Path) -> None:
    model, _, arrays = _loaded("bart-lm", tmp_path)
    ids = arrays["in.input_ids"]

    def tokens(*rules: Any, **more: Any) -> list[int]:
        settings: dict[str, Any] = {"start": np.full((2, 1), 2), "pad_token_id": 1, **more}
        return seq2seq.write(model, ids, 10, rules=rules, **settings).lists()[0][0]

    plain = tokens()
    never = tokens(Suppress([plain[0]], first=[plain[1]]))
    assert plain[0] not in never
    assert never[0] != plain[1]
    assert tokens(Forced(first=7, last=9, longest=10))[::9] == [7, 9]
    free = tokens(Barred(ngram=1))
    assert len(set(free)) == len(free)
    ended = tokens(eos_token_id=plain[2])
    assert ended == plain[: plain.index(plain[2]) + 1]
    longer = tokens(Barred(least=8, ends=[plain[2]]), eos_token_id=plain[2])
    assert plain[2] not in longer[:8]


def test_biases_and_least_probabilities(tmp_path: pathlib.Path) -> None:
    model, _, arrays = _loaded("bart-lm", tmp_path)
    ids = arrays["in.input_ids"]
    settings: dict[str, Any] = {"start": np.full((len(ids), 1), 2), "pad_token_id": 1}
    plain = seq2seq.write(model, ids, 6, **settings).tokens
    for token, bias in ((9, 1e4), (int(plain[0, 0, 0]), -1e4)):
        found = seq2seq.write(model, ids, 6, rules=[Biased({token: bias})], **settings).tokens
        assert (found[0] == token).all() if bias > 0 else (found[0] != token).all()
    drawn = {"decode_strategy": "sampling", "temperature": 5.0, "seed": 1, **settings}
    assert (seq2seq.write(model, ids, 6, **drawn).tokens != plain).any()
    narrow = seq2seq.write(model, ids, 6, rules=[Least(1.0, 5.0)], **drawn)
    np.testing.assert_array_equal(narrow.tokens, plain)  # only the likeliest is left
    for wrong in (lambda: Least(0.0), lambda: Least(0.5, 0.0), lambda: Biased({-1: 2.0})):
        with pytest.raises(InvalidArgument):
            wrong()
    with pytest.raises(InvalidArgument, match="tokens, not"):
        seq2seq.write(model, ids, 6, rules=[Biased({10**6: 1.0})], **settings)


def test_log_probabilities_are_those_of_the_whole_text(tmp_path: pathlib.Path) -> None:
    model, _, arrays = _loaded("bart-lm", tmp_path)
    ids, start = arrays["in.input_ids"], np.full((len(arrays["in.input_ids"]), 1), 2)
    found = seq2seq.write(model, ids, 6, start=start, pad_token_id=1, rules=[Biased({9: 3.0})])
    text = np.concatenate([start, found.tokens[:, 0, :-1]], 1)
    scores = model(paddle.to_tensor(ids), decoder_input_ids=paddle.to_tensor(text))
    logs = paddle.nn.functional.log_softmax(scores, -1).numpy()
    want = np.take_along_axis(logs, found.tokens[:, 0, :, None], 2)[..., 0]
    assert found.log_probabilities is not None
    np.testing.assert_allclose(found.log_probabilities[:, 0], want, atol=1e-5)
    np.testing.assert_allclose(found.scores[:, 0], want.sum(1), atol=1e-4)


def test_drawing_repeats_with_a_seed(tmp_path: pathlib.Path) -> None:
    model, config, arrays = _loaded("bart-lm", tmp_path)
    ids, mask = arrays["in.input_ids"], arrays["in.attention_mask"]
    settings: dict[str, Any] = {"decode_strategy": "sampling", "temperature": 2.0, "top_p": 0.9}
    first, again, other = (
        _write(model, config, ids, mask, 1, seed=seed, **settings).lists() for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_beams_keep_the_best_finished_sequences() -> None:
    # One sample, two beams, three words; word 2 ends a sequence.
    search = Beams(1, 2, 3, [2], length_penalty=0.0)
    logs = np.log(np.array([[0.5, 0.4, 0.1], [0.5, 0.4, 0.1]], np.float32))
    ids = np.broadcast_to(np.arange(3), (2, 3))
    order, token = search.take(logs, ids)
    assert (order.tolist(), token.tolist()) == ([0, 0], [0, 1])
    logs = np.log(np.array([[0.05, 0.05, 0.9], [0.3, 0.3, 0.4]], np.float32))
    order, token = search.take(logs, ids)
    found, lengths, scores = search.best()
    assert found[0, 0, : lengths[0, 0]].tolist() == [0, 2]
    assert scores[0, 0] == pytest.approx(np.log(0.45), abs=1e-6)
