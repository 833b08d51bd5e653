"""Only figures of a commit on a quiet machine go into the documentation."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # `bench` is run from the checkout, not installed

from bench import __main__ as command_line  # noqa: E402
from bench import cold, curves, eager, infer, memory, origin, report, to_static  # noqa: E402
from bench.eager import Timing  # noqa: E402

QUIET: dict[str, Any] = {
    "command": "python -m bench cold",
    "commit": "0123456789ab",
    "uncommitted": [],
    "sources": "aaaa",
    "date": "2026-11-19T06:00+00:00",
    "cpu": "a CPU",
    "cores": 2,
    "threads": 2,
    "load_at_start": 0.1,
    "versions": {"bireme": "0.1.0", "python": "3.11.7", "torch": "2.13.0"},
}


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A page with one section, in the place of the documentation."""
    path = tmp_path / "benchmarks.md"
    path.write_text("Before.\n<!-- bench:cold -->\nold\n<!-- /bench:cold -->\nAfter.\n")
    monkeypatch.setattr(report, "ROOT", tmp_path)
    monkeypatch.setattr(report, "DOCS", path)
    monkeypatch.setattr(report, "PAGES", (path,))
    monkeypatch.setattr(report, "RESULTS", tmp_path / ".bench")
    return path


def publish(where: dict[str, Any]) -> None:
    report.publish("cold", where, {"a": 1}, "long text", "short text", True)


def test_a_section_says_where_its_figures_come_from(page: Path) -> None:
    publish(QUIET)
    assert page.read_text() == (
        "Before.\n<!-- bench:cold -->\nshort text\n\n"
        "`python -m bench cold`, 2026-11-19 06:00+00:00, commit 0123456789ab, a CPU, 2 cores, "
        "2 threads per peer, load 0.1;\npython 3.11.7, torch 2.13.0.\n"
        "<!-- /bench:cold -->\nAfter.\n"
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"load_at_start": 1.7}, r"its load was 1\.7 at the start, and at most 0\.5 is accepted"),
        ({"uncommitted": ["bireme/a.py"]}, r"uncommitted changes \(bireme/a\.py\)"),
        ({"uncommitted": list("abcdefg")}, r"\(a, b, c, d, e and 2 more\)"),
        ({"commit": None}, "the commit of the measured sources is not known"),
    ],
)
def test_other_figures_are_refused_but_kept(
    page: Path, change: dict[str, Any], message: str
) -> None:
    before = page.read_text()
    with pytest.raises(report.NotPublished, match=message) as raised:
        publish(QUIET | change)
    assert "No option publishes such figures." in str(raised.value)
    assert page.read_text() == before
    kept = json.loads((page.parent / ".bench" / "cold.json").read_text())
    assert kept["results"] == {"a": 1}


