"""Models by what they are for: `task(name, model)` gives a function for one kind of work.

embed = zoo.task("embedding", "path/to/a/folder")
vectors = embed(["How do I bake bread?", "Recipes for loaves"])
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from bireme.core.errors import InvalidArgument

# name: (module, class). Words that people know mean the same.
_TASKS = {
    "embedding": ("embedding", "Embedding"),
    "similarity": ("embedding", "Similarity"),
    "rerank": ("embedding", "Rerank"),
    "classify": ("labels", "Classify"),
    "zero_shot": ("labels", "ZeroShot"),
    "ner": ("labels", "Entities"),
    "question_answering": ("labels", "Answer"),
    "fill_mask": ("labels", "FillMask"),
    "summarise": ("written", "Rewrite"),
    "translate": ("written", "Translate"),
    "transcribe": ("speech", "Transcribe"),
}
_OTHER_WORDS = {
    "feature_extraction": "embedding",
    "text_similarity": "similarity",
    "text_classification": "classify",
    "sentiment_analysis": "classify",
    "zero_shot_classification": "zero_shot",
    "token_classification": "ner",
    "qa": "question_answering",
    "summarize": "summarise",
    "summarization": "summarise",
    "text_summarization": "summarise",
    "translation": "translate",
    "automatic_speech_recognition": "transcribe",
}


def task(name: str, model: Any, **settings: Any) -> Callable[..., Any]:
    """The task `name` with the model at `model`; `settings` are those of the task's class."""
    known = name.replace("-", "_")
    known = _OTHER_WORDS.get(known, known)
    if known not in _TASKS:
        raise InvalidArgument(
            f"[task] there is no task {name!r}. Known: {', '.join([*_TASKS, *_OTHER_WORDS])}"
        )
    module, cls = _TASKS[known]
    return getattr(importlib.import_module(f"bireme.zoo.tasks.{module}"), cls)(model, **settings)


Taskflow = task
