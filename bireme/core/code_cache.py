"""Compiled code of generated functions, kept from one process to the next.

The functions of ops are generated as source (op_codegen.py), and compiling 400 of them was more
than half of `import bireme`. As with Python's own .pyc files, the file holds marshalled code
objects for this version of Python; here each is found by the digest of its very source, so it is
never stale. A file that is damaged, or cannot be written, costs time and nothing else.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import marshal
import os
import sys
import tempfile
from types import CodeType

from bireme.core import config

_MAGIC = b"bireme-code-1\n"
_known: dict[bytes, CodeType] = {}
_new: dict[bytes, CodeType] = {}
_used: set[bytes] = set()
_saved: list[bool] = []  # a folder that somebody has removed since is not made again
_loaded = False
_MANY = 4000  # beyond this many, what older versions have left is dropped


def _path() -> str | None:
    if not config.cache_dir:
        return None
    return os.path.join(config.cache_dir, f"ops-{sys.implementation.cache_tag}.bin")


def compiled(source: str) -> CodeType:
    """`source` as a module's code object."""
    global _loaded
    if not _loaded:
        _loaded = True
        _load()
    digest = hashlib.blake2b(source.encode(), digest_size=16).digest()
    _used.add(digest)
    found = _known.get(digest) or _new.get(digest)
    if found is None:
        found = _new[digest] = compile(source, "<bireme op>", "exec")
    return found


def _load() -> None:
    path = _path()
    with contextlib.suppress(OSError, TypeError, ValueError, EOFError):
        with open(path or "", "rb") as file:
            content = file.read()
        start = len(_MAGIC) + 32
        payload = content[start:]
        # marshal may crash on damaged input, so nothing but what was written is given to it.
        if content[:start] == _MAGIC + hashlib.sha256(payload).digest():
            _known.update(marshal.loads(payload))


def save() -> None:
    """Write what was compiled in this process; called when the first ops are defined, and at exit
    for those of modules that were imported later."""
    path = _path()
    if not _new or path is None:
        return
    _known.update(_new)
    _new.clear()
    whole = len(_known) <= _MANY
    payload = marshal.dumps({d: c for d, c in _known.items() if whole or d in _used})
    with contextlib.suppress(OSError):
        if not _saved:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            _saved.append(True)
        handle, part = tempfile.mkstemp(dir=os.path.dirname(path))
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_MAGIC + hashlib.sha256(payload).digest() + payload)
            os.replace(part, path)
        except OSError:
            os.unlink(part)


atexit.register(save)
