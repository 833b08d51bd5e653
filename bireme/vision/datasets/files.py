"""Opening dataset files with errors that help."""

from __future__ import annotations

import gzip
import os
from typing import IO, Any

from bireme.core.errors import InvalidArgument


def check_mode(owner: str, mode: str, allowed: tuple[str, ...]) -> str:
    if not isinstance(mode, str) or mode.lower() not in allowed:
        raise InvalidArgument(f"[{owner}] mode must be one of {allowed}. Received: {mode!r}")
    return mode.lower()


def check_backend(owner: str, backend: str | None) -> str:
    """'cv2' gives float32 arrays as Paddle's does; 'pil' (the default) uint8 arrays."""
    backend = backend or "pil"
    if backend not in ("pil", "cv2"):
        raise InvalidArgument(f"[{owner}] backend must be 'pil' or 'cv2'. Received: {backend!r}")
    return backend


def need_file(owner: str, argument: str, path: Any) -> str:
    """The path of an existing file."""
    if path is None:
        raise InvalidArgument(
            f"[{owner}] Bireme does not download datasets; give {argument}=, the path of a local "
            "file. Received: None"
        )
    if not os.path.isfile(path):
        raise InvalidArgument(f"[{owner}] there is no file {os.fspath(path)!r} ({argument})")
    return os.fspath(path)


def open_maybe_gzip(path: str) -> IO[bytes]:
    """A file, unpacked on the fly if it is gzip-compressed, whatever its name."""
    with open(path, "rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rb") if packed else open(path, "rb")  # type: ignore[return-value]
