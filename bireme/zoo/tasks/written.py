"""Texts from texts: summaries and translations, by encoder-decoders."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from bireme.core.errors import InvalidArgument
from bireme.nn.generation import seq2seq
from bireme.nn.generation.rules import Barred, Forced, Rule, Suppress
from bireme.zoo.tasks.running import batches
from bireme.zoo.tasks.texts import TextModel, listed, read_json_of


class Rewrite:
    """What a model writes for texts: `rewrite(texts)` gives a text for each.

    How it is written (beams, lengths, what must not be repeated) is what the folder's
    generation_config.json says, unless the call says it. `prefix` stands before each text: T5's
    models are told their work by it ("summarize: ").
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        prefix: str = "",
        max_length: int | None = None,
    ):
        self.text = TextModel(model, "seq2seq", max_length)
        self.prefix = prefix
        raw = self.text.config.raw
        said = read_json_of(self.text.source.path, "generation_config.json") or {}
        self.settings: dict[str, Any] = {**raw, **{k: v for k, v in said.items() if v is not None}}
        start = self.settings.get("decoder_start_token_id", self.settings.get("bos_token_id"))
        if not isinstance(start, int):
            raise InvalidArgument("[task] the folder does not say decoder_start_token_id")
        self.start = start

    def __call__(
        self,
        texts: str | Sequence[str],
        *,
        max_new_tokens: int | None = None,
        num_beams: int | None = None,
    ) -> str | list[str]:
        """The texts that the model writes."""
        given, single = listed(texts, "this task")
        encodings = self.text.encoded([self.prefix + t for t in given])
        found = self._written(encodings, max_new_tokens, num_beams)
        return found[0] if single else found

    def _written(
        self, encodings: Sequence[Any], longest: int | None, beams: int | None, first: Any = None
    ) -> list[str]:
        own = self.settings
        limit = int(
            longest or own.get("max_new_tokens") or max(own.get("max_length") or 128, 2) - 1
        )
        count = int(beams or own.get("num_beams") or 1)
        ids = [e.ids for e in encodings]
        found: list[str] = [""] * len(ids)
        for chosen, rows, size in batches([len(i) for i in ids], self.text.longest):
            tokens = np.full((rows, size), self.text.pad, np.int64)
            mask = np.zeros((rows, size), np.int64)
            mask[len(chosen) :, 0] = 1
            for row, i in enumerate(chosen):
                tokens[row, : len(ids[i])] = ids[i]
                mask[row, : len(ids[i])] = 1
            written = seq2seq.write(
                self.text.model,
                tokens,
                limit,
                attention_mask=mask,
                start=np.full((rows, 1), self.start),
                num_beams=count,
                length_penalty=own.get("length_penalty") or 1.0,
                early_stopping=own.get("early_stopping") or False,
                eos_token_id=own.get("eos_token_id"),
                pad_token_id=self.text.pad,
                rules=self._rules(limit, first),
            ).lists()
            for row, i in enumerate(chosen):
                found[i] = self.text.tokenizer.decode(written[row][0]).strip()
        return found

    def _rules(self, longest: int, first: int | None) -> list[Rule]:
        own = self.settings
        never = [*(own.get("suppress_tokens") or [])]
        never += [w[0] for w in own.get("bad_words_ids") or [] if len(w) == 1]
        rules: list[Rule] = []
        if never:
            rules.append(Suppress(sorted(set(never)), own.get("begin_suppress_tokens") or ()))
        ngram, least = own.get("no_repeat_ngram_size") or 0, own.get("min_length") or 0
        if ngram or least > 1:
            end = own.get("eos_token_id")
            ends = end if isinstance(end, list) else [] if end is None else [end]
            rules.append(Barred(ngram, least - 1, ends))
        first = own.get("forced_bos_token_id") if first is None else first
        last = own.get("forced_eos_token_id")
        if first is not None or last is not None:
            rules.append(Forced(first, last, longest))
        return rules


class Translate(Rewrite):
    """Texts in another language: `translate(texts, to="de_DE")`.

    `to` is the token of the wanted language, for models of many (mBART, M2M100, NLLB); those of
    one pair need none.
    """

    def __call__(
        self,
        texts: str | Sequence[str],
        to: str | None = None,
        *,
        max_new_tokens: int | None = None,
        num_beams: int | None = None,
    ) -> str | list[str]:
        """The translated texts."""
        given, single = listed(texts, "translate")
        first = None
        if to is not None:
            tokens = (to, f"__{to}__")
            numbers = [self.text.tokenizer.token_to_id(t) for t in tokens]
            first = next((n for n in numbers if n is not None), None)
            if first is None:
                raise InvalidArgument(f"[task] the vocabulary has no language {to!r}")
        encodings = self.text.encoded([self.prefix + t for t in given])
        found = self._written(encodings, max_new_tokens, num_beams, first)
        return found[0] if single else found
