"""The Open Inference Protocol over gRPC."""

from __future__ import annotations

import math
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import grpc
import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.message import DecodeError
from grpc import aio

from bireme.serving import describe
from bireme.serving.errors import BadRequest, ClientGone, NotFound, Overloaded, ServingError
from bireme.serving.inferring import Request, check_parameters, infer
from bireme.serving.lifecycle import Lifecycle
from bireme.serving.metrics import Metrics
from bireme.serving.models import Arrays
from bireme.serving.repository import Repository
from bireme.serving.rest import control
from bireme.serving.settings import Settings
from bireme.serving.tensors import (
    checked_shape,
    count_of,
    datatype_of,
    dtype_of,
    from_bytes,
    from_elements,
    to_bytes,
)
from bireme.serving.tokens import Tokens

_SERVICE = "inference.GRPCInferenceService"
_CONTENTS = {
    "BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents",
    "INT32": "int_contents", "INT64": "int64_contents", "UINT8": "uint_contents",
    "UINT16": "uint_contents", "UINT32": "uint_contents", "UINT64": "uint64_contents",
    "FP32": "fp32_contents", "FP64": "fp64_contents", "BYTES": "bytes_contents",
}  # fmt: skip


def _messages() -> dict[str, Any]:
    """The protocol's message classes, in a pool of their own."""
    path = os.path.join(os.path.dirname(__file__), "open_inference.binpb")
    with open(path, "rb") as file:
        described = descriptor_pb2.FileDescriptorSet.FromString(file.read())
    pool = descriptor_pool.DescriptorPool()
    for part in described.file:
        pool.Add(part)
    names = [m.name for m in described.file[0].message_type]
    return {
        n: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"inference.{n}"))
        for n in names
    }


