"""Reading a config.json so that nothing in it that could change numbers goes unseen."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from bireme.core.errors import BiremeError, FileFormatError


class UnknownSetting(BiremeError, ValueError):
    """A key of a config.json that could change numbers and that the model does not know."""


# Keys that change no result of a forward pass, in any family. What a tokenizer or `generate` reads
# is here too; dropout is listed because it is off outside training, and fine-tuning sets its own.
HARMLESS = frozenset(
    """
    architectures model_type transformers_version dtype torch_dtype _name_or_path name_or_path
    auto_map use_cache bos_token_id eos_token_id pad_token_id sep_token_id cls_token_id
    mask_token_id unk_token_id decoder_start_token_id forced_bos_token_id forced_eos_token_id
    bad_words_ids begin_suppress_tokens suppress_tokens
    initializer_range initializer_factor initializer_std init_std initializer_cutoff_factor
    attention_dropout hidden_dropout hidden_dropout_prob attention_probs_dropout_prob
    attn_pdrop embd_pdrop resid_pdrop embedding_dropout dropout dropout_rate activation_dropout
    classifier_dropout classifier_dropout_prob seq_classif_dropout qa_dropout layerdrop
    encoder_layerdrop decoder_layerdrop resid_dropout mlp_dropout embedding_dropout_prob
    pooler_dropout summary_first_dropout ffn_dropout attention_dropout_prob
    problem_type id2label label2id num_labels return_dict use_return_dict output_hidden_states
    output_attentions output_past torchscript is_encoder_decoder is_decoder tie_encoder_decoder
    task_specific_params tokenizer_class prefix finetuning_task gradient_checkpointing
    use_bfloat16 pruned_heads vocab_file max_length min_length num_beams length_penalty
    early_stopping no_repeat_ngram_size do_sample temperature top_k top_p repetition_penalty
    diversity_penalty num_return_sequences typical_p remove_invalid_values
    exponential_decay_length_penalty encoder_no_repeat_ngram_size num_beam_groups
    output_scores return_dict_in_generate attn_implementation _attn_implementation
    _attn_implementation_autoset cache_implementation unsloth_version unsloth_fixed use_mrope
    language license gguf_source
    """.split()  # noqa: SIM905 (two hundred quoted words are harder to read)
)

_MISSING: Any = object()
_LARGEST = 2**26  # of sizes and counts


class Keys:
    """The keys of one config.json, each of which is read, harmless, or an error.

    keys = Keys(json, "llama", defaults={"rope_theta": 10000.0})
    width = keys.take("hidden_size")
    keys.only("pretraining_tp", 1)     # any other value would change numbers: an error
    keys.done()                        # what nobody took is an error that names it
    """

    def __init__(self, raw: Mapping[str, Any], defaults: Mapping[str, Any] | None = None):
        self.raw = dict(raw)
        self.model_type = str(raw.get("model_type", ""))
        self._defaults = dict(defaults or {})
        self._taken: set[str] = set()

    def take(self, name: str, default: Any = _MISSING, *others: str) -> Any:
        """The value of `name` (or of its older names `others`), else the model type's default."""
        self._taken.update((name, *others))
        for key in (name, *others):
            if key in self.raw:
                return self.raw[key]
        if name in self._defaults:
            return self._defaults[name]
        if default is _MISSING:
            raise FileFormatError(
                f"[zoo] the config of a {self.model_type!r} model must have the key {name!r}"
            )
        return default

    def number(self, name: str, default: object = _MISSING, *others: str) -> int:
        """A whole number of at least 0 from `take`."""
        value = self.take(name, default, *others)
        if type(value) is not int or not 0 <= value < _LARGEST:
            raise self.bad(name, value, "a whole number")
        return value

    def real(self, name: str, default: object = _MISSING, *others: str) -> float:
        """A finite number from `take`."""
        value = self.take(name, default, *others)
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e30:
            raise self.bad(name, value, "a number")
        return float(value)

    def flag(self, name: str, default: object = _MISSING, *others: str) -> bool:
        """True or False from `take`; None counts as False."""
        value = self.take(name, default, *others)
        if value is not None and not isinstance(value, bool):
            raise self.bad(name, value, "true or false")
        return bool(value)

    def only(self, name: str, *allowed: object) -> None:
        """The key may be missing or have one of these values; others would change numbers."""
        value = self.take(name, allowed[0])
        if not any(value == a and type(value) is type(a) for a in allowed):
            wanted = " or ".join(repr(a) for a in allowed)
            raise UnknownSetting(
                f"[zoo] {name}={value!r} in the config of a {self.model_type!r} model is not "
                f"supported: only {wanted}"
            )

    def bad(self, name: str, value: object, wanted: str) -> FileFormatError:
        """The error for a key whose value cannot be."""
        return FileFormatError(
            f"[zoo] the config key {name!r} of a {self.model_type!r} model must be {wanted}. "
            f"Received: {value!r:.200}"
        )

    def ignore(self, *names: str) -> None:
        """These keys change no numbers in this family."""
        self._taken.update(names)

    def done(self) -> None:
        """Raise for keys that nobody took. None is what Hugging Face writes for "not used"."""
        left = [
            k
            for k, v in self.raw.items()
            if k not in self._taken and k not in HARMLESS and v is not None
        ]
        if left:
            shown = ", ".join(f"{k}={self.raw[k]!r:.60}" for k in sorted(left)[:8])
            raise UnknownSetting(
                f"[zoo] the config of a {self.model_type!r} model has keys that may change its "
                f"numbers and that Bireme does not know: {shown}. If they change nothing, delete "
                "them from config.json"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """What every family's config has. Families derive frozen dataclasses and a `read`."""

    model_type: str
    raw: Mapping[str, Any] = dataclasses.field(repr=False, default_factory=dict)

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> ModelConfig:
        """The config in the dictionary of a config.json."""
        raise TypeError("a family's config has a read of its own")  # pragma: no cover

    @property
    def num_labels(self) -> int:
        """Of classifiers: how many classes there are."""
        labels = self.raw.get("id2label")
        if isinstance(labels, Mapping) and labels:
            return len(labels)
        count = self.raw.get("num_labels", 2)
        return count if type(count) is int and 0 < count < 2**20 else 2

    @property
    def labels(self) -> list[str]:
        """The names of the classes."""
        names = self.raw.get("id2label")
        names = names if isinstance(names, Mapping) else {}
        return [str(names.get(str(i), names.get(i, f"LABEL_{i}"))) for i in range(self.num_labels)]

    def to_dict(self) -> dict[str, Any]:
        """What config.json holds."""
        return {**self.raw, "model_type": self.model_type}
