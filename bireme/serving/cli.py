"""`bireme serve MODEL...`"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from bireme.core.errors import BiremeError, InvalidArgument

if TYPE_CHECKING:
    from bireme.serving.server import Server

_NEEDED = ("uvicorn", "httptools", "orjson", "grpc", "google.protobuf", "prometheus_client")


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parser to those of `bireme`."""
    serve = commands.add_parser("serve", help="serve models over HTTP and gRPC")
    serve.add_argument(
        "models",
        nargs="+",
        metavar="MODEL",
        help="a path, a folder NAME/VERSION/, ocr, embedding:PATH or module:Class; "
        "NAME=MODEL gives it another name",
    )
    serve.add_argument("--host", default="127.0.0.1")
    serve.add_argument("--port", type=int, default=8000)
    serve.add_argument("--grpc-port", type=int, default=8001, help="-1: no gRPC")
    serve.add_argument("--model-control", action="store_true", help="clients may load and unload")
    serve.add_argument("--tokens", metavar="FILE", help="bearer tokens, one per line")
    serve.add_argument("--certificate", metavar="PEM", help="with --key: TLS")
    serve.add_argument("--key", metavar="PEM")
    serve.add_argument("--allow-host", action="append", default=[], metavar="NAME",
                       help="another name that clients may call this server by")  # fmt: skip
    serve.add_argument("--access-log", action="store_true", help="a line of JSON per request")
    serve.add_argument("--lame-duck", type=float, default=5.0, metavar="SECONDS",
                       help="after SIGTERM: still answer, but ask clients to leave")  # fmt: skip
    serve.add_argument("--max-body", type=int, default=64, metavar="MIB")
    serve.add_argument("--max-batch", type=int, default=16, metavar="ROWS")
    serve.add_argument("--delay", type=float, default=0.0, metavar="SECONDS",
                       help="how long a batch may wait to become full")  # fmt: skip
    serve.add_argument("--workers", type=int, default=1, help="threads per model")
    serve.add_argument("--queue", type=int, default=1024, metavar="REQUESTS")
    serve.add_argument("--max-wait", type=float, default=10.0, metavar="SECONDS",
                       help="refuse requests that would wait longer")  # fmt: skip
    serve.add_argument("--engine", default="xla", help="xla, onnxruntime, openvino or auto")
    serve.add_argument("--shape", action="append", default=[], metavar="INPUT=3x224x224",
                       help="compile for this shape of an input with open sizes")  # fmt: skip
    text = serve.add_argument_group("language models")
    text.add_argument("--dtype", default="float32", help="of weights and cache")
    text.add_argument(
        "--context", type=int, default=0, metavar="TOKENS", help="of a prompt with its answer"
    )
    text.add_argument("--texts", type=int, default=16, help="that are written together")
    text.add_argument(
        "--cache-gb", type=float, default=1.0, metavar="GB", help="memory for keys and values"
    )
    text.add_argument("--chunk", type=int, default=256, metavar="TOKENS",
                      help="of prompts, between two steps of running texts")  # fmt: skip
    text.add_argument("--no-sharing", action="store_true", help="compute common beginnings again")
    serve.set_defaults(function=_serve)


def _serve(options: argparse.Namespace) -> int:
    lacking = [m for m in _NEEDED if not _there(m)]
    if lacking:
        print(
            f"bireme serve needs {', '.join(lacking)}: pip install 'bireme[serving]'",
            file=sys.stderr,
        )
        return 1
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    if options.access_log:
        logging.getLogger("bireme.serving.access").setLevel(logging.INFO)
    try:
        server = _server(options)
        for name in server.names():
            print(f"loading {name} ...", file=sys.stderr, flush=True)
            server.load_one(name)
        print(table(server), flush=True)
        server.run()
    except (BiremeError, OSError, ValueError) as e:
        print(f"bireme serve: {e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _server(options: argparse.Namespace) -> Server:
    from bireme.serving import Options, Server, Settings
    from bireme.serving.language.model import LanguageOptions
    from bireme.serving.server import name_of

    models: dict[str, str] = {}
    for given in options.models:
        name, equals, source = given.partition("=")
        name, source = (name, source) if equals and "/" not in name else (name_of(given), given)
        if name in models:
            raise InvalidArgument(f"two models are called {name!r}; write NAME=MODEL")
        models[name] = source
    settings = Settings(
        host=options.host,
        port=options.port,
        grpc_port=None if options.grpc_port < 0 else options.grpc_port,
        model_control=options.model_control,
        tokens=options.tokens,
        certificate=options.certificate,
        key=options.key,
        hosts=tuple(options.allow_host),
        access_log=options.access_log,
        lame_duck=options.lame_duck,
        body_bytes=options.max_body << 20,
    )
    made = Options(
        max_batch=options.max_batch,
        delay=options.delay,
        workers=options.workers,
        queue_requests=options.queue,
        queue_wait=options.max_wait,
        engine=options.engine,
        shapes=shapes_in(options.shape),
    )
    language = LanguageOptions(
        dtype=options.dtype,
        context=options.context,
        rows=options.texts,
        cache_gb=options.cache_gb,
        chunk=options.chunk,
        sharing=not options.no_sharing,
    )
    return Server(models, settings, made, language)


def shapes_in(given: Sequence[str]) -> dict[str, list[list[int]]]:
    """Shapes written as INPUT=3x224x224."""
    found: dict[str, list[list[int]]] = {}
    for text in given:
        name, equals, sizes = text.rpartition("=")
        if not equals or not all(s.isdecimal() for s in sizes.split("x")):
            raise InvalidArgument(f"a shape is written INPUT=3x224x224. Received: {text!r}")
        found.setdefault(name, []).append([int(s) for s in sizes.split("x")])
    return found


def table(server: Server) -> str:
    """What is served, and where."""
    rows = []
    for version in server.models.all():
        signature = version.signature
        sizes = "/".join(map(str, version.sizes)) if signature.batched else "one by one"
        inputs = ", ".join(f"{f.name} {f.datatype}{list(f.shape)}" for f in signature.inputs)
        rows.append((version.name, version.number, sizes, inputs))
    head = ("model", "version", "rows", "inputs")
    widths = [max(len(r[i]) for r in [head, *rows]) for i in range(3)]
    lines = ["  ".join([*(r[i].ljust(widths[i]) for i in range(3)), r[3]]) for r in [head, *rows]]
    for name, model in server.languages.items():
        steps = "/".join(map(str, model.programs.shapes.rows))
        lines.append(
            f"{name}: a language model; {model.context} tokens of context, {steps} texts at once, "
            f"{model.cache_bytes / 1e6:.0f} MB of cache in pages of {model.options.page} tokens"
        )
    lines.append(f"HTTP  {server.url}/")
    if server.grpc_port is not None:
        lines.append(f"gRPC  {server.settings.host}:{server.grpc_port}")
    return "\n".join(lines)
