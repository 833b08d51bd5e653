"""The Open Inference Protocol over gRPC, with messages of the checked-in description."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bireme.serving
from bireme.serving import Server

grpc = pytest.importorskip("grpc")
X = np.arange(8, dtype=np.float32).reshape(2, 4)
SERVICE = "/inference.GRPCInferenceService/"


class Client:
    def __init__(self, port: int):
        from bireme.serving.grpc_v2 import _messages

        self.messages = _messages()
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}")

    def call(self, method: str, /, timeout: float = 60, **fields: Any) -> Any:
        request = self.messages[f"{method}Request"](**fields)
        call = self.channel.unary_unary(SERVICE + method)
        answer = call(request.SerializeToString(), timeout=timeout)
        return self.messages[f"{method}Response"].FromString(answer)

    def infer(self, model: str = "echo", **more: Any) -> Any:
        given = {"name": "x", "datatype": "FP32", "shape": X.shape}
        fields = {"inputs": [given], "raw_input_contents": [X.tobytes()], **more}
        return self.call("ModelInfer", model_name=model, **fields)


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    made = Client(server.grpc_port or 0)
    yield made
    made.channel.close()


def test_the_description_is_that_of_the_proto_file() -> None:
    from bireme.serving.grpc_v2 import _messages

    text = (Path(bireme.serving.__file__).parent / "open_inference.proto").read_text()
    messages = _messages()
    assert re.findall(r"^message (\w+)", text, re.M) == list(messages)
    fields = {f.name: f.number for f in messages["ModelInferRequest"].DESCRIPTOR.fields}
    assert (fields["inputs"], fields["outputs"], fields["raw_input_contents"]) == (5, 6, 7)


def test_states_and_descriptions(client: Client) -> None:
    assert client.call("ServerLive").live
    assert client.call("ServerReady").ready
    assert client.call("ModelReady", name="echo").ready
    assert client.call("ServerMetadata").name == "bireme"
    about = client.call("ModelMetadata", name="net")
    assert (about.inputs[0].name, list(about.inputs[0].shape)) == ("x", [-1, 4])
    config = client.call("ModelConfig", name="net").config
    assert (config.max_batch_size, list(config.input[0].dims), config.input[0].data_type) == (
        4, [4], 11,
    )  # fmt: skip
    assert {m.name for m in client.call("RepositoryIndex").models} >= {"echo", "net"}
    client.infer()
    assert client.call("ModelStatistics", name="echo").model_stats[0].inference_count >= 2
    client.call("RepositoryModelLoad", model_name="words")
    client.call("RepositoryModelUnload", model_name="words")
    assert not client.call("ModelReady", name="words").ready
    client.call("RepositoryModelLoad", model_name="words")


def test_raw_and_typed_contents(client: Client) -> None:
    answer = client.infer(id="9")
    assert (answer.id, answer.model_name, answer.outputs[0].name) == ("9", "echo", "y")
    assert answer.raw_output_contents[0] == X.tobytes()
    given = {"name": "x", "datatype": "FP32", "shape": X.shape,
             "contents": {"fp32_contents": X.reshape(-1)}}  # fmt: skip
    answer = client.infer(inputs=[given], raw_input_contents=[])
    assert answer.raw_output_contents[0] == X.tobytes()


def test_a_stream_answers_in_order_and_survives_errors(client: Client) -> None:
    made = client.messages["ModelInferRequest"]
    tensor = {"name": "x", "datatype": "FP32", "shape": X.shape}
    requests = [
        made(model_name=m, id=str(i), inputs=[tensor], raw_input_contents=[X.tobytes()])
        for i, m in enumerate(["echo", "none", "echo"])
    ]
    stream = client.channel.stream_stream(SERVICE + "ModelStreamInfer")
    raw = list(stream(iter([r.SerializeToString() for r in requests]), timeout=60))
    found = [client.messages["ModelStreamInferResponse"].FromString(r) for r in raw]
    assert [f.infer_response.id for f in found] == ["0", "1", "2"]
    assert [bool(f.error_message) for f in found] == [False, True, False]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"model": "none"}, "NOT_FOUND"),
        ({"model": "broken"}, "INTERNAL"),
        ({"raw_input_contents": []}, "INVALID_ARGUMENT"),
        ({"raw_input_contents": [b"abc"]}, "INVALID_ARGUMENT"),
        ({"raw_input_contents": [X.tobytes()] * 2}, "INVALID_ARGUMENT"),
        ({"outputs": [{"name": "none"}]}, "INVALID_ARGUMENT"),
        ({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 99999999999]}]},
         "INVALID_ARGUMENT"),
        ({"inputs": [{"name": "x", "datatype": "FP32", "shape": [-2, -4]}]}, "INVALID_ARGUMENT"),
        ({"raw_input_contents": [bytes(2 << 20)]}, "RESOURCE_EXHAUSTED"),
    ],
)  # fmt: skip
def test_wrong_requests_have_statuses(client: Client, fields: Any, code: str) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        client.infer(**fields)
    assert refused.value.code().name == code
    assert client.infer().raw_output_contents[0] == X.tobytes()


def test_what_cannot_be_decoded_is_the_clients_fault(client: Client) -> None:
    whole = client.messages["ModelInferRequest"](model_name="echo").SerializeToString()
    for method in ("ModelInfer", "ModelMetadata", "RepositoryIndex"):
        with pytest.raises(grpc.RpcError) as refused:
            client.channel.unary_unary(SERVICE + method)(b"\x0a\xff", timeout=60)
        assert refused.value.code().name == "INVALID_ARGUMENT"
    stream = client.channel.stream_stream(SERVICE + "ModelStreamInfer")
    raw = list(stream(iter([b"\x0a\xff", whole]), timeout=60))
    found = [client.messages["ModelStreamInferResponse"].FromString(r) for r in raw]
    assert "cannot be decoded" in found[0].error_message
    assert "cannot be decoded" not in found[1].error_message


@pytest.mark.parametrize("seed", range(3))
def test_mutated_requests_have_statuses_of_the_client(client: Client, seed: int) -> None:
    """Changed bytes, cuts, and shapes that do not fit."""
    rng = random.Random(seed)
    tensor = {"name": "x", "datatype": "FP32", "shape": X.shape}
    made = client.messages["ModelInferRequest"](
        model_name="echo", inputs=[tensor], raw_input_contents=[X.tobytes()]
    )
    call = client.channel.unary_unary(SERVICE + "ModelInfer")
    codes = set()
    for _ in range(100):
        data = bytearray(made.SerializeToString())
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        size = rng.choice([len(data), rng.randrange(len(data))])
        codes.add(_code(call, data[:size]))
    assert codes <= {"OK", "INVALID_ARGUMENT", "NOT_FOUND", "DEADLINE_EXCEEDED"}
    assert client.infer().raw_output_contents[0] == X.tobytes()


def _code(call: Any, data: bytearray) -> str:
    try:
        call(bytes(data), timeout=60)
    except grpc.RpcError as e:
        return e.code().name
    return "OK"
