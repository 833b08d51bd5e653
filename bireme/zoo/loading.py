"""Models from files and back: every tensor used once, every parameter filled."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

import bireme as paddle
from bireme.api.types import DTypeLike
from bireme.core import dtype as dt
from bireme.core.aval import aval
from bireme.core.errors import BiremeError, FileFormatError, InvalidArgument
from bireme.core.value import value_of
from bireme.nn.layer.layer import Layer
from bireme.zoo import registry
from bireme.zoo.config import ModelConfig
from bireme.zoo.files import Source, Stored, open_source
from bireme.zoo.kept import keep
from bireme.zoo.names import Names, Rule

_SHOWN = 12  # names in an error


def load(
    path: str | os.PathLike[str], *, task: str | None = None, dtype: DTypeLike = "float32"
) -> tuple[Layer, Any]:
    """(model, tokenizer) of the model at `path`, ready to be used (`model.eval()`).

    `task` is one of the family's tasks (`causal_lm`, `classifier` …); without it the files say
    it. `dtype` is the parameters' type; "auto" keeps the type of the files. "keep" leaves the
    quantised blocks of a GGUF file packed, also in memory; what has none becomes float32.
    """
    from bireme.zoo.tokenizer import load_tokenizer

    source = open_source(path)
    return load_model(source, task=task, dtype=dtype), load_tokenizer(source)


def read_config(raw: Mapping[str, Any]) -> ModelConfig:
    """The config in the dictionary of a config.json."""
    model_type = raw.get("model_type")
    if not isinstance(model_type, str):
        raise FileFormatError("[zoo] the config has no 'model_type'")
    read = registry.module_of(model_type).Config.read
    try:
        return read(raw)
    except BiremeError:
        raise
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as e:
        raise FileFormatError(
            f"[zoo] the config of a {model_type!r} model has a value that cannot be: {e}"
        ) from e


def _check_layers(config: ModelConfig, tensors: Mapping[str, Stored]) -> None:
    """Raise if a config asks for more layers than there are tensors, before they are made."""
    for field in dataclasses.fields(config):
        count = getattr(config, field.name)
        if "layers" in field.name and type(count) is int and count > max(len(tensors), 1):
            raise FileFormatError(
                f"[zoo] the config of a {config.model_type!r} model has {field.name}={count}, and "
                f"the files have {len(tensors)} tensors"
            )


def task_in(config: ModelConfig) -> str:
    """The task that a config's architecture stands for."""
    names = config.raw.get("architectures")
    if isinstance(names, list) and names and isinstance(names[0], str):
        return registry.task_of(names[0])
    raise InvalidArgument(
        "[zoo] the config names no architecture, so the task must be given: task="
        f"{' or '.join(registry.module_of(config.model_type).TASKS)}"
    )


def load_model(
    source: Source,
    *,
    task: str | None = None,
    dtype: DTypeLike = "float32",
    num_labels: int | None = None,
) -> Layer:
    """The model of a source. With `num_labels` a classifier may get a new head: what the files
    lack of it is initialised."""
    raw = dict(source.config)
    if num_labels is not None:
        raw.pop("id2label", None)
        raw.pop("label2id", None)
        raw["id2label"] = {str(i): f"LABEL_{i}" for i in range(num_labels)}
    config = read_config(raw)
    _check_layers(config, source.tensors)
    task = task or task_in(config)
    cls = registry.class_of(config.model_type, task)
    packed = dtype == "keep"
    kind = _file_dtype(source) if dtype == "auto" else dt.as_dtype("float32" if packed else dtype)
    with paddle.LazyGuard(), _default_dtype(kind):
        model = cls(config)
    model.config = config
    model.task = task
    fill(model, source.tensors, kind, new_head=num_labels is not None, packed=packed)
    model.eval()
    return model


def make_model(config: ModelConfig, task: str = "causal_lm", dtype: DTypeLike = "float32") -> Layer:
    """A model of a config with initialised parameters, to train from the beginning."""
    with _default_dtype(dt.as_dtype(dtype)):
        model = registry.class_of(config.model_type, task)(config)
    model.config, model.task = config, task
    return model


@contextmanager
def _default_dtype(kind: dt.DType) -> Iterator[None]:
    before = dt.get_default_dtype()
    dt.set_default_dtype(kind)
    try:
        yield
    finally:
        dt.set_default_dtype(before)


