"""Sound files and datasets made of them."""

from __future__ import annotations

import io
import os
import pathlib
import pickle
import warnings
import wave
import zipfile
from typing import Any

import numpy as np
import pytest

import bireme
from bireme.audio import backends, datasets, load, save

RATE = 8000


def _tone(seconds: float = 0.1, hertz: float = 440.0) -> np.ndarray:
    t = np.arange(int(RATE * seconds)) / RATE
    return (0.8 * np.sin(2 * np.pi * hertz * t)).astype("float32")


def _write(path: Any, width: int, samples: np.ndarray) -> None:
    """A file of `width` bytes per sample from integers."""
    with wave.open(path, "wb") as f:
        f.setnchannels(samples.shape[1])
        f.setsampwidth(width)
        f.setframerate(RATE)
        wide = samples.astype("<i4").reshape(-1, 1).view(np.uint8)[:, :width]
        f.writeframes(np.ascontiguousarray(wide).tobytes())


def test_what_is_saved_is_loaded(tmp_path: pathlib.Path, paddle: Any) -> None:
    sound = np.stack([_tone(), _tone(hertz=200.0)])
    ours, theirs = str(tmp_path / "ours.wav"), str(tmp_path / "theirs.wav")
    save(ours, bireme.to_tensor(sound), RATE)
    paddle.audio.save(theirs, paddle.to_tensor(sound), RATE)
    with open(ours, "rb") as a, open(theirs, "rb") as b:
        assert a.read() == b.read()
    for options in ({}, {"normalize": False}, {"channels_first": False}, {"num_frames": 10},
                    {"frame_offset": 5, "num_frames": 7}):  # fmt: skip
        got, rate = load(ours, **options)
        want, _ = paddle.audio.load(theirs, **options)
        assert rate == RATE
        np.testing.assert_array_equal(got.numpy(), want.numpy())
    np.testing.assert_allclose(load(ours)[0].numpy(), sound, atol=1e-4)
    assert vars(bireme.audio.info(ours)) == vars(paddle.audio.info(theirs))


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_every_width_of_pcm(width: int) -> None:
    top = 2 ** (8 * width - 1)
    samples = np.array([[-top], [-1], [0], [top // 2], [top - 1]], np.int64)
    file = io.BytesIO()
    _write(file, width, samples + (128 if width == 1 else 0))
    file.seek(0)
    got, _ = load(file)
    np.testing.assert_allclose(got.numpy()[0], samples[:, 0] / top, atol=1e-6)


def test_an_offset_alone_counts(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "tone.wav"
    save(path, bireme.to_tensor(_tone()[None]), RATE)
    assert load(path, frame_offset=700)[0].shape == [1, 100]
    assert load(path, frame_offset=900)[0].shape == [1, 0]


def test_loud_samples_are_cut_off_not_wrapped() -> None:
    file = io.BytesIO()
    save(file, bireme.to_tensor([[1.0, -1.0, 3.0]]), RATE)
    file.seek(0)
    assert load(file, normalize=False)[0].tolist() == [[32767.0, -32768.0, 32767.0]]


def test_integers_are_written_as_they_are() -> None:
    file = io.BytesIO()
    save(file, bireme.to_tensor(np.array([[1, -2, 300]], "int16")), RATE)
    file.seek(0)
    assert load(file, normalize=False)[0].tolist() == [[1.0, -2.0, 300.0]]


def test_other_files_are_refused(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "tone.mp3"
    path.write_bytes(b"ID3 no wave")
    with pytest.raises(NotImplementedError, match="only PCM WAV"):
        load(path)
    with pytest.raises(ValueError, match="16-bit"):
        save(path, bireme.ones([1, 3]), RATE, bits_per_sample=24)
    with pytest.raises(ValueError, match="channels"):
        save(path, bireme.ones([3]), RATE)


def test_backends(paddle: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert backends.list_available_backends() == paddle.audio.backends.list_available_backends()
    assert backends.get_current_backend() == "wave_backend"
    backends.set_backend("wave_backend")
    with pytest.raises(NotImplementedError, match="wave_backend"):
        backends.set_backend("soundfile")


def _esc50(folder: pathlib.Path) -> None:
    (folder / "meta").mkdir(parents=True)
    (folder / "audio").mkdir()
    rows = ["filename,fold,target,category,esc10,src_file,take"]
    for i in range(10):
        name = f"{i % 5 + 1}-{i}.wav"
        rows.append(f"{name},{i % 5 + 1},{i},x,False,{i},A")
        save(folder / "audio" / name, bireme.to_tensor(_tone(hertz=100.0 + i)[None]), RATE)
    (folder / "meta" / "esc50.csv").write_text("\n".join(rows) + "\n")


def test_esc50_from_a_folder_and_from_a_zip_file(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "ESC-50-master"
    _esc50(folder)
    packed = tmp_path / "esc50.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        for path in folder.rglob("*"):
            archive.write(path, path.relative_to(tmp_path))
    for where in (folder, tmp_path, packed, {"url": str(folder)}):
        dev = datasets.ESC50("dev", 2, archive=where)
        assert len(dev) == 2
        assert [dev[i][1] for i in range(2)] == [1, 6]
        np.testing.assert_allclose(dev[0][0].numpy(), _tone(hertz=101.0), atol=1e-4)
        assert len(datasets.ESC50("train", 2, archive=where)) == 8
    assert len(datasets.ESC50.label_list) == 50
    mel = datasets.ESC50("dev", 2, "mfcc", folder, n_mfcc=5, n_fft=128, n_mels=8)
    assert pickle.loads(pickle.dumps(mel))[0][0].shape == [5, 26]


def test_tess(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "TESS_Toronto_emotional_speech_set"
    for emotion in datasets.TESS.label_list:
        inner = folder / f"OAF_{emotion}"
        inner.mkdir(parents=True)
        save(inner / f"OAF_word_{emotion}.wav", bireme.to_tensor(_tone()[None]), RATE)
    parts = [datasets.TESS(mode, 7, 3, archive=tmp_path) for mode in ("train", "dev")]
    assert [len(p) for p in parts] == [6, 1]
    assert parts[1][0][1] == 2
    spectrogram = datasets.TESS("dev", 7, 3, "spectrogram", tmp_path, n_fft=64)
    assert spectrogram[0][0].shape == [33, 2]


def test_datasets_say_what_they_need(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match="does not download"):
        datasets.ESC50(archive=tmp_path / "nothing")
    with pytest.raises(ValueError, match="split"):
        datasets.ESC50(split=6)
    _esc50(tmp_path / "ESC-50-master")
    with pytest.raises(ValueError, match="feat_type"):
        datasets.ESC50(feat_type="chroma", archive=os.fspath(tmp_path))


def test_a_mel_layer_trains_through_its_features(tier: str) -> None:
    sound = bireme.to_tensor(_tone()[None], stop_gradient=False)
    loss = bireme.audio.features.LogMelSpectrogram(RATE, 128, n_mels=8)(sound).mean()
    loss.backward()
    assert np.isfinite(sound.grad.numpy()).all()
