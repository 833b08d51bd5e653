"""`.pdmodel` and `__model__`: a ProgramDesc message, Paddle's format up to version 2."""

from __future__ import annotations

from typing import Any

from bireme.convert.paddle.program import Block, ModelFileError, OpDesc, Program, Var
from bireme.convert.wire import decode, message

MAX_MODEL = 1 << 28  # bytes; a large net without its weights has about a million
NEWEST = 3_999_999  # program version: major * 1,000,000 + minor * 1,000 + patch
MAX_RANK = 32

TENSOR_DESC = message(data_type=(1, "int32"), dims=(2, "[int64"))
_LOD_TENSOR = message(tensor=(1, TENSOR_DESC), lod_level=(2, "int32"))
_VAR_TYPE = message(type=(1, "int32"), lod_tensor=(3, _LOD_TENSOR), tensor_array=(4, _LOD_TENSOR))
_VAR = message(name=(1, "string"), type=(2, _VAR_TYPE), persistable=(3, "bool"))
_SCALAR = message(type=(1, "int32"), b=(2, "bool"), i=(3, "int64"), r=(4, "double"))
_SLOT = message(parameter=(1, "string"), arguments=(2, "[string"))
_ATTR = message(
    name=(1, "string"), type=(2, "int32"), i=(3, "int32"), f=(4, "float"), s=(5, "bytes"),
    ints=(6, "[int32"), floats=(7, "[float"), strings=(8, "[bytes"), b=(10, "bool"),
    bools=(11, "[bool"), block_idx=(12, "int32"), l=(13, "int64"), blocks_idx=(14, "[int32"),
    longs=(15, "[int64"), float64s=(16, "[double"), var_name=(17, "string"),
    vars_name=(18, "[string"), float64=(19, "double"), scalar=(20, _SCALAR),
    scalars=(21, [_SCALAR]),
)  # fmt: skip
_OP = message(inputs=(1, [_SLOT]), outputs=(2, [_SLOT]), type=(3, "string"), attrs=(4, [_ATTR]))
_BLOCK = message(idx=(1, "int32"), parent_idx=(2, "int32"), vars=(3, [_VAR]), ops=(4, [_OP]))
_VERSION = message(version=(1, "int64"))
_PROGRAM = message(blocks=(1, [_BLOCK]), version=(4, _VERSION))

# VarType.Type: the element types, by number.
DTYPES = {
    0: "bool", 1: "int16", 2: "int32", 3: "int64", 4: "float16", 5: "float32", 6: "float64",
    20: "uint8", 21: "int8", 22: "bfloat16", 23: "complex64", 24: "complex128",
    32: "float8_e4m3fn", 33: "float8_e5m2",
}  # fmt: skip
_LOD_TENSOR_TYPE = 7
# AttrType -> the field that holds it; the repeated ones are empty lists where they are absent.
_ATTR_FIELD = {
    0: "i", 1: "f", 2: "s", 3: "ints", 4: "floats", 5: "strings", 6: "b", 7: "bools",
    8: "block_idx", 9: "l", 10: "blocks_idx", 11: "longs", 12: "float64s", 13: "var_name",
    14: "vars_name", 15: "float64", 16: "scalar", 17: "scalars",
}  # fmt: skip
_REPEATED = {3, 4, 5, 7, 10, 11, 12, 14, 17}
_OF_THE_WRITER = ("op_callstack", "op_namescope", "op_role", "op_role_var", "op_device")


def read_program_desc(data: bytes) -> Program:
    """The program in a serialized ProgramDesc."""
    if len(data) > MAX_MODEL:
        raise ModelFileError(f"a model of {len(data)} bytes is too large (limit {MAX_MODEL})")
    if not data:
        raise ModelFileError("the file is empty")
    raw = decode(_PROGRAM, memoryview(data), "program")
    version = raw.get("version", {}).get("version", 0)
    if not 0 <= version <= NEWEST:
        raise ModelFileError(
            f"the program has version {version}; this reader knows versions up to {NEWEST}"
        )
    blocks = [_block(b, i) for i, b in enumerate(raw.get("blocks", []))]
    if not blocks or not blocks[0].ops:
        raise ModelFileError("the file holds no program (no operations)")
    for i, block in enumerate(blocks):
        if not -1 <= block.parent < len(blocks) or block.parent >= i > 0:
            raise ModelFileError(f"block {i} has the parent {block.parent}")
    program = Program(blocks)
    _find_ends(program)
    persistable = {v.name: v for b in blocks for v in b.vars.values() if v.persistable}
    program.parameters = [persistable[name] for name in sorted(persistable)]
    return program


