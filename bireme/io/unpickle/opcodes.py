"""The pickle instructions that data needs."""

from __future__ import annotations

import codecs
import struct
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from bireme.core.errors import FileFormatError
from bireme.io.unpickle.machine import (
    MARK,
    MAX_INTEGER,
    ArrayShell,
    Damaged,
    Known,
    Machine,
    TypeShell,
)
from bireme.io.unpickle.names import KNOWN, checked_key

_LARGE = 4096


def _global(machine: Machine, module: Any, name: Any) -> None:
    known = KNOWN.get((module, name)) if isinstance(module, str) and isinstance(name, str) else None
    if known is None:
        raise machine.refuse(f"'{str(module)[:80]}.{str(name)[:80]}'")
    machine.push(known)


def _stack_global(machine: Machine) -> None:
    name, module = machine.pop(), machine.pop()
    _global(machine, module, name)


def _reduce(machine: Machine) -> None:
    args, function = machine.pop(), machine.pop()
    if not isinstance(function, Known) or function.call is None or not isinstance(args, tuple):
        raise machine.refuse("a call of something that is no function")
    machine.push(function.call(machine, args))


def _build(machine: Machine) -> None:
    state, target = machine.pop(), machine.top()
    if isinstance(target, ArrayShell) and target.array is None:
        if not isinstance(state, tuple) or len(state) not in (4, 5):
            raise Damaged("an array's state is incomplete")
        shape, dtype, fortran, content = state[-4:]
        target.array = machine.array(shape, dtype, fortran, content)
    elif isinstance(target, TypeShell):
        if not isinstance(state, tuple) or len(state) < 8 or state[2:5] != (None, None, None):
            raise machine.refuse("a structured array type")
        if state[1] in (">", "<"):
            target.dtype = target.dtype.newbyteorder(state[1])
    elif not (isinstance(target, OrderedDict) and not state):
        raise machine.refuse(f"attributes on a {type(target).__name__}")


def _set_items(machine: Machine, items: list[Any]) -> None:
    target = machine.top()
    if not isinstance(target, dict) or len(items) % 2:
        raise Damaged("entries are put into something that is no dictionary")
    for key, value in zip(items[::2], items[1::2], strict=True):
        target[checked_key(machine, key)] = value


def _append(machine: Machine, items: list[Any]) -> None:
    target = machine.top()
    if not isinstance(target, list):
        raise Damaged("items are put into something that is no list")
    target.extend(items)


def _add_items(machine: Machine) -> None:
    items = machine.pop_group()
    target = machine.top()
    if not isinstance(target, set):
        raise Damaged("items are put into something that is no set")
    target.update([checked_key(machine, i) for i in items])


def _get(machine: Machine, index: int) -> None:
    if index not in machine.memo:
        raise Damaged("it refers to an object that does not exist")
    machine.push(machine.memo[index])


def _integer(machine: Machine, count: int) -> None:
    if count > MAX_INTEGER:
        raise FileFormatError(f"[load] {machine.name} holds an integer of {count} bytes")
    machine.push(int.from_bytes(machine.take(count), "little", signed=True))


def _text_integer(machine: Machine) -> None:
    text = machine.line().removesuffix("L")
    if text in ("00", "01"):
        machine.push(text == "01")
        return
    machine.push(int(text))


def _text_string(machine: Machine) -> None:
    text = machine.line()
    if len(text) < 2 or text[0] != text[-1] or text[0] not in "'\"":
        raise Damaged("a string has no quotes")
    machine.push(codecs.escape_decode(text[1:-1].encode("latin-1"))[0].decode("latin-1"))  # type: ignore[attr-defined]


def _text(machine: Machine, count: int) -> None:
    machine.push(str(machine.take(count), "utf-8", "surrogatepass"))


def _old_text(machine: Machine, count: int) -> None:
    machine.push(str(machine.take(count), "latin-1"))


def _raw(machine: Machine, count: int) -> None:
    piece = machine.take(count)
    # A large piece is an array's contents: it stays where it is until the array copies it.
    machine.push(piece if count >= _LARGE else bytes(piece))


