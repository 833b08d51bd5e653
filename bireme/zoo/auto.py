"""Classes that find the right model for what a folder holds, by the names people know."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bireme.api.types import DTypeLike
from bireme.core.errors import InvalidArgument
from bireme.nn.layer.layer import Layer
from bireme.zoo import loading
from bireme.zoo.config import ModelConfig
from bireme.zoo.files import open_source

if TYPE_CHECKING:
    from bireme.zoo.tokenizer import Tokenizer


class AutoConfig:
    """Configs of every family."""

    @staticmethod
    def from_pretrained(path: str | os.PathLike[str]) -> ModelConfig:
        """The config of the model at `path`."""
        return loading.read_config(open_source(path).config)

    @staticmethod
    def from_dict(raw: Mapping[str, Any]) -> ModelConfig:
        """The config in the dictionary of a config.json."""
        return loading.read_config(raw)


class AutoTokenizer:
    """Tokenizers of every model."""

    @staticmethod
    def from_pretrained(path: str | os.PathLike[str]) -> Tokenizer:
        """The tokenizer of the model at `path`."""
        from bireme.zoo.tokenizer import load_tokenizer

        return load_tokenizer(open_source(path))


class _AutoModel:
    """A model class for one task; not made, but loaded."""

    task: str | None = None

    def __init__(self) -> None:
        raise InvalidArgument(f"[{type(self).__name__}] call from_pretrained or from_config")

    @classmethod
    def from_pretrained(
        cls,
        path: str | os.PathLike[str],
        *,
        dtype: DTypeLike = "float32",
        num_labels: int | None = None,
    ) -> Layer:
        """The model at `path`. With `num_labels` a classifier's head may be new."""
        return loading.load_model(
            open_source(path), task=cls.task, dtype=dtype, num_labels=num_labels
        )

    @classmethod
    def from_config(cls, config: ModelConfig, *, dtype: DTypeLike = "float32") -> Layer:
        """A model with initialised parameters."""
        return loading.make_model(config, cls.task or loading.task_in(config), dtype)


class AutoModel(_AutoModel):
    """The base of a model, without a head."""

    task = "base"


class AutoModelForCausalLM(_AutoModel):
    """Predicts the next token."""

    task = "causal_lm"


class AutoModelForMaskedLM(_AutoModel):
    """Predicts masked tokens."""

    task = "masked_lm"


class AutoModelForSequenceClassification(_AutoModel):
    """Classifies texts."""

    task = "classifier"


class AutoModelForTokenClassification(_AutoModel):
    """Classifies tokens."""

    task = "token_classifier"


class AutoModelForQuestionAnswering(_AutoModel):
    """Finds where an answer begins and ends."""

    task = "question_answering"


class AutoModelForSeq2SeqLM(_AutoModel):
    """Turns a text into another."""

    task = "seq2seq"


class AutoModelForImageClassification(_AutoModel):
    """Classifies images."""

    task = "image_classifier"
