"""OpenAI's protocol: whole answers and streams, settings, and what is refused."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pytest

from bireme import zoo
from bireme.serving import Server, Settings
from bireme.serving.language.model import LanguageModel, LanguageOptions, is_language
from bireme.serving.server import name_of
from bireme.zoo.tokenizer import Tokenizer
from tests.serving.conftest import Ask, asker
from tests.serving.language.made_up import TEMPLATE, model, tokenizer

CHAT: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}]}
GREEDY = {"temperature": 0, "max_tokens": 12}


class Vectors:
    """What stands for an embedding model."""

    inputs: ClassVar[Any] = {"text": ("BYTES", [-1])}
    outputs: ClassVar[Any] = {"embedding": ("FP32", [-1, 2]), "tokens": ("INT64", [-1])}
    batched = True

    def predict(self, text: np.ndarray) -> Any:
        counts = np.array([len(t) for t in text])
        return {"embedding": np.stack([counts, counts**0], 1).astype("f4"), "tokens": counts}


@pytest.fixture(scope="module")
def language() -> LanguageModel:
    options = LanguageOptions(context=128, rows=4, page=8, chunk=64)
    words = tokenizer()
    template = "{% if tools %}<tool_call>{% endif %}" + TEMPLATE
    words = Tokenizer(words.inner, {**words.settings, "chat_template": template})
    return LanguageModel.of("tiny", model(), words, options)


@pytest.fixture(scope="module")
def server(language: LanguageModel) -> Iterator[Server]:
    with Server({"tiny": language, "vectors": Vectors}, Settings(port=0)) as made:
        yield made


@pytest.fixture
def ask(server: Server) -> Ask:
    return asker(server)


def streamed(server: Server, path: str, body: Any) -> list[Any]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    connection.request("POST", path, json.dumps({**body, "stream": True}))
    answer = connection.getresponse()
    assert answer.status == 200
    assert answer.getheader("Content-Type", "").startswith("text/event-stream")
    lines = answer.read().decode().split("\n\n")
    connection.close()
    assert lines[-2:] == ["data: [DONE]", ""]
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]


def test_a_chat_is_what_the_zoo_says(ask: Ask, language: LanguageModel) -> None:
    status, _, found = ask("POST", "/v1/chat/completions", {**CHAT, **GREEDY})
    assert status == 200
    made, words = model(), language.tokenizer
    want = "".join(zoo.chat(made, words, "hello", 12))
    choice = found["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": want, "refusal": None}
    assert choice["finish_reason"] in ("length", "stop")
    prompt = len(words.encode_chat(CHAT["messages"]))
    usage = found["usage"]
    assert usage["prompt_tokens"] == prompt
    assert usage["total_tokens"] == prompt + usage["completion_tokens"]


def test_streams_give_the_same_text(server: Server, ask: Ask) -> None:
    whole = ask("POST", "/v1/chat/completions", {**CHAT, **GREEDY})[2]["choices"][0]
    more = {"stream_options": {"include_usage": True}}
    events = streamed(server, "/v1/chat/completions", {**CHAT, **GREEDY, **more})
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    pieces = [e["choices"][0]["delta"].get("content", "") for e in events[:-1]]
    assert "".join(pieces) == whole["message"]["content"]
    assert events[-2]["choices"][0]["finish_reason"] == whole["finish_reason"]
    assert events[-1]["choices"] == []
    assert events[-1]["usage"]["total_tokens"] > 12

    body = {"model": "tiny", "prompt": ["ab", "cd"], "n": 2, "seed": 4, "max_tokens": 6}
    wanted = ask("POST", "/v1/completions", body)[2]["choices"]
    found = [""] * 4
    for event in streamed(server, "/v1/completions", body):
        found[event["choices"][0]["index"]] += event["choices"][0]["text"]
    assert found == [c["text"] for c in wanted]


def test_stop_strings_end_an_answer_before_them(ask: Ask) -> None:
    body = {"model": "tiny", "prompt": "ab", "temperature": 0, "max_tokens": 20}
    text = ask("POST", "/v1/completions", body)[2]["choices"][0]["text"]
    stop = text[6:8]
    choice = ask("POST", "/v1/completions", {**body, "stop": stop})[2]["choices"][0]
    assert choice["text"] == text[: text.index(stop)]
    assert choice["finish_reason"] == "stop"


def test_seeds_repeat_and_choices_differ(ask: Ask) -> None:
    body = {"model": "tiny", "prompt": "ab", "n": 3, "temperature": 2, "max_tokens": 16}
    texts = [
        [c["text"] for c in ask("POST", "/v1/completions", {**body, "seed": s})[2]["choices"]]
        for s in (7, 7, 8)
    ]
    assert texts[0] == texts[1] != texts[2]
    assert len(set(texts[0])) > 1


def test_log_probabilities(ask: Ask) -> None:
    more = {"logprobs": True, "top_logprobs": 2}
    found = ask("POST", "/v1/chat/completions", {**CHAT, **GREEDY, **more})[2]["choices"][0]
    for row in found["logprobs"]["content"]:
        assert row["logprob"] <= 0
        assert len(row["top_logprobs"]) == 2
        assert row["top_logprobs"][0]["logprob"] == row["logprob"]  # the best was taken
    body = {"model": "tiny", "prompt": "ab", "logprobs": 1, **GREEDY}
    found = ask("POST", "/v1/completions", body)[2]["choices"][0]["logprobs"]
    assert len(found["tokens"]) == len(found["token_logprobs"]) == len(found["text_offset"])
    assert all(len(best) == 1 for best in found["top_logprobs"])


def test_biases_choose(ask: Ask, language: LanguageModel) -> None:
    (token,) = language.tokenizer.encode("x")
    body = {**CHAT, **GREEDY, "logit_bias": {str(token): 100}}
    choice = ask("POST", "/v1/chat/completions", body)[2]["choices"][0]
    assert choice["message"]["content"] == "x" * 12
    assert choice["finish_reason"] == "length"


def test_answers_of_a_form(ask: Ask) -> None:
    form = {"type": "choice", "choices": ["red", "green"]}
    body = {**CHAT, **GREEDY, "response_format": form, "n": 3, "temperature": 2}
    for choice in ask("POST", "/v1/chat/completions", body)[2]["choices"]:
        assert choice["message"]["content"] in ("red", "green")
        assert choice["finish_reason"] == "stop"


def test_models_and_embeddings(ask: Ask) -> None:
    rows = ask("GET", "/v1/models")[2]["data"]
    assert [(r["id"], r["chat"]) for r in rows] == [("tiny", True), ("vectors", False)]
    assert ask("GET", "/v1/models/tiny")[2]["context"] == 128
    body = {"model": "vectors", "input": ["abc", "d"]}
    answer = ask("POST", "/v1/embeddings", body)[2]
    assert [r["embedding"] for r in answer["data"]] == [[3, 1], [1, 1]]
    assert answer["usage"] == {"prompt_tokens": 4, "total_tokens": 4}
    many = ask("POST", "/v1/embeddings", {**body, "input": ["a" * i for i in range(40)]})[2]["data"]
    assert [r["embedding"][0] for r in many] == list(range(40))
    coded = ask("POST", "/v1/embeddings", {**body, "encoding_format": "base64"})[2]["data"]
    assert np.frombuffer(base64.b64decode(coded[0]["embedding"]), "<f4").tolist() == [3, 1]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"model": "none"}, 404), ({"model": None}, 400), ({"messages": []}, 400),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400),
        ({"messages": [{"role": "user", "content": "x" * 500}]}, 400),
        ({"temperature": 3}, 400), ({"temperature": "hot"}, 400), ({"top_p": 0}, 400),
        ({"n": 0}, 400), ({"n": 65}, 400), ({"max_tokens": 0}, 400), ({"stop": ""}, 400),
        ({"stop": 3}, 400), ({"seed": "x"}, 400), ({"logit_bias": {"999": 1}}, 400),
        ({"logit_bias": {"1": 1000}}, 400), ({"top_logprobs": 3}, 400), ({"wishes": 3}, 400),
        ({"tools": [{"type": "function"}]}, 400), ({"stream": "yes"}, 400),
        ({"response_format": {"type": "xml"}}, 400), ({"response_format": 3}, 400),
        ({"chat_template_kwargs": {"chat_template": "{{ 1 }}"}}, 400),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_refused_by_name(ask: Ask, body: Any, status: int) -> None:
    found = ask("POST", "/v1/chat/completions", {**CHAT, **GREEDY, **body})
    assert found[0] == status, found
    assert found[2]["error"]["message"]


def test_a_client_that_hangs_up_frees_its_pages(server: Server, language: LanguageModel) -> None:
    for stream in (True, False):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
        body = {**CHAT, "max_tokens": 90, "logit_bias": {"0": -100}, "n": 4, "stream": stream}
        connection.request("POST", "/v1/chat/completions", json.dumps(body))
        if stream:
            connection.getresponse().read(10)
        connection.close()
    body = {**CHAT, "temperature": 0, "max_tokens": 1}
    assert asker(server)("POST", "/v1/chat/completions", body)[0] == 200
    end = 12_000
    while language.engine.load["pages"]:
        assert end
        end -= 1
        asker(server)("GET", "/v1/models")


def test_sources_and_their_names(tmp_path: Any) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    assert is_language(str(tmp_path))
    (tmp_path / "config.json").write_text('{"architectures": ["BertModel"]}')
    assert not is_language(str(tmp_path))
    for source in ("a/m.gguf", "lm:folder", "hf:owner/m"):
        assert is_language(source)
    assert [name_of(s) for s in ("a/m.gguf", "hf:owner/m@1", "pypi:m==2", "x/m.onnx", "m/")] == [
        "m"
    ] * 5
    assert name_of("embedding:folder/m") == "m"
    assert name_of("ocr") == "ocr"


WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"days": {"type": "integer", "minimum": 1, "maximum": 9}},
            "required": ["days"],
            "additionalProperties": False,
        },
    },
}


def test_a_demanded_call_whole_and_streamed(server: Server, ask: Ask) -> None:
    body = {**CHAT, "tools": [WEATHER], "tool_choice": "required", "max_tokens": 90, "seed": 1}
    status, _, found = ask("POST", "/v1/chat/completions", body)
    assert status == 200
    choice = found["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    (call,) = choice["message"]["tool_calls"]
    assert call["type"] == "function"
    assert call["function"]["name"] == "weather"
    assert 1 <= json.loads(call["function"]["arguments"])["days"] <= 9
    pieces = [d["choices"][0] for d in streamed(server, "/v1/chat/completions", body)]
    assert not any(p["delta"].get("content") for p in pieces)
    assert pieces[-1]["finish_reason"] == "tool_calls"
    assert pieces[-1]["delta"]["tool_calls"][0]["function"] == call["function"]


def test_a_chat_goes_on_after_a_call(ask: Ask) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    messages = [
        *CHAT["messages"],
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "warm"},
    ]
    body = {**CHAT, **GREEDY, "messages": messages}
    assert ask("POST", "/v1/chat/completions", {**body, "tools": [WEATHER]})[0] == 200
    assert ask("POST", "/v1/chat/completions", body)[0] == 200
    call["function"]["arguments"] = "[]"
    status, _, found = ask("POST", "/v1/chat/completions", body)
    assert (status, "JSON of an object" in found["error"]["message"]) == (400, True)


def test_deep_nesting_is_the_clients_fault(ask: Ask) -> None:
    deep = '{"a":' * 900 + "1" + "}" * 900
    call = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": deep}}
    for fields in (
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]},
        {"chat_template_kwargs": {}},
    ):
        body = json.dumps({**CHAT, **fields}).replace("{}", deep).encode()
        status, _, found = ask("POST", "/v1/chat/completions", body)
        assert (status, "levels deep" in found["error"]["message"]) == (400, True)
    said = [*CHAT["messages"], {"role": "assistant", "tool_calls": [call]}]
    status, _, found = ask("POST", "/v1/chat/completions", {**CHAT, "messages": said})
    assert (status, "levels deep" in found["error"]["message"]) == (400, True)
