"""Speech as text, with Whisper: `transcribe(sound)` gives the text and its segments with times."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

import bireme as paddle
from bireme.audio.functional import compute_fbank_matrix
from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor
from bireme.nn import functional as F
from bireme.nn.generation import seq2seq
from bireme.nn.generation.rules import Rule, Suppress
from bireme.zoo.files import Source, open_source
from bireme.zoo.files.openai_whisper import open_openai_whisper
from bireme.zoo.loading import load_model
from bireme.zoo.tasks import vocabulary

RATE = 16000  # samples per second
_SIZE, _HOP = 400, 160  # of a frame and between frames, in samples
_TIME = 0.02  # seconds between two time tokens, which are two frames
_LATEST_START = 50  # of the first segment, in time tokens


def log_mel(sound: np.ndarray, bands: int = 80) -> np.ndarray:
    """Whisper's log-mel spectrogram [bands, samples // 160] of a sound at 16 kHz."""
    half = _SIZE // 2
    padded = np.pad(np.asarray(sound, np.float32), half, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, _SIZE)[::_HOP][:-1]
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(_SIZE) / _SIZE)
    power = np.abs(np.fft.rfft(frames * window.astype(np.float32), axis=1)) ** 2
    bank = compute_fbank_matrix(RATE, _SIZE, bands, 0.0, RATE / 2, dtype="float64").numpy()
    found = np.log10(np.maximum(bank @ power.T, 1e-10))
    found = np.maximum(found, found.max() - 8.0)
    return ((found + 4.0) / 4.0).astype(np.float32)


class Times(Rule):
    """Times come in pairs, never go back, and are written when one of them is likelier than
    every word."""

    def __init__(self, end: int, first: int, longest: int):
        self.end, self.first, self.longest = end, first, longest
        self.key = ("times", end, first)

    def given(self, tokens: np.ndarray) -> np.ndarray | None:
        return np.array([self._limits(row.tolist()) for row in tokens], np.int64)

    def _limits(self, row: list[int]) -> tuple[int, int, int]:
        """(the first word that may be written, the first time, the last time)."""
        first, last = self.first, 2**31
        if not row:
            return first, first, first + _LATEST_START
        times = [t for t in row if t >= first]
        after_time = row[-1] >= first
        after_pair = after_time and (len(row) < 2 or row[-2] >= first)
        if times:
            first = times[-1] if after_time and not after_pair else times[-1] + 1
        if after_pair:
            return 0, first, -1
        return (self.end if after_time else 0), first, last

    def apply(self, scores: Tensor, given: Tensor | None) -> Tensor:
        if given is None:
            return scores
        words = paddle.arange(scores.shape[-1]).unsqueeze(0)
        low = paddle.full([1], float("-inf"), scores.dtype)
        time = words >= self.first
        barred = paddle.where(
            time, (words < given[:, 1:2]) | (words > given[:, 2:3]), words < given[:, 0:1]
        )
        scores = paddle.where(barred, low, scores)
        chances = F.softmax(scores, -1)
        none = paddle.zeros([1], chances.dtype)
        of_times = paddle.where(time, chances, none).sum(-1, keepdim=True)
        of_words = paddle.where(time, none, chances).max(-1, keepdim=True)
        return paddle.where((of_times > of_words) & ~time, low, scores)


