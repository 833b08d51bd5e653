"""One request of the protocol, whichever way it came: its parameters, answer and outputs."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bireme.serving.calling import Answer
from bireme.serving.errors import BadRequest
from bireme.serving.models import Arrays
from bireme.serving.repository import Repository
from bireme.serving.version import Given, Version

_LOOK_AFTER = 0.01  # seconds until it is worth a look whether the client still waits
# Parameters that change what a request means, and that this server does not have.
_REFUSED = {
    "sequence_id": "no model here keeps a state between requests",
    "shared_memory_region": "no shared memory is read; send the data",
    "classification": "no labels are known; ask for the scores",
}


@dataclass(frozen=True, slots=True)
class Request:
    """What a client asks for."""

    model: str
    version: str
    inputs: Arrays
    outputs: Sequence[str]
    parameters: Mapping[str, Any]


def check_parameters(parameters: object) -> Mapping[str, Any]:
    """The parameters of a request, an input or an output."""
    if parameters is None:
        return {}
    if not isinstance(parameters, Mapping):
        raise BadRequest("parameters must be an object")
    for name, why in _REFUSED.items():
        if parameters.get(name):
            raise BadRequest(f"the parameter {name!r} is not supported: {why}")
    return parameters


def whole(parameters: Mapping[str, Any], name: str) -> int:
    """A parameter that is a number from 0 on."""
    value = parameters.get(name, 0)
    try:
        number = int(value) if type(value) in (int, str) else -1
    except ValueError:
        number = -1
    if not 0 <= number < 1 << 63:
        raise BadRequest(f"the parameter {name!r} must be a number from 0 on. Received: {value!r}")
    return number


async def infer(
    repository: Repository,
    request: Request,
    watch: Callable[[Callable[[], None]], None] | None = None,
    deadline: float = math.inf,
) -> tuple[Version, Arrays]:
    """(the version that answered, the outputs asked for, in their order).

    `watch` is given what to call when the client has gone.
    """
    version = repository.get(request.model, request.version)
    chosen = version.signature.chosen(request.outputs)
    microseconds = whole(request.parameters, "timeout")
    if microseconds:
        deadline = min(deadline, time.monotonic() + microseconds / 1e6)
    given = Given(request.inputs, deadline, whole(request.parameters, "priority"))
    answer = Answer(version, given)
    look = None
    if watch is not None:
        loop = asyncio.get_running_loop()
        look = loop.call_later(_LOOK_AFTER, watch, answer.abandon)
    try:
        found = await answer.wait()
    finally:
        if look is not None:
            look.cancel()
    return version, {name: found[name] for name in chosen}
