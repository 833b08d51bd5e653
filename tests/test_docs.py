"""Pages are true where a program can tell: links, names of functions and files, sizes."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
# Pages with long lines for a while: prose of the others ends at 120 columns.
LONG_LINES = {
    "clients.md",
    "custom-ops.md",
    "layout.md",
    "processes.md",
    "quickstart.md",
    "writing-ops.md",
}


def names(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```|`[^`\n]*`", "", text, flags=re.S | re.M)


def anchors(page: Path) -> set[str]:
    """The fragments of a page's headings, made as GitHub makes them."""
    found: dict[str, int] = {}
    made = set()
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M)
    for heading in re.findall(r"^#+ (.*)$", text, re.M):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower().strip()
        slug = re.sub(r"[^\w\- ]", "", shown).replace(" ", "-")
        again = found.get(slug, 0)
        found[slug] = again + 1
        made.add(f"{slug}-{again}" if again else slug)
    return made


@pytest.mark.parametrize("page", PAGES, ids=names)
def test_relative_links_lead_somewhere(page: Path) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, fragment = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        if not path.exists() or (fragment and fragment not in anchors(path)):
            broken.append(target)
    assert broken == []


def test_anchors_are_made_as_github_makes_them(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A `b.c` -- d!\n```\n# no heading\n```\n## Again\n## Again\n# [x](y) Ω\n")
    assert anchors(page) == {"a-bc----d", "again", "again-1", "x-ω"}


def test_every_page_is_listed() -> None:
    """In the index, or in the index of the notes."""
    for folder, index in ((DOCS, "index.md"), (DOCS / "notes", "README.md")):
        listed = (folder / index).read_text()
        pages = [p.name for p in folder.glob("*.md") if p.name != index]
        assert [name for name in pages if f"]({name})" not in listed] == []


def test_every_top_level_name_is_in_the_layout() -> None:
    layout = (DOCS / "layout.md").read_text()
    hidden = {"__pycache__", "__init__.py", "__main__.py"}
    entries = [p for p in (ROOT / "bireme").iterdir() if p.name not in hidden]
    shown = {p: p.name + "/" * p.is_dir() for p in entries}
    missing = [
        name for name in shown.values() if not re.search(rf"(?<![\w/]){re.escape(name)}", layout)
    ]
    assert missing == []


# Notes tell of what was tried, also of files that were replaced.
FILES = [p for p in PAGES if p.parent.name != "notes"]


@pytest.mark.parametrize("page", FILES, ids=lambda p: p.name)
def test_files_of_the_package_that_a_page_names_exist(page: Path) -> None:
    files = {"/" + p.relative_to(ROOT).as_posix() for p in ROOT.glob("bireme/**/*.py")}
    named = set(re.findall(r"`((?:core|host|capture|backends|kernels|ops)/[a-z_/]+\.py)`",
                           page.read_text("utf-8")))  # fmt: skip
    missing = {n for n in named if not any(f.endswith("/" + n) for f in files)}
    assert not missing


def defined(path: Path) -> set[str]:
    """The functions and classes of a file, methods as `Class.method`."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            inner = [n for n in node.body if isinstance(n, ast.FunctionDef | ast.ClassDef)]
            found |= {f"{node.name}.{n.name}" for n in inner}
    return found


@pytest.mark.parametrize("page", ["training-step.md", "glossary.md"])
def test_functions_that_a_page_links_to_exist(page: str) -> None:
    """[`function`](../bireme/file.py): the file has a function or class of that name."""
    links = re.findall(r"\[`([\w.]+)`\]\((\.\./bireme/[\w/.]+)\)", (DOCS / page).read_text())
    assert len(links) > 20
    wrong = [
        f"{target}: {name}"
        for name, target in links
        if name not in defined((DOCS / target).resolve()) and not target.endswith(f"/{name}")
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "page", [p for p in PAGES if DOCS in p.parents and p.name not in LONG_LINES], ids=names
)
def test_lines_are_short(page: Path) -> None:
    """Tables and code keep their lines."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M)
    long = [
        line
        for line in text.splitlines()
        if len(line) > 120 and not line.startswith(("|", "    ", "<!--"))
    ]
    assert long == []