class Transcribe:
    """Speech as text.

    `model` is a folder of Hugging Face's, or OpenAI's `.pt` with the list of tokens beside it
    (`vocabulary`). Sounds are arrays at 16 kHz or WAV files.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        vocabulary: str | os.PathLike[str] | None = None,
        language: str = "en",
        translate: bool = False,
    ):
        path = os.fspath(model)
        self.source: Source = (
            open_openai_whisper(path) if path.endswith(".pt") else open_source(path)
        )
        self.model: Any = load_model(self.source, task="seq2seq")
        self.config: Any = self.model.config
        self.words = self._vocabulary(vocabulary)
        self.start = self._start(language, translate)
        self.window = 2 * self.config.places  # frames that are read at once

    def _vocabulary(self, given: Any) -> vocabulary.Vocabulary:
        if given is not None:
            return vocabulary.from_list(given, self.config.words)
        if os.path.isfile(self.source.path):
            raise InvalidArgument(
                "[task] a .pt has no list of tokens: give OpenAI's gpt2.tiktoken (English models) "
                "or multilingual.tiktoken as vocabulary="
            )
        from bireme.zoo.tokenizer import load_tokenizer

        inner: Any = load_tokenizer(self.source).inner
        return vocabulary.from_tokenizer(inner)

    def _start(self, language: str, translate: bool) -> list[int]:
        if self.config.words < 51865:  # the English models
            if translate or language != "en":
                raise InvalidArgument("[task] this model only writes English speech down")
            return [self.words.start]
        spoken = self.words.special.get(f"<|{language}|>")
        if spoken is None and language == "en":
            spoken = self.words.start + 1  # the first language
        if spoken is None:
            raise InvalidArgument(f"[task] the vocabulary has no language {language!r}")
        kind = self.words.special["<|translate|>" if translate else "<|transcribe|>"]
        return [self.words.start, spoken, kind]

    def __call__(self, sound: Any) -> dict[str, Any]:
        """{"text", "segments": [{"start", "end", "text"}]} of a sound, times in seconds."""
        samples = _samples(sound)
        length = len(samples) // _HOP
        silence = np.zeros(self.window * _HOP, np.float32)
        mel = log_mel(np.concatenate([samples, silence]), self.config.bands)
        segments: list[dict[str, Any]] = []
        tokens: list[int] = []
        at = 0
        while at < length:
            size = min(self.window, length - at)
            part = mel[:, at : at + size]
            part = np.pad(part, [(0, 0), (0, self.window - size)])
            written = self._written(part)
            found, step = self._segments(written, at / 100, size)
            segments += found
            tokens += [t for s in found for t in s.pop("tokens")]
            at += step
        return {"text": self.words.text(tokens), "segments": segments}

    def _written(self, mel: np.ndarray) -> list[int]:
        words = self.words
        never = [*words.signs, words.no_times, words.start]
        never += [n for name, n in words.special.items() if name != "<|endoftext|>"]
        never = sorted({n for n in never if n < words.times})
        first = [words.end, *([] if words.blank is None else [words.blank])]
        longest = self.config.positions // 2
        found = seq2seq.write(
            self.model,
            mel[None],
            longest,
            start=[self.start],
            eos_token_id=words.end,
            pad_token_id=words.end,
            rules=[Suppress(never, first), Times(words.end, words.times, longest)],
        )
        tokens = found.lists()[0][0]
        return tokens[:-1] if tokens and tokens[-1] == words.end else tokens

    def _segments(
        self, tokens: list[int], offset: float, size: int
    ) -> tuple[list[dict[str, Any]], int]:
        """(the segments of a window that starts at `offset` seconds, how many frames were read)."""
        first = self.words.times
        times = [t >= first for t in tokens]
        cuts = [i for i in range(1, len(tokens)) if times[i] and times[i - 1]]
        open_end = times[-2:] == [False, True]
        if not cuts:
            seen = [t for t, is_time in zip(tokens, times, strict=True) if is_time]
            end = size / 100
            if seen and seen[-1] != first:
                end = (seen[-1] - first) * _TIME
            segment = self._segment(tokens, offset, offset + end)
            return ([segment] if segment["text"].strip() else []), size
        found, last = [], 0
        for cut in [*cuts, *([len(tokens)] if open_end else [])]:
            part = tokens[last:cut]
            begin, end = ((part[i] - first) * _TIME for i in (0, -1))
            segment = self._segment(part, offset + begin, offset + end)
            found += [segment] if segment["text"].strip() and end > begin else []
            last = cut
        return found, size if open_end else max(2 * (tokens[last - 1] - first), 2)

    def _segment(self, tokens: list[int], start: float, end: float) -> dict[str, Any]:
        words = [t for t in tokens if t < self.words.end]
        text = self.words.text(words)
        return {"start": round(start, 2), "end": round(end, 2), "text": text, "tokens": words}


def _samples(sound: Any) -> np.ndarray:
    if isinstance(sound, str | os.PathLike):
        from bireme.audio import load

        loaded, rate = load(os.fspath(sound))
        found = loaded.numpy().mean(0)
    else:
        found, rate = np.asarray(sound.numpy() if isinstance(sound, Tensor) else sound), RATE
    if found.ndim != 1 or found.dtype.kind != "f" or not len(found):
        raise InvalidArgument(
            "[task] transcribe takes a WAV file or samples [time] between -1 and 1 at 16 kHz. "
            f"Received: {found.dtype}{list(found.shape)}"
        )
    return _resampled(found.astype(np.float32), int(rate))


def _resampled(sound: np.ndarray, rate: int) -> np.ndarray:
    """A sound at 16 kHz: its spectrum is cut, or continued with nothing."""
    if rate == RATE:
        return sound
    count = round(len(sound) * RATE / rate)
    spectrum = np.fft.rfft(sound.astype(np.float64))
    kept = np.zeros(count // 2 + 1, np.complex128)
    n = min(len(kept), len(spectrum))
    kept[:n] = spectrum[:n]
    return (np.fft.irfft(kept, count) * (count / len(sound))).astype(np.float32)
