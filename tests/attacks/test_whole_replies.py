"""No whole reply of any form is sent unread under a policy: it is read, or replaced by a message."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from fuzz.policies import open_session
from tests.apis import chat, messages, ollama, responses
from tests.exchanges import AGENT, planner
from vtc.apis import APIS as ALL
from vtc.exchange import WITHHELD, Session

pytestmark = pytest.mark.every

DROPPING = 1
"""The policy that silently drops denied calls."""
DEEP = "[" * 2_000 + "]" * 2_000

type Json = dict[str, Any]


def _chat(name: str, text: str) -> Json:
    return chat.completion(
        text, "tool_calls", message={"tool_calls": [chat.native(0, id="c0", name=name, arguments="{}")]}
    )


def _messages(name: str, text: str) -> Json:
    return messages.message(messages.text(text), messages.call(name), stop_reason="tool_use")


def _responses(name: str, text: str) -> Json:
    return responses.response(responses.message(text), responses.call(name))


def _ollama(name: str, text: str) -> Json:
    return ollama.message(text, ollama.call(name))


APIS: dict[str, tuple[int, Callable[[str, str], Json]]] = {
    "chat": (1, _chat),
    "messages": (2, _messages),
    "responses": (3, _responses),
    "ollama": (4, _ollama),
}
API = pytest.mark.parametrize("api", APIS)


def body(api: str, name: str = "bash", text: str = "Hello") -> str:
    return json.dumps(APIS[api][1](name, text))


def exchange_of(api: str) -> Session:
    return open_session(DROPPING, APIS[api][0])


UNREAD: dict[str, Callable[[str], str]] = {
    "nested 2,000 deep": lambda text: f'{text[:-1]},"z":{DEEP}}}',
    "nested 100,000 deep": lambda text: f'{text[:-1]},"z":{DEEP * 50}}}',
    "words after it": lambda said: f"{said}garbage",
    "a value after it": lambda said: f'{said}{{"a":1}}',
    "the same twice": lambda said: f"{said}\n\n{said}",
    "a zero byte after it": lambda said: f"{said}\0",
    "a zero byte before it": lambda said: f"\0{said}",
    "a guard before it": lambda said: f")]}}',\n{said}",
    "a call of JSONP": lambda said: f"callback({said})",
    "a comment before it": lambda said: f"/* x */{said}",
    "a comment in it": lambda said: f"{said[:-1]}/* x */}}",
    "a comment of one line": lambda said: f"// x\n{said}",
    "a trailing comma": lambda said: f"{said[:-1]},}}",
    "a control character": lambda text: f'{text[:-1]},"z":"\x01"}}',
    "a tabulator": lambda text: f'{text[:-1]},"z":"\t"}}',
    "single quotes": lambda said: f"{said[:-1]},'z':1}}",
    "a key without quotes": lambda said: f"{said[:-1]},z:1}}",
    "a number of Python": lambda text: f'{text[:-1]},"z":1_0}}',
    "its end cut off": lambda said: said[:-1],
    "a list around it": lambda said: f"[{said}]",
    "parts": lambda said: f"--x\r\nContent-Type: application/json\r\n\r\n{said}\r\n--x--\r\n",
    "a page around it": lambda said: f"<html><script>{said}</script></html>",
    "a record separator": lambda said: f"\x1e{said}\n",
}
ENCODINGS = ("utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be")


def is_in(word: str, body: bytes) -> bool:
    return any(
        word.encode(encoding) in body for encoding in ("utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")
    )


def text_of(api: str, reply: Json) -> str:
    match api:
        case "chat":
            return str(reply["choices"][0]["message"]["content"])
        case "messages":
            return str(reply["content"][0]["text"])
        case "responses":
            return str(reply["output"][0]["content"][0]["text"])
    return str(reply["message"]["content"])


@pytest.mark.halved
@API
@pytest.mark.parametrize("encoding", ["utf-8", *ENCODINGS])
@pytest.mark.parametrize("how", UNREAD)
def test_reply_that_cannot_be_read_is_withheld_with_a_message(how: str, encoding: str, api: str) -> None:
    exchange = exchange_of(api)
    output = exchange.whole.rewrite(UNREAD[how](body(api)).encode(encoding))
    assert not is_in("bash", output)
    assert (api, how) == ("ollama", "the same twice") or text_of(api, json.loads(output)) == WITHHELD
    assert exchange.report.outcome == "denied"
    assert exchange.report.failures == []


@pytest.mark.halved
@API
@pytest.mark.parametrize("encoding", ["utf-8", *ENCODINGS])
def test_reply_in_any_unicode_encoding_is_read_and_sent_in_utf_8(encoding: str, api: str) -> None:
    denied, allowed, observed = (exchange_of(api) for _ in range(3))
    output = denied.whole.rewrite(body(api).encode(encoding))
    assert not is_in("bash", output)
    assert text_of(api, json.loads(output.decode())) == "Hello"
    assert [call["name"] for call in denied.report.calls] == []
    output = allowed.whole.rewrite(body(api, "read", "é😀").encode(encoding))
    assert is_in("read", output)
    assert text_of(api, json.loads(output.decode())) == "é😀"
    error = b'{"error": {"type": "x", "message": "busy"}}'.decode().encode(encoding)
    assert observed.whole.rewrite(error) == error  # which contains no call
    assert observed.report.errors == ["the server broke off with an error: busy"]


@API
def test_reply_nested_less_deeply_is_read(api: str) -> None:
    nested = f'{body(api, "read")[:-1]}, "z": {"[" * 500}{"]" * 500}}}'
    assert is_in('"read"', exchange_of(api).whole.rewrite(nested.encode()))


@API
def test_arguments_nested_without_end_are_withheld(api: str) -> None:
    """A model can cause this in a correct server if arguments are JSON of the reply itself."""
    call = body(api, "bash").replace('"name": "bash"', f'"name": "bash", "input": {{"x": {DEEP}}}')
    assert not is_in("bash", exchange_of(api).whole.rewrite(call.encode()))


@API
@pytest.mark.parametrize("passing", [b"<html><h1>502</h1></html>", b"Bad gateway", b"null", b"[]", b'"x"', b"5", b"{}"])
def test_body_without_any_object_passes(passing: bytes, api: str) -> None:
    """Without a brace no client finds a call, in any encoding."""
    exchange = exchange_of(api)
    assert exchange.whole.rewrite(passing) == passing
    assert exchange.report.failures == []
    assert exchange.report.policies == []


@API
def test_call_under_a_duplicate_key_is_not_sent(api: str) -> None:
    """Some clients use the first of two, and VTC reads the last."""
    denied, harmless = (APIS[api][1](name, "Hello") for name in ("bash", "read"))
    for key in ("choices", "content", "output", "message"):
        if key in denied:
            twice = json.dumps(denied)[:-1] + f', "{key}": {json.dumps(harmless[key])}}}'
            assert not is_in("bash", exchange_of(api).whole.rewrite(twice.encode()))


@API
def test_reply_keeps_its_bytes_and_is_reported_without_a_policy(api: str) -> None:
    asked = {
        "chat": chat.request(),
        "messages": messages.request(),
        "responses": responses.request(),
        "ollama": ollama.request(stream=False),
    }[api]
    for how in UNREAD:
        exchange = Session.open(ALL[APIS[api][0] - 1], chat.encode_json(asked), AGENT, planner(), "seed")
        sent = UNREAD[how](body(api)).encode()
        assert exchange.whole.rewrite(sent) == sent
        assert exchange.report.failures == []