def _file_dtype(source: Source) -> dt.DType:
    kinds = [t.dtype for t in source.tensors.values() if t.dtype.is_floating]
    return max(set(kinds), key=kinds.count) if kinds else dt.float32


def names_of(model: Layer) -> Names:
    """The table of names of a model from the zoo."""
    return registry.module_of(model.config.model_type).names(model.config, model.task)


def fill(
    model: Layer,
    tensors: Mapping[str, Stored],
    kind: dt.DType,
    new_head: bool = False,
    packed: bool = False,
) -> None:
    """Put the tensors into the parameters; what does not fit is listed in one error. If `packed`,
    layers with quantised weights take the blocks as they are."""
    names = names_of(model)
    found = _in_our_base(names, model, tensors)
    kept = _leave_out(names, model, found)
    params: dict[str, Any] = model.state_dict()
    wrong: list[str] = []
    used: set[str] = set()
    for theirs, original in names.copies.items():
        if theirs in found:
            used.add(theirs)
            if original not in found:
                found[original] = found[theirs]
            elif not np.array_equal(found[theirs].read(), found[original].read()):
                wrong.append(f"{theirs} should equal {original}, to which the config ties it")
    for entry in names.entries(model):
        used.update(entry.theirs)
        if entry.ours[0] in kept:
            continue
        lacking = [n for n in entry.theirs if n not in found]
        if lacking and new_head and not entry.ours[0].startswith("model."):
            for name in entry.ours:
                params[name].initialize()
            continue
        if lacking:
            wrong += [f"{n} is missing (for {', '.join(entry.ours)})" for n in lacking]
            continue
        if not (packed and keep(entry, found, model)):
            wrong += _put(entry, found, params, kind)
    left = [n for n in found if n not in used and not names.is_ignored(n)]
    left = left if not _is_base(model) else [n for n in left if _belongs_to_base(n, names, found)]
    wrong += [f"{n} {list(found[n].shape)} is used by no parameter" for n in sorted(left)]
    if wrong:
        shown = "\n  ".join(wrong[:_SHOWN])
        more = f"\n  and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        raise FileFormatError(
            f"[zoo] the files do not fit a {model.config.model_type!r} model for the task "
            f"{model.task!r}:\n  {shown}{more}"
        )


def _leave_out(names: Names, model: Any, found: dict[str, Stored]) -> set[str]:
    """Take optional parts away of which the files have nothing of their own. Returns the buffers
    among them, which keep the values that they were made with."""

    def has(name: str, original: str) -> bool:
        if name not in found:
            return False
        if original in found and np.array_equal(found[name].read(), found[original].read()):
            del found[name]
            return False
        return True

    kept: set[str] = set()
    for part in names.lacking(model, has):
        path, _, last = part.rpartition(".")
        owner = model
        for step in path.split(".") if path else []:
            owner = getattr(owner, step)
        if last in owner._buffers:
            kept.add(part)
        else:
            setattr(owner, last, None)
    return kept


def _is_base(model: Any) -> bool:
    return not any(n.startswith("model.") for n in model.state_dict())


def _belongs_to_base(name: str, names: Names, found: Mapping[str, Stored]) -> bool:
    """Whether a tensor is part of the base: a base model leaves other tasks' heads alone."""
    return not names.base or name.startswith(names.base + ".")


def _in_our_base(names: Names, model: Any, tensors: Mapping[str, Stored]) -> dict[str, Stored]:
    """The tensors under the names of a model with a head: files of a base model lack its prefix."""
    if not names.base or any(n.startswith(names.base + ".") for n in tensors):
        return dict(tensors)
    theirs = {n for e in names.entries(model) for n in e.theirs}
    return {n if n in theirs else f"{names.base}.{n}": t for n, t in tensors.items()}


def _put(
    entry: Rule, found: Mapping[str, Stored], params: Mapping[str, Any], kind: dt.DType
) -> list[str]:
    arrays = entry.load([found[n].read() for n in entry.theirs])
    wrong = []
    for name, array in zip(entry.ours, arrays, strict=True):
        param = params[name]
        if tuple(array.shape) != tuple(param.shape):
            wrong.append(
                f"{', '.join(entry.theirs)}: {list(array.shape)} does not fit {name} "
                f"{list(param.shape)}"
            )
            continue
        to = kind if param.dtype.is_floating else param.dtype
        array = np.require(array.astype(to.numpy, copy=False), requirements="C")
        param._put(value_of(aval(array.shape, to), array))
    return wrong