def _tuple_of(count: int) -> Callable[[Machine], None]:
    def make(machine: Machine) -> None:
        items = [machine.pop() for _ in range(count)]
        machine.push(tuple(reversed(items)))

    return make


def _pop(machine: Machine) -> None:
    if machine.stack and machine.stack[-1] is MARK:
        machine.stack.pop()
    else:
        machine.pop()


def _single_item(machine: Machine) -> None:
    value, key = machine.pop(), machine.pop()
    _set_items(machine, [key, value])


def _dict_of_group(machine: Machine) -> None:
    items = machine.pop_group()
    machine.push({})
    _set_items(machine, items)


def _single_append(machine: Machine) -> None:
    item = machine.pop()
    _append(machine, [item])


def _protocol(machine: Machine) -> None:
    if machine.number("B") > 5:
        raise Damaged("its pickle protocol is unknown")


_M = Machine
OPCODES: dict[int, Callable[[Machine], Any]] = {
    ord(code): step
    for code, step in {
        "\x80": _protocol,
        "\x95": lambda m: m.take(8),  # FRAME: a hint about sizes that we have no use for
        "(": lambda m: m.push(MARK),
        "0": _pop,
        "1": _M.pop_group,
        "2": lambda m: m.push(m.top()),
        "N": lambda m: m.push(None),
        "\x88": lambda m: m.push(True),
        "\x89": lambda m: m.push(False),
        "I": _text_integer,
        "L": _text_integer,
        "J": lambda m: m.push(m.number("i")),
        "K": lambda m: m.push(m.number("B")),
        "M": lambda m: m.push(m.number("H")),
        "\x8a": lambda m: _integer(m, m.number("B")),
        "\x8b": lambda m: _integer(m, m.number("i")),
        "F": lambda m: m.push(float(m.line())),
        "G": lambda m: m.push(struct.unpack(">d", m.take(8))[0]),
        "S": _text_string,
        "T": lambda m: _old_text(m, m.number("i")),
        "U": lambda m: _old_text(m, m.number("B")),
        "V": lambda m: m.push(m.line().encode("latin-1").decode("raw-unicode-escape")),
        "X": lambda m: _text(m, m.number("I")),
        "\x8c": lambda m: _text(m, m.number("B")),
        "\x8d": lambda m: _text(m, m.number("Q")),
        "B": lambda m: _raw(m, m.number("I")),
        "C": lambda m: _raw(m, m.number("B")),
        "\x8e": lambda m: _raw(m, m.number("Q")),
        "\x96": lambda m: m.push(bytearray(m.take(m.number("Q")))),
        "]": lambda m: m.push([]),
        "a": _single_append,
        "e": lambda m: _append(m, m.pop_group()),
        "l": lambda m: m.push(m.pop_group()),
        ")": lambda m: m.push(()),
        "t": lambda m: m.push(tuple(m.pop_group())),
        "\x85": _tuple_of(1),
        "\x86": _tuple_of(2),
        "\x87": _tuple_of(3),
        "}": lambda m: m.push({}),
        "d": _dict_of_group,
        "s": _single_item,
        "u": lambda m: _set_items(m, m.pop_group()),
        "\x8f": lambda m: m.push(set()),
        "\x90": _add_items,
        "\x91": lambda m: m.push(frozenset([checked_key(m, i) for i in m.pop_group()])),
        "g": lambda m: _get(m, int(m.line())),
        "h": lambda m: _get(m, m.number("B")),
        "j": lambda m: _get(m, m.number("I")),
        "p": lambda m: m.memo.__setitem__(int(m.line()), m.top()),
        "q": lambda m: m.memo.__setitem__(m.number("B"), m.top()),
        "r": lambda m: m.memo.__setitem__(m.number("I"), m.top()),
        "\x94": lambda m: m.memo.__setitem__(len(m.memo), m.top()),
        "c": lambda m: _global(m, m.line(), m.line()),
        "\x93": _stack_global,
        "R": _reduce,
        "\x81": _reduce,  # NEWOBJ: a class and its arguments, here the same thing
        "b": _build,
    }.items()
}
