"""`paddle.audio.datasets`: sound classification from local files; nothing is downloaded."""

from __future__ import annotations

import csv
import io
import os
from typing import Any, ClassVar

from bireme.audio import features
from bireme.audio.backends import load
from bireme.core.errors import FileFormatError, InvalidArgument
from bireme.io import Dataset
from bireme.io.foreign import open_zip, read_whole, reading

__all__ = ["ESC50", "TESS"]

_FEATURES: dict[str, Any] = {
    "raw": None,
    "melspectrogram": features.MelSpectrogram,
    "mfcc": features.MFCC,
    "logmelspectrogram": features.LogMelSpectrogram,
    "spectrogram": features.Spectrogram,
}


def _home() -> str:
    """Where Paddle keeps its datasets."""
    return os.path.expanduser("~/.cache/paddle/dataset")


class Source:
    """A folder, or a zip file, with the files of a dataset."""

    def __init__(self, path: str, owner: str):
        self.path, self.owner = path, owner
        self.is_zip = os.path.isfile(path)

    def names(self) -> list[str]:
        """All files, in a fixed order, with forward slashes."""
        if self.is_zip:
            with open_zip(self.path, self.owner) as archive:
                return sorted(archive.names())
        found = []
        for folder, _, files in os.walk(self.path):
            inside = os.path.relpath(folder, self.path).replace(os.sep, "/")
            found += [f if inside == "." else f"{inside}/{f}" for f in files]
        return sorted(found)

    def read(self, name: str) -> bytes:
        if self.is_zip:
            with open_zip(self.path, self.owner) as archive:
                return archive.read(name)
        inside = os.path.abspath(self.path)
        place = os.path.abspath(os.path.join(inside, name))
        if os.path.commonpath([inside, place]) != inside:
            raise FileFormatError(
                f"[{self.owner}] {self.path!r} names a file outside of it: {name!r}"
            )
        return read_whole(place, self.owner)


