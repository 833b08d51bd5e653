"""setuptools as the build backend. A wheel has native kernels, which include jaxlib's headers; an
editable install has none, and needs no jaxlib to be made."""

from __future__ import annotations

from typing import Any

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403 (the other hooks are setuptools')


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    return [*build_meta.get_requires_for_build_wheel(config_settings), "jaxlib>=0.10,<0.12"]
