"""`inference.json`: a PIR program, Paddle's format since version 3.

    {"base_code": {"magic": "pir", "version": 4}, "program": {"regions": [{"blocks": [{"ops": [
      {"#": "p", "A": [0, 1, 1, "fc.w_0"], "O": {"%": 1, "TT": …}},
      {"#": "1.relu", "I": [{"%": 4}], "O": [{"%": 5, "TT": …}], "A": [{"N": …, "AT": …}]}]}]}]}}

`#` is an op or a type with its dialect's number, `%` a value's number, 0 an operand that is absent.
"""

from __future__ import annotations

import json
from typing import Any

from bireme.convert.paddle.pir_ops import ROWS, Row, row
from bireme.convert.paddle.program import (
    Block,
    ModelFileError,
    OpDesc,
    Program,
    UnsupportedModel,
    Var,
)
from bireme.convert.paddle.program_desc import MAX_MODEL, MAX_RANK
from bireme.core.errors import FileFormatError

NEWEST = 4
MAX_DEPTH = 32
_DIALECTS = {"0": "builtin.", "1": "", "2": "cf."}
_TYPES = {
    "0.t_bool": "bool", "0.t_i8": "int8", "0.t_ui8": "uint8", "0.t_i16": "int16",
    "0.t_i32": "int32", "0.t_i64": "int64", "0.t_f16": "float16", "0.t_bf16": "bfloat16",
    "0.t_f32": "float32", "0.t_f64": "float64", "0.t_c64": "complex64", "0.t_c128": "complex128",
    "0.t_f8e4m3fn": "float8_e4m3fn", "0.t_f8e5m2": "float8_e5m2",
}  # fmt: skip


def read_pir(data: bytes) -> Program:
    """The program in an `inference.json`."""
    if len(data) > MAX_MODEL:
        raise ModelFileError(f"a model of {len(data)} bytes is too large (limit {MAX_MODEL})")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as e:
        raise ModelFileError(f"not readable JSON: {e}") from None
    try:
        code = document["base_code"]
        if code["magic"] != "pir":
            raise ModelFileError(f"the magic word is {code['magic']!r:.40}, not 'pir'")
        version = code["version"]
        if type(version) is not int or not 0 <= version <= NEWEST:
            raise ModelFileError(
                f"PIR version {version!r:.40}; this reader knows versions up to {NEWEST}"
            )
        return _Reader().program(document["program"])
    except FileFormatError:
        raise
    except RecursionError:
        raise ModelFileError("the program is nested too deeply") from None
    except (KeyError, TypeError, IndexError, ValueError, AttributeError) as e:
        raise ModelFileError(f"the program is damaged: {type(e).__name__}: {e!s:.200}") from None