class AudioClassificationDataset(Dataset):
    """(feature, label) of sound files; the feature is the waveform or a spectrogram of it."""

    def __init__(
        self,
        files: list[str],
        labels: list[int],
        feat_type: str = "raw",
        sample_rate: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        if feat_type not in _FEATURES:
            raise InvalidArgument(
                f"[{type(self).__name__}] feat_type must be one of {list(_FEATURES)}. Received: "
                f"{feat_type!r}"
            )
        self.files = files
        self.labels = labels
        self.feat_type = feat_type
        self.sample_rate = sample_rate
        self.feat_config = kwargs
        self._layers: dict[int, Any] = {}
        self._source: Source | None = None

    def __getitem__(self, idx: int) -> tuple[Any, int]:
        name = self.files[idx]
        file = name if self._source is None else io.BytesIO(self._source.read(name))
        waveform, self.sample_rate = load(file)
        waveform = waveform.squeeze(0) if waveform.shape[0] == 1 else waveform
        make = _FEATURES[self.feat_type]
        if make is None:
            return waveform, self.labels[idx]
        if self.sample_rate not in self._layers:
            rate = {} if self.feat_type == "spectrogram" else {"sr": self.sample_rate}
            self._layers[self.sample_rate] = make(**rate, **self.feat_config)
        feature = self._layers[self.sample_rate](waveform.unsqueeze(0))
        return feature.squeeze(0), self.labels[idx]

    def __len__(self) -> int:
        return len(self.files)


# A path, or Paddle's {"url": path}.
ArchiveLike = str | os.PathLike[str] | dict[str, str]


def _find(owner: str, archive: ArchiveLike | None, folder: str) -> Source:
    """The dataset given by `archive`: a path, or Paddle's {"url": path}; by default Paddle's
    own folder."""
    given = archive.get("url") if isinstance(archive, dict) else archive
    path = os.path.join(_home(), folder) if given is None else os.fspath(given)
    if not os.path.exists(path):
        raise InvalidArgument(
            f"[{owner}] Bireme does not download datasets; give archive=, the path of the "
            f"unpacked folder {folder} or of its zip file. Received: {path}"
        )
    inner = os.path.join(path, folder)
    return Source(inner if os.path.isdir(inner) else path, owner)


def _check_split(owner: str, mode: str, split: Any, folds: Any) -> None:
    if not isinstance(folds, int) or folds < 1 or split not in range(1, folds + 1):
        raise InvalidArgument(
            f"[{owner}] split must be between 1 and the {folds} folds. Received: {split!r}"
        )
    if mode not in ("train", "dev"):
        raise InvalidArgument(f"[{owner}] mode must be 'train' or 'dev'. Received: {mode!r}")


# In the order of ESC-50's labels, as its own table names them.
_SOUNDS = (
    "Dog|Rooster|Pig|Cow|Frog|Cat|Hen|Insects (flying)|Sheep|Crow|Rain|Sea waves|"
    "Crackling fire|Crickets|Chirping birds|Water drops|Wind|Pouring water|Toilet flush|"
    "Thunderstorm|Crying baby|Sneezing|Clapping|Breathing|Coughing|Footsteps|Laughing|"
    "Brushing teeth|Snoring|Drinking, sipping|Door knock|Mouse click|Keyboard typing|"
    "Door, wood creaks|Can opening|Washing machine|Vacuum cleaner|Clock alarm|Clock tick|"
    "Glass breaking|Helicopter|Chainsaw|Siren|Car horn|Engine|Train|Church bells|Airplane|"
    "Fireworks|Hand saw"
)


class ESC50(AudioClassificationDataset):
    """Environmental sounds in 50 classes, five folds; "dev" is fold `split`, "train" the rest.

    `archive`: the path of the folder ESC-50-master, or of the zip file with it.
    """

    label_list: ClassVar[list[str]] = [*_SOUNDS.split("|")]

    def __init__(
        self,
        mode: str = "train",
        split: int = 1,
        feat_type: str = "raw",
        archive: ArchiveLike | None = None,
        **kwargs: Any,
    ) -> None:
        _check_split("ESC50", mode, split, 5)
        source = _find("ESC50", archive, "ESC-50-master")
        names = source.names()
        table = next((n for n in names if n.endswith("meta/esc50.csv")), None)
        if table is None:
            raise FileFormatError(f"[ESC50] no meta/esc50.csv there. Received: {source.path}")
        top = table[: -len("meta/esc50.csv")]
        files, labels = [], []
        with reading("ESC50", f"{source.path}: {table}"):
            for row in csv.DictReader(io.StringIO(source.read(table).decode()), strict=True):
                if (int(row["fold"]) == split) == (mode != "train"):
                    files.append(f"{top}audio/{row['filename']}")
                    labels.append(int(row["target"]))
        super().__init__(files, labels, feat_type, **kwargs)
        self._source = source


class TESS(AudioClassificationDataset):
    """Words spoken with seven emotions; every n_folds-th file is in one fold.

    `archive`: the path of the folder TESS_Toronto_emotional_speech_set, or of its zip file.
    """

    label_list: ClassVar[list[str]] = ["angry", "disgust", "fear", "happy", "neutral", "ps", "sad"]

    def __init__(
        self,
        mode: str = "train",
        n_folds: int = 5,
        split: int = 1,
        feat_type: str = "raw",
        archive: ArchiveLike | None = None,
        **kwargs: Any,
    ) -> None:
        _check_split("TESS", mode, split, n_folds)
        source = _find("TESS", archive, "TESS_Toronto_emotional_speech_set")
        sounds = [n for n in source.names() if n.endswith(".wav")]
        if not sounds:
            raise FileFormatError(f"[TESS] there are no .wav files. Received: {source.path}")
        files, labels = [], []
        for place, name in enumerate(sounds):
            if (place % n_folds + 1 == split) == (mode != "train"):
                emotion = os.path.basename(name)[: -len(".wav")].split("_")[-1]
                if emotion not in self.label_list:
                    raise FileFormatError(
                        f"[TESS] {source.path!r}: the name {name!r} ends in none of the emotions"
                    )
                files.append(name)
                labels.append(self.label_list.index(emotion))
        super().__init__(files, labels, feat_type, **kwargs)
        self._source = source
