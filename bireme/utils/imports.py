"""Optional packages, and the version of the API."""

from __future__ import annotations

import importlib
import re
from types import ModuleType

from bireme import version
from bireme.core.errors import BiremeError, InvalidArgument, TypeMismatch

_PACKAGES = {"cv2": "opencv-python", "sklearn": "scikit-learn", "PIL": "pillow"}


class MissingPackage(BiremeError, ImportError):
    """A package that has to be installed first."""


class WrongVersion(BiremeError):
    """The API is older or newer than the program wants."""


def try_import(module_name: str, err_msg: str | None = None) -> ModuleType:
    """Import an optional module, or say how to get it."""
    try:
        return importlib.import_module(module_name)
    except ImportError as e:
        top = module_name.partition(".")[0]
        raise MissingPackage(
            err_msg
            or f"[try_import] {module_name} cannot be imported ({e}). Install it, usually with "
            f"`pip install {_PACKAGES.get(top, top)}`"
        ) from None


def require_version(min_version: str, max_version: str | None = None) -> None:
    """Raise unless the Paddle API that Bireme provides lies between the two versions.

    >>> require_version("2.0")
    """
    for name, given in (("min_version", min_version), ("max_version", max_version)):
        if given is None and name == "max_version":
            continue
        if not isinstance(given, str):
            raise TypeMismatch(
                f"[require_version] {name} must be a str. Received: {type(given).__name__}"
            )
        if not re.fullmatch(r"\d+(\.\d+){0,3}", given):
            raise InvalidArgument(
                f"[require_version] {name} must look like '1.5.2.0'. Received: {given!r}"
            )
    here = version.parse(version.full_version)
    too_new = max_version is not None and here > version.parse(max_version)
    if here < version.parse(min_version) or too_new:
        wanted = (
            f"{min_version} or newer" if max_version is None else f"{min_version}..{max_version}"
        )
        raise WrongVersion(
            f"[require_version] version {wanted} of Paddle's API is needed; this Bireme provides "
            f"{version.full_version}"
        )


__all__ = ["require_version", "try_import"]
