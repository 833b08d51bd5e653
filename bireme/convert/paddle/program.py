"""A Paddle program as plain data: what both file formats are read into."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bireme.convert.errors import ModelFileError, UnsupportedModel


@dataclass(slots=True)
class Var:
    """What a program says of a variable. A dimension of -1 is open."""

    name: str
    shape: tuple[int, ...] = ()
    dtype: str | None = None
    lod_level: int = 0
    persistable: bool = False


@dataclass(slots=True)
class OpDesc:
    """One operation: values by slot name, in the language of ProgramDesc."""

    type: str
    inputs: dict[str, list[str]]
    outputs: dict[str, list[str]]
    attrs: dict[str, Any]

    def __str__(self) -> str:
        return f"{', '.join(n for names in self.outputs.values() for n in names)} = {self.type}"


@dataclass(slots=True)
class Block:
    """Operations in order; `parent` is the block whose variables are visible too."""

    ops: list[OpDesc] = field(default_factory=list)
    vars: dict[str, Var] = field(default_factory=dict)
    parent: int = -1


@dataclass(slots=True)
class Program:
    """Block 0 is the main one. `feeds` are the inputs in order, `fetches` (value, public name)."""

    blocks: list[Block]
    feeds: list[Var] = field(default_factory=list)
    fetches: list[tuple[str, str]] = field(default_factory=list)
    parameters: list[Var] = field(default_factory=list)

    @property
    def op_types(self) -> set[str]:
        return {op.type for block in self.blocks for op in block.ops}


__all__ = ["Block", "ModelFileError", "OpDesc", "Program", "UnsupportedModel", "Var"]
