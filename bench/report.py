"""Tables for people, JSON for programs, and the tables of docs/benchmarks.md."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Sequence
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from bench.processes import ROOT, THREADS

RESULTS = ROOT / ".bench"
DOCS = ROOT / "docs" / "benchmarks.md"
BUSY_LOAD = 0.5
_PACKAGES = ("jax", "jaxlib", "paddlepaddle", "torch", "numpy", "onnxruntime", "openvino")


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table: the first column to the left, numbers to the right, aligned as text."""
    widths = [max(len(r[i]) for r in (header, *rows)) for i in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        padded = [
            c.ljust(w) if i == 0 else c.rjust(w)
            for i, (c, w) in enumerate(zip(cells, widths, strict=True))
        ]
        return "| " + " | ".join(padded) + " |"

    rule = (
        "|"
        + "|".join("-" * (w + 2) if i == 0 else "-" * (w + 1) + ":" for i, w in enumerate(widths))
        + "|"
    )
    return "\n".join([line(header), rule, *map(line, rows)])


def machine() -> dict[str, Any]:
    """When, where and with what a result was obtained."""
    import bireme

    versions = {"bireme": bireme.__version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return {
        "date": datetime.now().astimezone().isoformat(timespec="minutes"),
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "threads": THREADS,
        "load_at_start": os.getloadavg()[0],
        "versions": versions,
    }


def _cpu_model() -> str:
    try:
        with open("/proc/cpuinfo") as f:
            names = [line.split(":", 1)[1].strip() for line in f if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or "unknown"


def caption(where: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {v}" for name, v in where["versions"].items())
    if "gpu" in where:
        on = f"{where['gpu']} with {where['cpu']}, {where['cores']} cores"
    else:
        on = f"{where['cpu']}, {where['cores']} cores, {where['threads']} threads per peer"
    text = f"Measured {where['date']} on {on}; {versions}."
    if where["load_at_start"] > BUSY_LOAD:
        # Stays with the figures wherever they go: such a run proves nothing.
        text += f" **The machine was busy (load {where['load_at_start']:.1f}): measure again.**"
    return text


def earlier(name: str, where: dict[str, Any]) -> dict[str, Any]:
    """What was written last under this name, if it comes from this day, machine and software."""
    try:
        document = json.loads((RESULTS / f"{name}.json").read_text())
    except (OSError, ValueError):
        return {}
    then = document["machine"]
    same = all(then[k] == where[k] for k in ("cpu", "cores", "threads", "versions"))
    return document if same and then["date"][:10] == where["date"][:10] else {}


def publish(name: str, where: dict[str, Any], results: Any, text: str, update_docs: bool) -> None:
    """Print the text, write the JSON, and on request put the text into the documentation."""
    print(f"\n{text}\n")
    print(caption(where))
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"machine": where, "results": results}, indent=2) + "\n")
    print(f"Written to {path.relative_to(ROOT)}")
    if update_docs:
        DOCS.write_text(with_section(DOCS.read_text(), name, f"{text}\n\n{caption(where)}"))
        print(f"Updated {DOCS.relative_to(ROOT)}")


def with_section(document: str, name: str, text: str) -> str:
    """`document` with what stands between the markers of `name` replaced by `text`."""
    start, end = f"<!-- bench:{name} -->", f"<!-- /bench:{name} -->"
    pattern = re.compile(re.escape(start) + ".*?" + re.escape(end), re.DOTALL)
    if not pattern.search(document):
        raise ValueError(f"the document has no section between {start} and {end}")
    return pattern.sub(lambda _: f"{start}\n{text}\n{end}", document)
