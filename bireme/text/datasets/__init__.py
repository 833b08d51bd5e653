"""Datasets of texts that read local files; nothing is downloaded."""

from bireme.text.datasets.conll05 import Conll05st
from bireme.text.datasets.corpora import Imdb, Imikolov
from bireme.text.datasets.tables import Movielens, UCIHousing
from bireme.text.datasets.translation import WMT14, WMT16

__all__ = ["WMT14", "WMT16", "Conll05st", "Imdb", "Imikolov", "Movielens", "UCIHousing"]
