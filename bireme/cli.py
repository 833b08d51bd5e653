"""The command line: `bireme demo | run | ocr | convert | export | chat | serve | models` …"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    given = list(sys.argv[1:] if argv is None else argv)
    if given[:1] == ["launch"]:
        # The launcher reads its own arguments: argparse cannot pass on what starts with "--".
        from bireme.distributed.launch.main import main as launch

        return launch(given[1:], compat=True)
    if given[:1] == ["ocr"]:
        from bireme.ocr.cli import main as ocr

        return ocr(given[1:])
    options = _parser().parse_args(given)
    return options.function(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bireme", description="A deep-learning platform.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    demo = commands.add_parser("demo", help="train a small network on real digits and show it")
    demo.add_argument("--output", default="demo_output", help="folder for curve and model")
    demo.add_argument("--epochs", type=int, default=10)
    demo.set_defaults(function=_demo)

    run = commands.add_parser("run", help="run a Paddle script on Bireme, unchanged")
    run.add_argument("-m", dest="module", action="store_true", help="run a module by its name")
    run.add_argument("script", help="the Python file (with -m: the module)")
    run.add_argument("arguments", nargs=argparse.REMAINDER, help="passed on to the script")
    run.set_defaults(function=_run)

    commands.add_parser("launch", help="run a script as several processes")
    commands.add_parser("ocr", help="read the text in images and PDF files")

    info = commands.add_parser("info", help="versions, devices, cache and switches")
    info.set_defaults(function=_info)

    convert = commands.add_parser(
        "convert",
        help="a model of PyTorch (.pt2), ONNX, TensorFlow, TFLite, Keras or Caffe as a folder that "
        "jit.load reads, or a language model as a GGUF file",
    )
    convert.add_argument("model", help="the file or folder; for GGUF a model of the zoo")
    convert.add_argument("output", help="folder for model.json and model.safetensors, or x.gguf")
    convert.add_argument("--dtype", help="of GGUF's matrices: F32, F16, BF16, Q8_0 or Q4_0")
    convert.add_argument("--signature", help="of a SavedModel that has several")
    convert.set_defaults(function=_convert)

    export = commands.add_parser("export", help="a model as a file for Bireme Lite's runtime")
    export.add_argument(
        "model", help="what jit.save, Paddle, PyTorch (.pt2), ONNX, TFLite, Keras or Caffe saved"
    )
    where = export.add_mutually_exclusive_group(required=True)
    where.add_argument("--lite", metavar="OUT", help="the file, x.blm")
    where.add_argument("--web", metavar="OUT", help="a folder with a page that runs the model")
    export.add_argument(
        "--weights", default="float32", choices=("float32", "float16", "int8"), help="as stored"
    )
    export.set_defaults(function=_export)

    from bireme.zoo import commands as of_the_zoo

    of_the_zoo.add(commands)

    from bireme.serving import cli as of_the_server

    of_the_server.add(commands)

    bench = commands.add_parser("bench", help="measure against other frameworks")
    bench.add_argument("arguments", nargs=argparse.REMAINDER, help="see docs/benchmarks.md")
    bench.set_defaults(function=_bench)
    return parser


def _demo(options: argparse.Namespace) -> int:
    lacking = [m for m in ("mlxtend", "matplotlib", "tqdm") if not importlib.util.find_spec(m)]
    if lacking:
        print(f"The demo needs {', '.join(lacking)}: pip install 'bireme[demo]'", file=sys.stderr)
        return 1
    from bireme.demo import run
    from bireme.device import tune_process

    tune_process()
    return run(Path(options.output), options.epochs)


def _run(options: argparse.Namespace) -> int:
    from bireme import compat_main
    from bireme.device import tune_process

    tune_process()
    sys.argv = [options.script, *options.arguments]
    if options.module:
        sys.path.insert(0, os.getcwd())
        try:
            run = compat_main.module_runner(options.script)
        except compat_main.ModuleNotRunnable as e:
            print(f"bireme run: {e}", file=sys.stderr)
            return 2
        run()
        return 0
    script = Path(options.script)
    if not script.is_file():
        print(f"bireme run: there is no file {options.script!r}", file=sys.stderr)
        return 2
    sys.path.insert(0, str(script.resolve().parent))
    compat_main.run(script)
    return 0


def _info(options: argparse.Namespace) -> int:
    from bireme import device
    from bireme.backends import available_backends
    from bireme.host import config, jax_door

    jax = jax_door.jax()
    rows = [
        ("bireme", _version("bireme")),
        ("python", f"{platform.python_version()} on {platform.platform()}"),
        *[(name, _version(name)) for name in ("jax", "jaxlib", "numpy", "safetensors")],
        ("current device", device.get_device()),
        ("devices", ", ".join(f"{d.platform}:{d.id} {d.device_kind}" for d in jax.devices())),
        ("backends", ", ".join(available_backends())),
        ("cache folder", _cache(config.cache_dir)),
        ("BIREME_COMPILE", config.compile_mode),
        ("BIREME_EAGER", config.eager_mode),
        ("BIREME_MAX_TRACE", str(config.max_trace_ops)),
        ("BIREME_MAX_PROGRAMS", str(config.max_programs)),
        ("BIREME_CHECK_NAN_INF", "1" if config.check_nan_inf else "0"),
        ("BIREME_FULL_TRACEBACK", os.environ.get("BIREME_FULL_TRACEBACK", "0")),
    ]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name.ljust(width)}  {value}")
    return 0


def _convert(options: argparse.Namespace) -> int:
    from bireme import convert, jit
    from bireme.core.errors import BiremeError

    if options.output.lower().endswith(".gguf"):
        from bireme.zoo.commands import to_gguf

        return to_gguf(options)
    if options.dtype is not None:
        print("bireme convert: --dtype is for an output that ends in .gguf", file=sys.stderr)
        return 2
    target = Path(options.output) / "model"
    try:
        layer = convert.load(options.model, options.signature)
        target.parent.mkdir(parents=True, exist_ok=True)
        jit.save(layer, str(target), _input_specs(layer))
    except (BiremeError, OSError) as e:
        print(f"bireme convert: {e}", file=sys.stderr)
        return 1
    parameters = layer.parameters()
    count = sum(p.size for p in parameters)
    print(f"{count:,} elements in {len(parameters)} parameters")
    print(f"wrote {target}.json and {target}.safetensors; load them with jit.load({str(target)!r})")
    return 0


def _export(options: argparse.Namespace) -> int:
    from bireme import lite
    from bireme.core.errors import BiremeError

    try:
        if options.web is not None:
            made = lite.export_web(options.model, options.web, weights=options.weights)
        else:
            made = lite.export(options.model, options.lite, weights=options.weights)
    except (BiremeError, OSError) as e:
        print(f"bireme export: {e}", file=sys.stderr)
        return 1
    print(f"wrote {made}")
    return 0


def _input_specs(layer: Any) -> Any:
    """The inputs that an imported model declares; Paddle's models have them as a property."""
    specs = layer.input_specs
    return specs() if callable(specs) else specs


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _cache(folder: str) -> str:
    from bireme.host import cache_folder

    if not folder:
        return "off"
    why = cache_folder.problem(folder)
    if why is not None:
        return f"{folder} (not used: {why})"
    files = [f for f in Path(folder).rglob("*") if f.is_file()]
    size = sum(f.stat().st_size for f in files) / 2**20
    return f"{folder} ({len(files)} files, {size:.1f} MiB)"


def _bench(options: argparse.Namespace) -> int:
    root = Path(__file__).resolve().parent.parent
    if not (root / "bench" / "__main__.py").is_file():
        print("bireme bench needs a source checkout: the benchmarks are in bench/", file=sys.stderr)
        return 2
    command = [sys.executable, "-m", "bench", *(options.arguments or ["eager"])]
    return subprocess.run(command, cwd=root, env=dict(os.environ), check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