def _block(raw: dict[str, Any], number: int) -> Block:
    block = Block(parent=raw.get("parent_idx", -1))
    for entry in raw.get("vars", []):
        var = _var(entry)
        block.vars[var.name] = var
    block.ops = [_op(entry, number) for entry in raw.get("ops", [])]
    return block


def _need(raw: dict[str, Any], name: str, what: str) -> Any:
    if name not in raw:
        raise ModelFileError(f"{what} without '{name}'")
    return raw[name]


def _var(raw: dict[str, Any]) -> Var:
    name = _need(raw, "name", "a variable")
    kind = _need(raw, "type", f"variable {name!r:.80}")
    tensor = kind.get("lod_tensor", {})
    desc = tensor.get("tensor", {})
    # Shape inference over open sizes leaves products such as -4 behind.
    dims = tuple([max(d, -1) for d in desc.get("dims", ())])
    if len(dims) > MAX_RANK:
        raise ModelFileError(f"variable {name!r:.80} has the shape {list(dims)!r:.200}")
    is_tensor = kind.get("type") == _LOD_TENSOR_TYPE
    return Var(
        name,
        dims,
        DTYPES.get(desc.get("data_type", -1)),
        tensor.get("lod_level", 0),
        raw.get("persistable", False) and is_tensor,
    )


def _op(raw: dict[str, Any], block: int) -> OpDesc:
    kind = _need(raw, "type", f"an operation of block {block}")
    return OpDesc(
        kind,
        _slots(raw.get("inputs", []), kind),
        _slots(raw.get("outputs", []), kind),
        dict(_attr(a, kind) for a in raw.get("attrs", []) if a.get("name") not in _OF_THE_WRITER),
    )


def _slots(raw: list[dict[str, Any]], op: str) -> dict[str, list[str]]:
    return {_need(s, "parameter", f"[{op}] a slot"): s.get("arguments", []) for s in raw}


def _attr(raw: dict[str, Any], op: str) -> tuple[str, Any]:
    name = _need(raw, "name", f"[{op}] an attribute")
    kind = _need(raw, "type", f"[{op}] attribute {name!r:.80}")
    field = _ATTR_FIELD.get(kind)
    if field is None:
        raise ModelFileError(f"[{op}] attribute {name!r:.80} has the unknown type {kind}")
    value = raw.get(field, [] if kind in _REPEATED else None)
    if kind == 2:
        value = _text(value)
    elif kind == 5:
        value = [_text(v) for v in value]
    elif kind == 16:
        value = _scalar(value or {})
    elif kind == 17:
        value = [_scalar(v) for v in value]
    return name, value


def _text(value: memoryview | None) -> str:
    # Attributes may hold raw bytes (engines, byte strings); those are for nobody here.
    return "" if value is None else str(value, "utf-8", "replace")


def _scalar(raw: dict[str, Any]) -> Any:
    field = {1: "b", 2: "i", 3: "r"}.get(raw.get("type", 0))
    if field is None:
        raise ModelFileError(f"a scalar of the unknown type {raw.get('type')}")
    return raw.get(field)


def _find_ends(program: Program) -> None:
    """Take `feed` and `fetch` out of the main block; they say what goes in and out."""
    main = program.blocks[0]
    feeds: list[tuple[int, Var]] = []
    fetches: list[tuple[int, str]] = []
    rest = []
    for op in main.ops:
        if op.type == "feed":
            name = _only(op.outputs.get("Out"), "feed")
            if name not in main.vars:
                raise ModelFileError(f"the input {name!r:.80} is not declared")
            feeds.append((op.attrs.get("col") or 0, main.vars[name]))
        elif op.type == "fetch":
            name = _only(op.inputs.get("X"), "fetch")
            fetches.append((op.attrs.get("col") or 0, name))
        else:
            rest.append(op)
    main.ops = rest
    program.feeds = [v for _, v in sorted(feeds, key=lambda f: f[0])]
    program.fetches = [(n, n) for _, n in sorted(fetches, key=lambda f: f[0])]
    if not program.fetches:
        raise ModelFileError(
            "the program has no results ('fetch'): it is a training program, not one that "
            "save_inference_model wrote"
        )


def _only(names: list[str] | None, op: str) -> str:
    if names is None or len(names) != 1:
        raise ModelFileError(f"[{op}] is for one value. Received: {names!r:.80}")
    return names[0]
