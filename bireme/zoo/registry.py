"""Which module of `bireme/zoo/models` a config's `model_type` names, and which class a task."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

from bireme.core.errors import InvalidArgument
from bireme.nn.layer.layer import Layer

# model_type: module.
MODEL_TYPES: dict[str, str] = {
    **dict.fromkeys(
        (
            "llama", "mistral", "qwen2", "qwen3", "phi3", "smollm3", "granite", "olmo2",
            "stablelm", "ernie4_5", "helium", "seed_oss", "internlm3",
        ),
        "decoder",
    ),
    **dict.fromkeys(("gemma", "gemma2", "gemma3_text"), "gemma"),
    **dict.fromkeys(("mixtral", "qwen2_moe", "qwen3_moe", "ernie4_5_moe", "olmoe"), "moe"),
    **dict.fromkeys(("gpt2", "gpt_neox", "opt", "bloom", "gptj", "phi"), "gpt2"),
    **dict.fromkeys(
        (
            "bert", "ernie", "roberta", "xlm-roberta", "camembert", "distilbert", "albert",
            "electra", "mpnet", "nomic_bert",
        ),
        "bert",
    ),
    **dict.fromkeys(("t5", "mt5", "umt5"), "t5"),
    **dict.fromkeys(("bart", "mbart", "marian", "pegasus", "m2m_100"), "bart"),
    **dict.fromkeys(("vit", "deit", "dinov2"), "vit"),
    **dict.fromkeys(
        (
            "clip", "clip_text_model", "clip_vision_model",
            "siglip", "siglip_text_model", "siglip_vision_model",
        ),
        "clip",
    ),
    "deberta-v2": "deberta",
    "modernbert": "modernbert",
    "whisper": "whisper",
}  # fmt: skip

# The ends of the names in a config's `architectures`, longest first where one contains another.
ARCHITECTURES: dict[str, str] = {
    "ForCausalLM": "causal_lm",
    "LMHeadModel": "causal_lm",
    "ForMaskedLM": "masked_lm",
    "ForSequenceClassification": "classifier",
    "ForTokenClassification": "token_classifier",
    "ForQuestionAnswering": "question_answering",
    "ForMultipleChoice": "multiple_choice",
    "ForConditionalGeneration": "seq2seq",
    "MTModel": "seq2seq",  # MarianMTModel
    "ForImageClassification": "image_classifier",
    "ForImageClassificationWithTeacher": "distilled_image_classifier",
    "TextModelWithProjection": "text",
    "VisionModelWithProjection": "image",
    "EncoderModel": "encoder",
    "Model": "base",
}


def module_of(model_type: str) -> ModuleType:
    """The family's module."""
    name = MODEL_TYPES.get(model_type)
    if name is None:
        raise InvalidArgument(
            f"[zoo] models of type {model_type!r} are not known. Known: "
            f"{', '.join(sorted(MODEL_TYPES))}"
        )
    return importlib.import_module(f"bireme.zoo.models.{name}")


def class_of(model_type: str, task: str) -> Callable[[Any], Layer]:
    """The Layer of a model type for a task."""
    tasks = module_of(model_type).TASKS
    if task not in tasks:
        raise InvalidArgument(
            f"[zoo] a {model_type!r} model has no {task!r}. It has: {', '.join(tasks)}"
        )
    return tasks[task]


def task_of(architecture: str) -> str:
    """The task of an architecture's name, as config.json gives it."""
    for end, task in ARCHITECTURES.items():
        if architecture.endswith(end):
            return task
    raise InvalidArgument(
        f"[zoo] the architecture {architecture!r} names no task that is known. Give task=: "
        f"{', '.join(dict.fromkeys(ARCHITECTURES.values()))}"
    )


def architecture_of(name: str, task: str) -> str:
    """`name` with the end that stands for `task`, for config.json."""
    for end, known in ARCHITECTURES.items():
        if name.endswith(end):
            if known == task:
                return name
            stem = name.removesuffix(end)
            return stem + next(e for e, t in ARCHITECTURES.items() if t == task)
    return name
