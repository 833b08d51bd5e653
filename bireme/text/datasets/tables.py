"""House prices (UCI) and film ratings (MovieLens)."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from bireme.core import dtype as dt
from bireme.core.errors import FileFormatError
from bireme.io import Dataset
from bireme.io.foreign import Zip, open_zip, read_whole, reading
from bireme.vision.datasets.files import check_mode, need_file


class UCIHousing(Dataset):
    """13 features of a Boston district, each scaled by its range, and the price of houses there.

    `data_file` is `housing.data`; the first four fifths are for training.
    """

    def __init__(
        self, data_file: str | None = None, mode: str = "train", download: bool = True
    ) -> None:
        self.mode = check_mode("UCIHousing", mode, ("train", "test"))
        self.data_file = need_file("UCIHousing", "data_file", data_file)
        self.dtype = dt.get_default_dtype()
        with reading("UCIHousing", self.data_file):
            numbers = np.array(read_whole(self.data_file, "UCIHousing").split(), np.float64)
        if numbers.size == 0 or numbers.size % 14 or not np.isfinite(numbers).all():
            raise FileFormatError(
                f"[UCIHousing] {self.data_file!r} must hold rows of 14 numbers. Received: "
                f"{numbers.size} numbers"
            )
        data = numbers.reshape(-1, 14)
        features = data[:, :-1]
        spread = features.max(axis=0) - features.min(axis=0)
        if not np.all((spread > 0) & np.isfinite(spread)):
            raise FileFormatError(
                f"[UCIHousing] {self.data_file!r} has a feature without a range to scale it by"
            )
        data[:, :-1] = (features - features.sum(axis=0) / len(data)) / spread
        cut = int(len(data) * 0.8)
        self.data = data[:cut] if self.mode == "train" else data[cut:]

    def __getitem__(self, idx: int) -> tuple[np.ndarray, np.ndarray]:
        row = self.data[idx]
        return row[:-1].astype(self.dtype), row[-1:].astype(self.dtype)

    def __len__(self) -> int:
        return len(self.data)


_AGES = (1, 18, 25, 35, 45, 50, 56)


@dataclass
class MovieInfo:
    """A film of MovieLens."""

    index: int
    categories: list[str]
    title: str

    def value(self, categories_dict: dict[str, int], movie_title_dict: dict[str, int]) -> list[Any]:
        words = [movie_title_dict[w.lower()] for w in self.title.split()]
        return [[self.index], [categories_dict[c] for c in self.categories], words]


@dataclass
class UserInfo:
    """A user of MovieLens; `age` is the number of the age group."""

    index: int
    is_male: bool
    age: int
    job_id: int

    def value(self) -> list[Any]:
        return [[self.index], [0 if self.is_male else 1], [self.age], [self.job_id]]


class Movielens(Dataset):
    """Ratings: user, gender, age group, job, film, its categories, its title's words, rating.

    `data_file` is `ml-1m.zip`. Which ratings are for testing is drawn with `rand_seed`.
    """

    def __init__(
        self,
        data_file: str | None = None,
        mode: str = "train",
        test_ratio: float = 0.1,
        rand_seed: int = 0,
        download: bool = True,
    ) -> None:
        self.mode = check_mode("Movielens", mode, ("train", "test"))
        self.data_file = need_file("Movielens", "data_file", data_file)
        self.test_ratio, self.rand_seed = test_ratio, rand_seed
        self.movie_info: dict[int, MovieInfo] = {}
        self.user_info: dict[int, UserInfo] = {}
        with open_zip(self.data_file, "Movielens") as package, reading("Movielens", self.data_file):
            self._load_people_and_films(package)
            self._load_ratings(package)

    def _load_people_and_films(self, package: Zip) -> None:
        pattern = re.compile(r"^(.*)\((\d+)\)$")
        for number, name, categories in _columns(package, "movies.dat", 3):
            match = pattern.match(name)
            title = match[1] if match else name
            self.movie_info[int(number)] = MovieInfo(int(number), categories.split("|"), title)
        films = self.movie_info.values()
        words = {w.lower() for film in films for w in film.title.split()}
        kinds = {c for film in films for c in film.categories}
        # In order, so that the numbers are the same in every run.
        self.movie_title_dict = {w: i for i, w in enumerate(sorted(words))}
        self.categories_dict = {c: i for i, c in enumerate(sorted(kinds))}
        for number, gender, age, job, _ in _columns(package, "users.dat", 5):
            group = _AGES.index(int(age))
            self.user_info[int(number)] = UserInfo(int(number), gender == "M", group, int(job))

    def _load_ratings(self, package: Zip) -> None:
        draw = np.random.RandomState(self.rand_seed).random_sample
        self.data: list[list[Any]] = []
        for user, film, rating, _ in _columns(package, "ratings.dat", 4):
            if (draw() < self.test_ratio) != (self.mode == "test"):
                continue
            what = self.movie_info[int(film)].value(self.categories_dict, self.movie_title_dict)
            score = float(rating) * 2 - 5.0
            self.data.append([*self.user_info[int(user)].value(), *what, [score]])

    def __getitem__(self, idx: int) -> tuple[np.ndarray, ...]:
        return tuple(np.array(part) for part in self.data[idx])

    def __len__(self) -> int:
        return len(self.data)


def _columns(package: Zip, name: str, count: int) -> Iterator[list[str]]:
    for line in io.BytesIO(package.read(f"ml-1m/{name}")):
        columns = line.decode("latin-1").strip().split("::")
        if len(columns) != count:
            raise FileFormatError(
                f"[Movielens] a line of {name} must have {count} columns. Received: {len(columns)}"
            )
        yield columns
