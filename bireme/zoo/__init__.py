"""Models that people have, by name: language models, their files, tokenizers and tasks.

from bireme import zoo

model, tokenizer = zoo.load("path/to/a/folder")
"""

from __future__ import annotations

from bireme.zoo.auto import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForImageClassification,
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
)
from bireme.zoo.candidates import Candidate, candidates
from bireme.zoo.config import UnknownSetting
from bireme.zoo.evaluating import evaluate
from bireme.zoo.generating import chat, generate, stream
from bireme.zoo.loading import load, make_model
from bireme.zoo.prompt_cache import PromptCache
from bireme.zoo.saving import save_pretrained
from bireme.zoo.saving_gguf import save_gguf
from bireme.zoo.tasks import Taskflow, task
from bireme.zoo.tokenizer import StreamDecoder, Tokenizer
from bireme.zoo.tuning import (
    Dpo,
    Lora,
    Tuned,
    finetune,
    load_adapter,
    merge,
    save_adapter,
    unmerge,
)

__all__ = [
    "AutoConfig",
    "AutoModel",
    "AutoModelForCausalLM",
    "AutoModelForImageClassification",
    "AutoModelForMaskedLM",
    "AutoModelForQuestionAnswering",
    "AutoModelForSeq2SeqLM",
    "AutoModelForSequenceClassification",
    "AutoModelForTokenClassification",
    "AutoTokenizer",
    "Candidate",
    "Dpo",
    "Lora",
    "PromptCache",
    "StreamDecoder",
    "Taskflow",
    "Tokenizer",
    "Tuned",
    "UnknownSetting",
    "candidates",
    "chat",
    "evaluate",
    "finetune",
    "generate",
    "load",
    "load_adapter",
    "make_model",
    "merge",
    "save_adapter",
    "save_gguf",
    "save_pretrained",
    "stream",
    "task",
    "unmerge",
]
