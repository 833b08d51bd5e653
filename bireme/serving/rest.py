"""The Open Inference Protocol over REST, with Triton's binary tensors."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson

from bireme.serving import describe
from bireme.serving.errors import BadRequest, Forbidden, NotFound, ServingError, WrongMethod
from bireme.serving.http import Http, Response, json_response, parsed
from bireme.serving.inferring import Request, check_parameters, infer, whole
from bireme.serving.lifecycle import Lifecycle
from bireme.serving.models import Arrays
from bireme.serving.repository import Repository
from bireme.serving.tensors import datatype_of, from_bytes, from_json, to_bytes, to_json
from bireme.serving.version import Version

_HEADER = "inference-header-content-length"
_OCTETS = "application/octet-stream"


class Rest:
    """The addresses below /v2."""

    def __init__(self, repository: Repository, lifecycle: Lifecycle, model_control: bool):
        self._models, self._lifecycle, self._control = repository, lifecycle, model_control

    async def __call__(self, http: Http) -> Response:
        parts = http.path.strip("/").split("/")[1:]
        match parts:
            case []:
                _only(http, "GET")
                return json_response(describe.server_metadata())
            case ["health", "live"]:
                _only(http, "GET")
                return _state(self._lifecycle.live)
            case ["health", "ready"]:
                _only(http, "GET")
                return _state(self._lifecycle.ready and self._models.ready)
            case ["models", "stats"]:
                _only(http, "GET")
                return _stats(self._models.all())
            case ["models", name, "versions", number, *rest]:
                return await self._model(http, name, number, rest)
            case ["models", name, *rest]:
                return await self._model(http, name, "", rest)
            case ["repository", *rest]:
                _only(http, "POST")
                return await self._repository(http, rest)
        raise NotFound(f"there is nothing at {http.path[:200]!r}")

    async def _model(self, http: Http, name: str, number: str, rest: Sequence[str]) -> Response:
        http.model = name
        if list(rest) == ["infer"]:
            _only(http, "POST")
            return await self._infer(http, name, number)
        _only(http, "GET")
        match list(rest):
            case []:
                found = self._models.get(name, number)
                return json_response(describe.model_metadata(self._models, found))
            case ["ready"]:
                try:
                    self._models.get(name, number)
                except NotFound:
                    raise
                except ServingError:
                    return _state(False)
                return _state(self._lifecycle.ready)
            case ["config"]:
                return json_response(describe.model_config(self._models.get(name, number)))
            case ["stats"]:
                return _stats([self._models.get(name, number)])
        raise NotFound(f"there is nothing at {http.path[:200]!r}")

    async def _repository(self, http: Http, rest: Sequence[str]) -> Response:
        document = await http.json()
        if not isinstance(document, dict):
            raise BadRequest("the body must be an object")
        match list(rest):
            case ["index"]:
                rows = self._models.index()
                if document.get("ready"):
                    rows = [r for r in rows if r["state"] == "READY"]
                return json_response(rows)
            case ["models", name, "load" | "unload" as action]:
                await control(self._models, self._control, name, action, document.get("parameters"))
                return Response()
        raise NotFound(f"there is nothing at {http.path[:200]!r}")

    async def _infer(self, http: Http, name: str, number: str) -> Response:
        body = await http.body()
        length = http.headers.get(_HEADER)
        if length is None:
            document, binary = parsed(body), memoryview(b"")
        else:
            if not length.isdecimal() or not 0 < int(length) <= len(body):
                raise BadRequest(
                    f"{_HEADER} must be the JSON's part of the body's {len(body)} bytes. "
                    f"Received: {length[:30]}"
                )
            document, binary = parsed(body[: int(length)]), memoryview(body)[int(length) :]
        if not isinstance(document, dict):
            raise BadRequest("the request must be an object")
        identity = document.get("id", "")
        if not isinstance(identity, str):
            raise BadRequest("the id must be a string")
        parameters = check_parameters(document.get("parameters"))
        wanted = _wanted(document.get("outputs"), parameters)
        inputs = _inputs(document.get("inputs"), binary)
        request = Request(name, number, inputs, list(wanted), parameters)
        version, found = await infer(self._models, request, http.watch)
        default = bool(parameters.get("binary_data_output"))
        return _answer(version, identity, found, {n: wanted.get(n, default) for n in found})


async def control(
    repository: Repository, allowed: bool, name: str, action: str, parameters: object
) -> None:
    """Load or unload a model for a client."""
    if not allowed:
        raise Forbidden("this server was started without model control")
    given = parameters if isinstance(parameters, dict) else {}
    strange = [k for k in given if k != "unload_dependents"]
    if strange:
        raise BadRequest(f"the parameter {strange[0]!r} is not supported: files come from the disk")
    function = repository.load if action == "load" else repository.unload
    try:
        await asyncio.to_thread(function, name)
    except ServingError:
        raise
    except Exception as e:  # what a model raises while it is loaded
        raise BadRequest(f"{name!r} could not be loaded: {type(e).__name__}: {e}") from None


def _only(http: Http, method: str) -> None:
    if http.method != method:
        raise WrongMethod(f"{http.path[:200]!r} takes {method}")


def _state(good: bool) -> Response:
    return Response(status=200 if good else 503)


def _stats(versions: Sequence[Version]) -> Response:
    return json_response({"model_stats": [describe.statistics(v) for v in versions]})


def _objects(given: object, what: str) -> list[dict[str, Any]]:
    if not isinstance(given, list) or not all(isinstance(x, dict) for x in given):
        raise BadRequest(f"{what} must be a list of objects")
    names = [x.get("name") for x in given]
    if not all(isinstance(n, str) for n in names) or len(set(names)) != len(names):
        raise BadRequest(f"{what} must have names, each another one")
    return given


def _wanted(outputs: object, parameters: Any) -> dict[str, bool]:
    """The outputs that are asked for, and whether as binary data."""
    if outputs is None:
        return {}
    usual = bool(parameters.get("binary_data_output"))
    return {
        o["name"]: bool(check_parameters(o.get("parameters")).get("binary_data", usual))
        for o in _objects(outputs, "outputs")
    }


def _inputs(given: object, binary: memoryview) -> Arrays:
    found: dict[str, np.ndarray] = {}
    at = 0
    for tensor in _objects(given, "inputs"):
        name, datatype, shape = tensor["name"], tensor.get("datatype"), tensor.get("shape")
        parameters = check_parameters(tensor.get("parameters"))
        if "binary_data_size" in parameters:
            size = whole(parameters, "binary_data_size")
            if "data" in tensor or at + size > len(binary):
                raise BadRequest(
                    f"the input {name!r} announces {size} bytes of binary data. There are "
                    f"{len(binary) - at} left"
                )
            found[name] = from_bytes(name, datatype, shape, binary[at : at + size])
            at += size
        else:
            found[name] = from_json(name, datatype, shape, tensor.get("data"))
    if at != len(binary):
        raise BadRequest(f"the inputs take {at} bytes of binary data. Received: {len(binary)}")
    return found


def _answer(version: Version, identity: str, found: Arrays, binary: dict[str, bool]) -> Response:
    outputs, parts = [], []
    for name, array in found.items():
        tensor: dict[str, Any] = {
            "name": name,
            "datatype": datatype_of(array.dtype),
            "shape": list(array.shape),
        }
        if binary[name]:
            data = to_bytes(array)
            tensor["parameters"] = {"binary_data_size": len(data)}
            parts.append(data)
        else:
            tensor["data"] = to_json(name, array)
        outputs.append(tensor)
    document: dict[str, Any] = {"model_name": version.name, "model_version": version.number}
    if identity:
        document["id"] = identity
    header = orjson.dumps({**document, "outputs": outputs})
    if not parts:
        return Response(header)
    headers = {"Inference-Header-Content-Length": str(len(header))}
    return Response(b"".join([header, *parts]), 200, _OCTETS, headers)