def test_refused_before_anything_is_measured(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command takes up to an hour."""
    monkeypatch.setattr(sys, "argv", ["bench", "cold", "--update-docs"])
    monkeypatch.setattr(command_line, "pin_to_cores", lambda: None)
    monkeypatch.setattr(report, "machine", lambda: QUIET | {"load_at_start": 2.0})
    monkeypatch.setattr(cold, "main", lambda **options: pytest.fail("it was measured"))
    with pytest.raises(SystemExit, match=r"the machine was busy: its load was 2\.0"):
        command_line.main()


def test_all_reasons_are_named() -> None:
    with pytest.raises(report.NotPublished, match=r"busy.*Also, the checkout has uncommitted"):
        report.check_publishable(QUIET | {"load_at_start": 9.0, "uncommitted": ["a"]})


def test_figures_of_a_copy_get_the_commit_of_the_same_sources(
    page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine with the GPU has the files without git's folder."""
    monkeypatch.setattr(origin, "digest", lambda: "aaaa")
    monkeypatch.setattr(origin, "commit", lambda: "fedcba987654")
    monkeypatch.setattr(origin, "uncommitted", list)
    publish(QUIET | {"commit": None})
    assert "commit fedcba987654," in page.read_text()
    with pytest.raises(report.NotPublished, match="not known"):
        publish(QUIET | {"commit": None, "sources": "bbbb"})
    monkeypatch.setattr(origin, "uncommitted", lambda: ["bireme/a.py"])
    with pytest.raises(report.NotPublished, match="uncommitted"):
        publish(QUIET | {"commit": None})


def test_a_run_keeps_rows_of_the_same_sources_only(page: Path) -> None:
    report.publish("cold", QUIET, {"a": 1}, "", "", False)
    assert report.earlier("cold", QUIET)["results"] == {"a": 1}
    assert report.earlier("cold", QUIET | {"sources": "bbbb"}) == {}
    assert report.earlier("cold", QUIET | {"date": "2026-11-20T06:00+00:00"}) == {}
    report.publish("cold", QUIET | {"load_at_start": 3.0}, {"a": 1}, "", "", False)
    assert report.earlier("cold", QUIET) == {}


def test_the_origin_is_read_from_git(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        who = ("-c", "user.name=t", "-c", "user.email=t@t")
        subprocess.run(["git", "-C", str(tmp_path), *who, *arguments], check=True)

    assert origin.commit(tmp_path) is None
    assert origin.uncommitted(tmp_path) == []
    git("init", "--quiet")
    for name in ("bireme/a.py", "docs/benchmarks.md"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("a")
    git("add", ".")
    git("commit", "--quiet", "-m", "a")
    commit = origin.commit(tmp_path)
    assert commit is not None
    assert len(commit) == 12
    before = origin.digest(tmp_path)
    (tmp_path / "docs/benchmarks.md").write_text("tables")  # which the commands write
    assert origin.uncommitted(tmp_path) == []
    assert origin.digest(tmp_path) == before
    (tmp_path / "bireme/a.py").write_text("b")
    (tmp_path / "new.py").write_text("")
    assert sorted(origin.uncommitted(tmp_path)) == ["bireme/a.py", "new.py"]
    assert origin.digest(tmp_path) != before


def test_the_command_is_what_one_types(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [str(ROOT / "bench/__main__.py"), "eager", "--update-docs"])
    assert origin.command() == "python -m bench eager"
    monkeypatch.setattr(sys, "argv", [str(ROOT / "bench/gpu/__main__.py"), "--at-once", "1"])
    assert origin.command() == "python -m bench.gpu --at-once 1"
    monkeypatch.setattr(sys, "argv", ["/usr/bin/pytest", "-q"])
    assert origin.command() == "pytest -q"


def test_tables_of_the_page_are_short() -> None:
    timings = {n: Timing(ms=[ms]) for n, ms in (("bireme", 1.0), ("torch", 2.0))}
    assert report.compact_table(*eager.ratios({"lstm": timings}, list(timings))) == (
        "| step | Bireme, ms | / torch eager |\n|---|---:|---:|\n| `lstm` | 1.00 | 0.50 |"
    )
    failed = {"captured": Timing(ms=[3.0]), "bireme": Timing(ms=[2.0]), "jax": Timing(problem="x")}
    assert to_static.page({"lstm": failed}).endswith("| `lstm` | 3.00 | n/a | 1.50 |")
    engines = {n: Timing(ms=[ms]) for n, ms in (("auto", 1.0), ("bireme_ort", 2.0), ("torch", 4.0))}
    assert infer.page({"`minilm`, 1": engines}, list(engines)).splitlines() == [
        "| model, batch | Bireme auto, ms | / torch |",
        "|---|---:|---:|",
        "| `minilm`, 1 | 1.00 | 0.25 |",
    ]
    peaks = {"lstm": {"bireme": {"steps": 316.2}, "torch": {"problem": "x"}}}
    assert memory.page(peaks, ["bireme", "torch"]).endswith("| `lstm` | 316 | n/a |")
    seconds: dict[str, dict[str, object]] = {n: {"best": 0.5} for n in cold.FIRST_RESULT}
    assert cold.page(seconds, {"bireme": {"best": 15.0}}).endswith("| - | 15.000 | - | - |")
    assert "| `lstm` | n/a | n/a |" in curves.page({"lstm": {}})


def test_the_page_is_short() -> None:
    assert len(report.DOCS.read_bytes()) < 8192
