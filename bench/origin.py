"""Where figures come from: the command, the commit, and whether the sources are that commit's."""

from __future__ import annotations

import hashlib
import shlex
import subprocess
import sys
from pathlib import Path

from bench.processes import ROOT

# The commands write these themselves, so that several can run one after another.
_WRITTEN = ("docs/benchmarks.md", "docs/notes/variants.md", "docs/curves.png")
_SOURCES = ("bireme", "bench")


def command() -> str:
    """The command line of this process as one would type it in the checkout."""
    path = Path(sys.argv[0]).resolve()
    if not path.is_relative_to(ROOT / "bench"):
        return shlex.join([path.name, *sys.argv[1:]])
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__")
    arguments = [a for a in sys.argv[1:] if a != "--update-docs"]
    return shlex.join(["python", "-m", module, *arguments])


def commit(root: Path = ROOT) -> str | None:
    """The commit that is checked out; None in a copy of the tree without git's folder."""
    found = _git(root, "rev-parse", "--short=12", "HEAD")
    return found.strip() if found else None


def uncommitted(root: Path = ROOT) -> list[str]:
    """Files that differ from the commit or are not part of it, but for those of the tables."""
    excluded = [f":(exclude){name}" for name in _WRITTEN]
    found = _git(root, "status", "--porcelain", "--", ".", *excluded)
    return [line[3:] for line in (found or "").splitlines()]


def digest(root: Path = ROOT) -> str:
    """A digest of the sources: it identifies them where git's folder is missing."""
    made = hashlib.sha256()
    for folder in _SOURCES:
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                made.update(path.relative_to(root).as_posix().encode() + b"\0")
                made.update(path.read_bytes() + b"\0")
    return made.hexdigest()[:16]


def _git(root: Path, *arguments: str) -> str | None:
    """The output of a git command; None where git or the repository is missing."""
    if not (root / ".git").exists():  # not the repository of a folder above
        return None
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout
