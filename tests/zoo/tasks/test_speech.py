"""Whisper's spectrograms, rules for times, segments, OpenAI's names and lists of tokens."""

from __future__ import annotations

import base64
import pathlib
import pickle
import zipfile
from typing import Any

import numpy as np
import pytest

import bireme as paddle
from bireme.core.errors import BiremeError
from bireme.io import torch_file
from bireme.zoo.files.openai_whisper import _renamed
from bireme.zoo.loading import read_config
from bireme.zoo.models.whisper import Seq2SeqLM
from bireme.zoo.tasks import vocabulary
from bireme.zoo.tasks.speech import Times, Transcribe, _resampled, log_mel


def test_spectrogram_of_a_tone() -> None:
    time = np.arange(16000) / 16000
    found = log_mel(np.sin(2 * np.pi * 440 * time).astype(np.float32))
    assert found.shape == (80, 100)
    assert found.max() - found.min() <= 2.0 + 1e-5
    assert int(found[:, 50].argmax()) == int(found[:, 10].argmax()) < 20


def test_resampling_keeps_a_tone() -> None:
    high = np.sin(2 * np.pi * 300 * np.arange(48000) / 48000).astype(np.float32)
    low = np.sin(2 * np.pi * 300 * np.arange(16000) / 16000)
    np.testing.assert_allclose(_resampled(high, 48000), low, atol=1e-4)


def _allowed(rule: Times, row: list[int], scores: np.ndarray) -> list[int]:
    given = rule.given(np.array([row], np.int64).reshape(1, len(row)))
    found = rule.apply(paddle.to_tensor(scores[None]), paddle.to_tensor(given)).numpy()[0]
    return np.flatnonzero(np.isfinite(found)).tolist()


def test_times_come_in_pairs_and_never_go_back() -> None:
    # Words 0 to 3, the end 4, times from 6 to 11.
    rule = Times(end=4, first=6, longest=20)
    words = np.array([9, 9, 9, 9, 9, 0, 0, 0, 0, 0, 0, 0], np.float32)
    assert _allowed(rule, [], words) == [6, 7, 8, 9, 10, 11]  # a time comes first
    assert _allowed(rule, [6], words) == [0, 1, 2, 3, 4, 5]  # then words
    assert _allowed(rule, [6, 1], words) == [0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11]
    assert _allowed(rule, [6, 1, 8], words) == [4, 5, 8, 9, 10, 11]  # the next begins, or the end
    assert _allowed(rule, [6, 1, 8, 8], words) == [0, 1, 2, 3, 4, 5]
    likely = np.zeros(12, np.float32)  # times together are likelier than a word
    assert _allowed(rule, [6, 1], likely) == [7, 8, 9, 10, 11]


def test_names_of_openai() -> None:
    assert _renamed("encoder.blocks.3.attn.query.weight") == (
        "model.encoder.layers.3.self_attn.q_proj.weight"
    )
    assert _renamed("decoder.blocks.0.cross_attn_ln.bias") == (
        "model.decoder.layers.0.encoder_attn_layer_norm.bias"
    )
    assert _renamed("decoder.blocks.1.mlp.2.weight") == "model.decoder.layers.1.fc2.weight"
    assert _renamed("encoder.ln_post.weight") == "model.encoder.layer_norm.weight"
    assert _renamed("decoder.token_embedding.weight") == "model.decoder.embed_tokens.weight"


def _list_of_tokens(path: pathlib.Path, words: int) -> pathlib.Path:
    tokens = [bytes([i]) for i in range(256)] + [b"w%d" % i for i in range(words - 256)]
    lines = [b"%s %d" % (base64.b64encode(t), i) for i, t in enumerate(tokens)]
    path.write_bytes(b"\n".join(lines))
    return path


def test_list_of_tokens(tmp_path: pathlib.Path) -> None:
    path = _list_of_tokens(tmp_path / "x.tiktoken", 300)
    found = vocabulary.from_list(path, 300 + 2 + 99 + 6 + 1501)
    assert (found.end, found.start, found.no_times, found.times) == (300, 301, 406, 407)
    assert found.text([72, 105, 300, 410]) == "Hi"
    assert found.blank == 32
    assert 35 in found.signs  # "#"
    with pytest.raises(BiremeError, match="do not fit"):
        vocabulary.from_list(path, 400)


def test_segments(tmp_path: pathlib.Path) -> None:
    words = 300 + 2 + 99 + 6 + 1501
    raw = {
        "model_type": "whisper", "vocab_size": words, "num_mel_bins": 4, "d_model": 8,
        "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
        "decoder_attention_heads": 2, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8,
        "max_source_positions": 50, "max_target_positions": 20,
    }  # fmt: skip
    made: Any = Transcribe.__new__(Transcribe)
    made.config = read_config(raw)
    made.model = Seq2SeqLM(made.config)
    made.model.eval()
    made.words = vocabulary.from_list(_list_of_tokens(tmp_path / "x", 300), words)
    made.start, made.window = [made.words.start], 100
    t = made.words.times
    both, step = made._segments([t, 72, t + 10, t + 10, 105, t + 30, t + 30], 2.0, 100)
    assert [(s["start"], s["end"], s["text"]) for s in both] == [(2.0, 2.2, "H"), (2.2, 2.6, "i")]
    assert step == 60  # up to the last pair of times, two frames each
    one, step = made._segments([t, 72, t + 10], 0.0, 100)
    assert [(s["start"], s["end"], s["text"]) for s in one] == [(0.0, 0.2, "H")]
    assert step == 100
    sound = np.random.default_rng(0).standard_normal(20000).astype(np.float32) * 0.1
    found = made(sound)
    assert isinstance(found["text"], str)
    with pytest.raises(BiremeError, match="WAV file or samples"):
        made(np.zeros((2, 3), np.float32))


def _checkpoint(path: pathlib.Path, pickled: bytes, data: dict[str, bytes]) -> pathlib.Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
        for name, content in data.items():
            archive.writestr(f"archive/data/{name}", content)
    return path


# {"a": a 2 x 3 float tensor} as torch.save writes it, protocol 2.
_PICKLE = (
    b"\x80\x02}X\x01\x00\x00\x00actorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storage"
    b"ctorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x06tQK\x00K\x02K\x03\x86"
    b"K\x03K\x01\x86\x89ccollections\nOrderedDict\n)RtRs."
)


def test_checkpoints_of_pytorch(tmp_path: pathlib.Path) -> None:
    array = np.arange(6, dtype=np.float32)
    found = torch_file.read(_checkpoint(tmp_path / "a.pt", _PICKLE, {"0": array.tobytes()}))
    np.testing.assert_array_equal(found["a"], array.reshape(2, 3))
    with pytest.raises(BiremeError, match="over the end"):
        torch_file.read(_checkpoint(tmp_path / "b.pt", _PICKLE, {"0": array.tobytes()[:20]}))
    with pytest.raises(BiremeError):
        torch_file.read(_checkpoint(tmp_path / "c.pt", _PICKLE[:40], {"0": array.tobytes()}))


def test_hostile_checkpoints_run_nothing(tmp_path: pathlib.Path) -> None:
    import os

    class Evil:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "made"),)

    with pytest.raises(BiremeError, match="mkdir"):
        torch_file.read(_checkpoint(tmp_path / "d.pt", pickle.dumps(Evil(), 2), {}))
    assert not (tmp_path / "made").exists()