class Grpc:
    """The service's methods."""

    def __init__(
        self,
        repository: Repository,
        lifecycle: Lifecycle,
        metrics: Metrics,
        settings: Settings,
    ):
        self._models, self._lifecycle, self._metrics = repository, lifecycle, metrics
        self._control = settings.model_control
        self._tokens = Tokens(settings.tokens)
        self._messages = _messages()

    def handler(self) -> grpc.GenericRpcHandler:
        """What a gRPC server dispatches to."""
        single = {
            "ServerLive": self._server_live,
            "ServerReady": self._server_ready,
            "ModelReady": self._model_ready,
            "ServerMetadata": self._server_metadata,
            "ModelMetadata": self._model_metadata,
            "ModelInfer": self._infer,
            "ModelConfig": self._model_config,
            "ModelStatistics": self._model_statistics,
            "RepositoryIndex": self._index,
            "RepositoryModelLoad": self._load,
            "RepositoryModelUnload": self._unload,
        }
        # Requests arrive as bytes: grpcio takes one that cannot be decoded for a server's error.
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(self._guarded(name, method))
            for name, method in single.items()
        }
        handlers["ModelStreamInfer"] = grpc.stream_stream_rpc_method_handler(self._stream)
        return grpc.method_handlers_generic_handler(_SERVICE, handlers)

    def _guarded(self, name: str, method: Callable[..., Awaitable[Any]]) -> Any:
        """The method with its errors as statuses, and answers as bytes."""
        is_open = name in ("ServerLive", "ServerReady")

        async def run(data: bytes, context: Any) -> bytes:
            start, status = time.perf_counter(), "OK"
            try:
                if not is_open:
                    self._check(context)
                request = self._decoded(f"{name}Request", data)
                return (await method(request, context)).SerializeToString()
            except ServingError as e:
                status = e.code
                if isinstance(e, Overloaded):
                    context.set_trailing_metadata((("retry-after", f"{e.retry_after:.3f}"),))
                await context.abort(grpc.StatusCode[e.code], str(e))
                raise  # abort has raised
            finally:
                self._metrics.answered("grpc", status, time.perf_counter() - start)

        return run

    def _decoded(self, name: str, data: bytes) -> Any:
        try:
            return self._messages[name].FromString(data)
        except DecodeError as e:
            raise BadRequest(f"the request cannot be decoded: {e!s:.300}") from None

    def _check(self, context: Any) -> None:
        if self._tokens.wanted:
            self._tokens.check(dict(context.invocation_metadata() or ()).get("authorization"))

    def _made(self, name: str, **given: Any) -> Any:
        return self._messages[name](**given)

    def _like(self, name: str, document: Any) -> Any:
        """A message from a dictionary that has the same fields."""
        return json_format.ParseDict(document, self._messages[name]())

    async def _server_live(self, request: Any, context: Any) -> Any:
        return self._made("ServerLiveResponse", live=self._lifecycle.live)

    async def _server_ready(self, request: Any, context: Any) -> Any:
        good = self._lifecycle.ready and self._models.ready
        return self._made("ServerReadyResponse", ready=good)

    async def _model_ready(self, request: Any, context: Any) -> Any:
        try:
            self._models.get(request.name, request.version)
        except NotFound:
            raise
        except ServingError:
            return self._made("ModelReadyResponse", ready=False)
        return self._made("ModelReadyResponse", ready=self._lifecycle.ready)

    async def _server_metadata(self, request: Any, context: Any) -> Any:
        return self._like("ServerMetadataResponse", describe.server_metadata())

    async def _model_metadata(self, request: Any, context: Any) -> Any:
        version = self._models.get(request.name, request.version)
        return self._like("ModelMetadataResponse", describe.model_metadata(self._models, version))

    async def _model_config(self, request: Any, context: Any) -> Any:
        version = self._models.get(request.name, request.version)
        return self._like("ModelConfigResponse", {"config": describe.model_config(version)})

    async def _model_statistics(self, request: Any, context: Any) -> Any:
        versions = self._models.all()
        if request.name:
            versions = [self._models.get(request.name, request.version)]
        rows = [describe.statistics(v) for v in versions]
        return self._like("ModelStatisticsResponse", {"model_stats": rows})

    async def _index(self, request: Any, context: Any) -> Any:
        rows = self._models.index()
        if request.ready:
            rows = [r for r in rows if r["state"] == "READY"]
        return self._like("RepositoryIndexResponse", {"models": rows})

    async def _load(self, request: Any, context: Any) -> Any:
        given = dict.fromkeys(request.parameters, True)
        await control(self._models, self._control, request.model_name, "load", given)
        return self._made("RepositoryModelLoadResponse")

    async def _unload(self, request: Any, context: Any) -> Any:
        given = dict.fromkeys(request.parameters, True)
        await control(self._models, self._control, request.model_name, "unload", given)
        return self._made("RepositoryModelUnloadResponse")

    async def _infer(self, request: Any, context: Any) -> Any:
        parameters = check_parameters(_plain(request.parameters))
        for output in request.outputs:
            check_parameters(_plain(output.parameters))
        wanted = [o.name for o in request.outputs]
        asked = Request(
            request.model_name, request.model_version, _inputs(request), wanted, parameters
        )
        left = context.time_remaining()
        deadline = math.inf if left is None else time.monotonic() + left
        # A call whose client has gone is cancelled, and with it the request.
        version, found = await infer(self._models, asked, None, deadline)
        answer = self._made(
            "ModelInferResponse",
            model_name=version.name,
            model_version=version.number,
            id=request.id,
        )
        for name, array in found.items():
            datatype = datatype_of(array.dtype)
            answer.outputs.add(name=name, datatype=datatype, shape=array.shape)
            answer.raw_output_contents.append(to_bytes(array))
        return answer

    async def _stream(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        """One answer per request, in order; an error ends its request only."""
        try:
            self._check(context)
        except ServingError as e:
            await context.abort(grpc.StatusCode[e.code], str(e))
        async for data in requests:
            answer = self._messages["ModelStreamInferResponse"]()
            start, status = time.perf_counter(), "OK"
            request = self._made("ModelInferRequest")
            try:
                request = self._decoded("ModelInferRequest", data)
                answer.infer_response.CopyFrom(await self._infer(request, context))
            except ClientGone:
                return
            except ServingError as e:
                status, answer.error_message = e.code, str(e)
                answer.infer_response.id = request.id
            self._metrics.answered("grpc", status, time.perf_counter() - start)
            yield answer.SerializeToString()


def _plain(parameters: Any) -> dict[str, Any]:
    """Parameters as Python values."""
    found = {}
    for name, value in parameters.items():
        kind = value.WhichOneof("parameter_choice")
        found[name] = None if kind is None else getattr(value, kind)
    return found


def _inputs(request: Any) -> Arrays:
    raw = iter(request.raw_input_contents)
    found: dict[str, np.ndarray] = {}
    for tensor in request.inputs:
        check_parameters(_plain(tensor.parameters))
        if tensor.name in found:
            raise BadRequest(f"there are two inputs called {tensor.name!r}")
        found[tensor.name] = _array(tensor, raw, bool(request.raw_input_contents))
    left = sum(1 for _ in raw)
    if left:
        raise BadRequest(f"raw_input_contents has {left} parts more than there are inputs")
    return found


def _array(tensor: Any, raw: Iterator[bytes], is_raw: bool) -> np.ndarray:
    shape = tuple(tensor.shape)
    if is_raw:
        data = next(raw, None)
        if data is None or tensor.HasField("contents"):
            raise BadRequest(f"the data of {tensor.name!r} must be in raw_input_contents, once")
        return from_bytes(tensor.name, tensor.datatype, shape, data)
    dtype, sizes = dtype_of(tensor.name, tensor.datatype), checked_shape(tensor.name, shape)
    name = _CONTENTS.get(tensor.datatype)
    if name is None:
        raise BadRequest(f"the input {tensor.name!r} of {tensor.datatype} must be sent raw")
    elements = getattr(tensor.contents, name)
    if len(elements) != count_of(sizes):
        raise BadRequest(
            f"the input {tensor.name!r} of {tensor.datatype}{list(sizes)} has {count_of(sizes)} "
            f"elements. Received: {len(elements)}"
        )
    return from_elements(tensor.name, dtype, sizes, list(elements))


def make_server(service: Grpc, settings: Settings) -> tuple[aio.Server, int]:
    """(a server in the running event loop, its port)."""
    options = [
        ("grpc.max_receive_message_length", settings.body_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_metadata_size", settings.header_bytes),
        ("grpc.so_reuseport", 0),
    ]
    server = aio.server(options=options, maximum_concurrent_rpcs=settings.connections)
    server.add_generic_rpc_handlers((service.handler(),))
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    address = f"{host}:{settings.grpc_port}"
    if settings.certificate and settings.key:
        with open(settings.certificate, "rb") as chain, open(settings.key, "rb") as key:
            credentials = grpc.ssl_server_credentials([(key.read(), chain.read())])
        return server, server.add_secure_port(address, credentials)
    return server, server.add_insecure_port(address)
