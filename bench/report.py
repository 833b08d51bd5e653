"""Tables for people, JSON for programs, and the tables of docs/benchmarks.md.

Only figures of a commit on a quiet machine are published in the documentation.
"""

from __future__ import annotations

import json
import os
import platform
import re
import textwrap
from collections.abc import Sequence
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bench import origin
from bench.processes import ROOT, THREADS

RESULTS = ROOT / ".bench"
DOCS = ROOT / "docs" / "benchmarks.md"
# The page, and one of tables that are too many for it. A section may be in either.
PAGES = (DOCS, ROOT / "docs" / "notes" / "variants.md")
BUSY_LOAD = 0.5
_BUSY_WORDS = "stop the other work, wait until the load is lower, and run the command again"
_PACKAGES = ("jax", "jaxlib", "paddlepaddle", "torch", "numpy", "onnxruntime", "openvino")


class NotPublished(Exception):
    """These figures may not go into the documentation."""


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


def compact_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The same table without padding, for the page, whose size is limited."""
    rule = "|---" + "|---:" * (len(header) - 1) + "|"
    first, *rest = ["| " + " | ".join(cells) + " |" for cells in (header, *rows)]
    return "\n".join([first, rule, *rest])


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
        "command": origin.command(),
        "commit": origin.commit(),
        "uncommitted": origin.uncommitted(),
        "sources": origin.digest(),
    }


def _cpu_model() -> str:
    try:
        with open("/proc/cpuinfo") as f:
            names = [line.split(":", 1)[1].strip() for line in f if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or "unknown"


def caption(where: dict[str, Any]) -> str:
    """One line under a table: where its figures come from."""
    shown = {n: v for n, v in where["versions"].items() if n not in ("bireme", "jaxlib", "numpy")}
    versions = ", ".join(f"{name} {v}" for name, v in shown.items())
    if "gpu" in where:
        on = f"{where['gpu']} with {where['cpu']}, {where['cores']} cores"
    else:
        on = f"{where['cpu']}, {where['cores']} cores, {where['threads']} threads per peer"
    commit = f"commit {where['commit']}" if where["commit"] else "no commit"
    if where["uncommitted"]:
        commit += " with uncommitted changes"
    load = f"load {where['load_at_start']:.1f}"
    if is_busy(where):
        # Stays with the figures wherever they go: such a run proves nothing.
        load = f"**{load}, the machine was busy: measure again**"
    date = where["date"].replace("T", " ")
    return f"`{where['command']}`, {date}, {commit}, {on}, {load}; {versions}."


def wrapped(where: dict[str, Any]) -> str:
    """The caption as lines of a page."""
    return textwrap.fill(caption(where), 120, break_on_hyphens=False, break_long_words=False)


def is_busy(where: dict[str, Any]) -> bool:
    return where["load_at_start"] > BUSY_LOAD


def check_publishable(where: dict[str, Any]) -> None:
    """Raise if figures that were measured there may not go into the documentation."""
    problems = []
    if is_busy(where):
        problems.append(
            f"the machine was busy: its load was {where['load_at_start']:.1f} at the start, and "
            f"at most {BUSY_LOAD} is accepted; {_BUSY_WORDS}"
        )
    if where["uncommitted"]:
        listed = ", ".join(where["uncommitted"][:5])
        more = len(where["uncommitted"]) - 5
        problems.append(
            f"the checkout has uncommitted changes ({listed}{f' and {more} more' * (more > 0)}); "
            "commit them and run the command again"
        )
    elif where["commit"] is None:
        problems.append(
            "the commit of the measured sources is not known; publish with --from in a clean "
            "checkout of the same sources, or measure in a git checkout"
        )
    if problems:
        raise NotPublished(
            f"The documentation is not written: {'. Also, '.join(problems)}. "
            "No option publishes such figures."
        )


def with_commit(where: dict[str, Any]) -> dict[str, Any]:
    """`where` with this checkout's commit if the figures come from a copy of the same sources."""
    if where["commit"] is not None or where["sources"] != origin.digest():
        return where
    return where | {"commit": origin.commit(), "uncommitted": origin.uncommitted()}


def earlier(name: str, where: dict[str, Any]) -> dict[str, Any]:
    """The document of this name if it is of this day, machine, software and these sources, and
    not of a busy machine unless this one is busy as well."""
    try:
        document = json.loads((RESULTS / f"{name}.json").read_text())
    except (OSError, ValueError):
        return {}
    then = document["machine"]
    keys = ("cpu", "cores", "threads", "versions", "sources", "uncommitted")
    same = all(then.get(k) == where[k] for k in keys) and then["date"][:10] == where["date"][:10]
    return document if same and (is_busy(where) or not is_busy(then)) else {}


def publish(
    name: str, where: dict[str, Any], results: Any, text: str, page: str, update_docs: bool
) -> None:
    """Print the text, write the JSON, and on request put `page` into the documentation: a short
    table, because the page is to be read whole."""
    print(f"\n{text}\n")
    print(caption(where))
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"machine": where, "results": results}, indent=2) + "\n")
    print(f"Written to {path.relative_to(ROOT)}")
    if update_docs:
        where = with_commit(where)
        check_publishable(where)
        path = page_of(name)
        path.write_text(with_section(path.read_text(), name, f"{page}\n\n{wrapped(where)}"))
        print(f"Updated {path.relative_to(ROOT)}")


def page_of(name: str) -> Path:
    """The page with the section of this name."""
    return next((path for path in PAGES if _marker(name) in path.read_text()), DOCS)


def _marker(name: str) -> str:
    return f"<!-- bench:{name} -->"


def with_section(document: str, name: str, text: str) -> str:
    """`document` with what stands between the markers of `name` replaced by `text`."""
    start, end = _marker(name), f"<!-- /bench:{name} -->"
    pattern = re.compile(re.escape(start) + ".*?" + re.escape(end), re.DOTALL)
    if not pattern.search(document):
        raise ValueError(f"the document has no section between {start} and {end}")
    return pattern.sub(lambda _: f"{start}\n{text}\n{end}", document)