class _Reader:
    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.feeds: list[Var] = []
        self.fetches: list[tuple[int, str, str]] = []
        self.parameters: list[Var] = []

    def program(self, raw: Any) -> Program:
        (region,) = raw["regions"]
        (main,) = region["blocks"]
        self.block(main, -1, 0)
        if not self.fetches:
            raise ModelFileError("the program has no results ('fetch')")
        fetches = [(value, name) for _, value, name in sorted(self.fetches)]
        return Program(self.blocks, self.feeds, fetches, self.parameters)

    def block(self, raw: Any, parent: int, depth: int) -> int:
        if depth > MAX_DEPTH:
            raise ModelFileError(f"regions lie in each other more than {MAX_DEPTH} deep")
        block = Block(parent=parent)
        at = len(self.blocks)
        self.blocks.append(block)
        for op in raw["ops"]:
            made = self.op(op, at, depth)
            if made is not None:
                block.ops.append(made)
        return at

    def op(self, raw: dict[str, Any], block: int, depth: int) -> OpDesc | None:
        kind = raw["#"]
        if kind == "p":
            self.parameter(raw)
            return None
        dialect, _, name = kind.partition(".")
        if dialect not in _DIALECTS:
            raise UnsupportedModel(f"an operation of the unknown dialect {kind!r:.60}")
        name = _DIALECTS[dialect] + name
        attrs = {_text(a["N"]): _attribute(a["AT"], 0) for a in raw["A"]}
        operands = [o["%"] for o in raw["I"]]
        results = [o["%"] for o in raw["O"]]
        for number in (*operands, *results):
            if type(number) is not int:
                raise ModelFileError(f"{number!r:.40} is no value's number")
        if name in ("data", "feed"):
            self.feed(attrs, raw["O"][0])
            return None
        if name == "fetch":
            public, column = _text(attrs["name"]), attrs.get("col", 0)
            if type(column) is not int:
                raise ModelFileError(f"a result's number is {column!r:.40}")
            self.fetches.append((column, str(operands[0]), public))
            return None
        if name in ("if", "while"):
            self.regions(name, raw, attrs, block, depth)
        return _describe(name, attrs, operands, results)

    def parameter(self, raw: dict[str, Any]) -> None:
        _, _, _, name = raw["A"]
        var = _tensor(_text(name), raw["O"]["TT"])
        # (persistable, stop_gradient, trainable): what is not persistable is not in the file.
        var.persistable = bool(raw["OA"][0]) if raw.get("OA") else True
        self.parameters.append(var)
        self.blocks[0].vars[str(raw["O"]["%"])] = var

    def feed(self, attrs: dict[str, Any], result: dict[str, Any]) -> None:
        var = _tensor(_text(attrs["name"]), result["TT"])
        self.feeds.append(var)
        self.blocks[0].vars[str(result["%"])] = var

    def regions(
        self, name: str, raw: dict[str, Any], attrs: dict[str, Any], block: int, depth: int
    ) -> None:
        inner = []
        for region in raw["regions"]:
            (only,) = region["blocks"]
            inner.append((self.block(only, block, depth + 1), only))
        for number, _ in inner:
            ops = self.blocks[number].ops
            if not ops or ops[-1].type != "yield_values":
                raise ModelFileError(f"a region of [{name}] does not end in a yield")
        if name == "if":
            (attrs["true_block"], _), (attrs["false_block"], _) = inner
        else:
            ((attrs["body_block"], only),) = inner
            attrs["arguments"] = [str(a["#"]) for a in only["args"]]


def _describe(name: str, attrs: dict[str, Any], operands: list[int], results: list[int]) -> OpDesc:
    entry: Row = ROWS.get(name) or row(name)
    if name in ("tril", "triu"):
        entry, attrs["lower"] = row("tril_triu"), name == "tril"
    inputs: dict[str, list[str]] = {}
    slots = entry.inputs
    if name in ("builtin.combine", "cf.yield"):
        inputs["X"] = [str(o) for o in operands]
    elif name == "while":
        inputs = {"Cond": [str(operands[0])], "X": [str(o) for o in operands[1:]]}
    else:
        if len(operands) > len(slots) and any(operands[len(slots) :]):
            raise UnsupportedModel(f"[{name}] with {len(operands)} operands")
        inputs = {s: [str(o)] for s, o in zip(slots, operands, strict=False) if o != 0}
    outputs: dict[str, list[str]]
    if name in ("builtin.split", "if", "while"):
        outputs = {"Out": [str(r) for r in results]}
    else:
        outputs = {s: [str(r)] for s, r in zip(entry.outputs, results, strict=False)}
    named = {entry.attrs.get(k, k): v for k, v in attrs.items()}
    return OpDesc(entry.type, inputs, outputs, named)


def _text(name: Any) -> str:
    if not isinstance(name, str):
        raise ModelFileError(f"{name!r:.40} is no name")
    return name


def _tensor(name: str, raw: Any) -> Var:
    if raw["#"] != "0.t_dtensor":
        raise UnsupportedModel(f"{name!r:.80} is a {raw['#']!r:.40}, not a dense tensor")
    kind, dims, *_ = raw["D"]
    if kind["#"] not in _TYPES:
        raise UnsupportedModel(f"{name!r:.80} has the element type {kind['#']!r:.40}")
    if len(dims) > MAX_RANK or not all(type(d) is int for d in dims):
        raise ModelFileError(f"{name!r:.80} has the shape {dims!r:.200}")
    return Var(name, tuple([max(d, -1) for d in dims]), _TYPES[kind["#"]])


def _attribute(raw: dict[str, Any], depth: int) -> Any:
    kind: str = raw["#"]
    value: Any = raw.get("D")
    if kind == "0.a_array":
        if depth > MAX_DEPTH:
            raise ModelFileError("an attribute is nested too deeply")
        return [_attribute(v, depth + 1) for v in value]
    if isinstance(value, dict) and "#" in value:
        return _attribute(value, depth + 1)
    if kind in ("0.a_f32", "0.a_f64") and isinstance(value, str):
        return float(value)  # inf and nan have no JSON form
    return value
