"""Fine-tuning models of the zoo: adapters, texts and preferences, checkpoints, peft's files."""

from bireme.zoo.tuning.adapters import Lora, attach, merge, remove, unmerge
from bireme.zoo.tuning.losses import dpo_losses
from bireme.zoo.tuning.peft_files import load_adapter, save_adapter
from bireme.zoo.tuning.preferences import Dpo
from bireme.zoo.tuning.samples import Sample, read_samples
from bireme.zoo.tuning.trainer import Diverged, Tuned, finetune

__all__ = [
    "Diverged",
    "Dpo",
    "Lora",
    "Sample",
    "Tuned",
    "attach",
    "dpo_losses",
    "finetune",
    "load_adapter",
    "merge",
    "read_samples",
    "remove",
    "save_adapter",
    "unmerge",
]
