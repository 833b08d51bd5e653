"""Compiled code of generated functions, kept from one process to the next.

The functions of ops are generated as source (op_codegen.py), and compiling 400 of them was more
than half of `import bireme`. As with Python's own .pyc files, the file holds marshalled code
objects for this version of Python; here each is found by the digest of its very source, so it is
never stale. A file that is damaged, or cannot be written, costs time and nothing else.
It is written when JAX is first needed, and at the end of a process that has computed something:
one that only imports writes nothing.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import marshal
import os
import sys
from types import CodeType

from bireme.host import cache_folder

_NAME = f"op-functions-{sys.implementation.cache_tag}.bin"
FILENAME = "<bireme op>"  # a name in <> from end to end would have no source for linecache
_known: dict[bytes, CodeType] = {}
_new: dict[bytes, CodeType] = {}
_used: set[bytes] = set()
_saved: list[bool] = []
_loaded = False
_MANY = 4000  # beyond this many, what older versions have left is dropped


def _path(make: bool = False) -> str | None:
    folder = cache_folder.inside(make=make, tell=False)
    return None if folder is None else os.path.join(folder, _NAME)


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
        found = _new[digest] = compile(source, f"{FILENAME} {digest.hex()}", "exec")
    return found


def _load() -> None:
    path = _path()
    content = None if path is None else cache_folder.fetch(path)
    if content is not None:
        # marshal may crash on damaged input, so nothing but what was written is given to it.
        with contextlib.suppress(TypeError, ValueError, EOFError):
            _known.update(marshal.loads(content))


def save() -> None:
    """Write what was compiled in this process."""
    if not _new:
        return
    path = _path(make=not _saved)  # a folder that somebody has removed since is not made again
    if path is None:
        return
    _saved.append(True)
    _known.update(_new)
    _new.clear()
    whole = len(_known) <= _MANY
    cache_folder.store(
        path, marshal.dumps({d: c for d, c in _known.items() if whole or d in _used})
    )


@functools.cache
def save_at_exit() -> None:
    """Have `save` called when the process ends."""
    atexit.register(save)
