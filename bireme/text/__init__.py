"""`paddle.text`: the Viterbi decoder and datasets of texts from local files."""

from bireme.text import datasets
from bireme.text.datasets import WMT14, WMT16, Conll05st, Imdb, Imikolov, Movielens, UCIHousing
from bireme.text.viterbi_decode import ViterbiDecoder, viterbi_decode

__all__ = [
    "WMT14",
    "WMT16",
    "Conll05st",
    "Imdb",
    "Imikolov",
    "Movielens",
    "UCIHousing",
    "ViterbiDecoder",
    "datasets",
    "viterbi_decode",
]
