"""Whole replies of Responses are equivalent to their streams, however they are made."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.apis import responses, sdks
from tests.apis.named_events import Json, events
from tests.apis.openai_responses.test_reply import API, NAMES, run
from tests.apis.responses import call, custom_call, message, open_reasoning, reasoning, response
from tests.apis.rewriting import rewrite_reply as through
from tests.apis.toy import Toy
from vtc.apis import convert_to_stream, render_text_reply
from vtc.apis.openai_responses import ResponseForm


def rewritten(reply: Json | bytes, form: ResponseForm | None = None, drop: tuple[str, ...] = (), **toy: Any) -> bytes:
    """Return the whole reply that is sent, with the toy reader."""
    body = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
    return through(API, body, lambda: Toy(**toy), form, drop)


def read(*items: Json, **how: Any) -> responses.Read:
    return responses.read(rewritten(response(*items), **how))


def join_texts(found: responses.Read) -> list[Any]:
    """Return the content with consecutive texts joined, because a stream may split them anywhere."""
    out: list[Any] = []
    for one in map(responses._essence, found.items):
        if out and one[0] == out[-1][0] and one[0] in ("message", "reasoning"):
            out[-1] = (one[0], out[-1][1] + one[1])
        else:
            out.append(one)
    return [one for one in out if one != ("message", "")]


PIECES = ["Hi", "[a]", "[b]", "(th)", "~", "{x}", "[", "]", " ", "[c"]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=5)
ITEM = st.one_of(
    TEXTS.map(lambda text: ("message", text)),
    TEXTS.map(lambda text: ("message", text)),
    st.sampled_from(["bad", "old", "ok"]).map(lambda name: ("call", name)),
    st.sampled_from(["bad", "ok"]).map(lambda name: ("custom", name)),
    st.just(("reasoning", "hm")),
)


def item_events(place: int, kind: str, content: Any) -> list[Json]:
    ids = {"call_id": f"call_{place}", "id": f"fc_{place}"}
    match kind:
        case "message":
            return responses.text_events(*content, id=f"msg_{place}")
        case "call":
            return responses.call_events(content, '{"a"', ": 1}", **ids)
        case "custom":
            return responses.custom_call_events(content, 'raw "x"', "\n", **ids)
    return responses.reasoning_events(content, id=f"rs_{place}")


@given(items=st.lists(ITEM, max_size=4), structured=st.booleans(), guarded=st.booleans(), cut=st.booleans())
def test_a_stream_and_a_whole_reply_become_the_same(
    items: list[tuple[str, Any]], structured: bool, guarded: bool, cut: bool
) -> None:
    toy = {"structured": structured, "guarded": guarded}
    parts = [item_events(place, *one) for place, one in enumerate(items)]
    done = [part[-1]["item"] for part in parts]
    stream = responses.read(run(*responses.make_stream(*parts, status="incomplete" if cut else "completed"), **toy))
    body = rewritten((responses.make_cut_reply if cut else response)(*done), **toy)
    whole = responses.read(body)
    assert (join_texts(stream), stream.reason) == (join_texts(whole), whole.reason)
    assert responses.read(convert_to_stream(API, body)) == whole


def test_a_reply_in_which_nothing_changes_keeps_its_bytes() -> None:
    body = json.dumps(response(reasoning("hm"), message("Hi"), call("read"), message("", "msg_2")), indent=1).encode()
    assert rewritten(body) == body
    assert rewritten(body, guarded=True) == body


@pytest.mark.parametrize("body", [b"", b"[]", b'{"error": "no"}', b'{"output": 5}'])
def test_other_bodies_pass(body: bytes) -> None:
    assert rewritten(body or b"null") == (body or b"null")


def test_a_message_keeps_its_id_and_its_other_parts() -> None:
    refusal = {"type": "refusal", "refusal": "No."}
    item = {**message("Hi[a]"), "phase": "x"}
    item["content"] += [refusal, *message("Bye")["content"]]
    found = read(item)
    first, made, last = found.items
    assert (first["id"], first["phase"], made["type"], last["phase"]) == ("msg_1", "x", "function_call", "x")
    assert [part["type"] for part in last["content"]] == ["refusal", "output_text"]


def in_parts(*parts: str) -> Json:
    """Make a message with a part for each text; the prefix `!` makes a refusal, `?` a part of an unknown type."""
    of = {"!": lambda part: {"type": "refusal", "refusal": part[1:]}, "?": lambda _: {"type": "odd", "x": 1}}
    return {**message(""), "content": [of.get(one[:1], lambda part: message(part)["content"][0])(one) for one in parts]}


@pytest.mark.parametrize(
    "parts", [["Hi", "!No", "Ho"], ["Hi", "", "Ho"], ["!No"], ["", "Hi"], ["Hi", "?"], ["?", "Hi", ""], ["", ""]]
)
def test_the_stream_of_a_message_of_several_parts_passes_byte_for_byte(parts: list[str]) -> None:
    stream = convert_to_stream(
        API, json.dumps(response(in_parts(*parts), call("read"), message("Bye", "msg_2"))).encode()
    )
    assert run(stream) == stream


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (["Hi[a]", "!No", "Ho"], ["Hi", "a", "!No", "Ho"]),
        (["[a]", "!No", "Ho"], ["a", "!No", "Ho"]),
        (["Hi", "!No", "[a]"], ["Hi", "!No", "a"]),
        (["[a]", "[b]"], ["a", "b"]),
        (["[a]", "Hi", "[b]"], ["a", "Hi", "b"]),
        (["[a]", ""], ["a"]),
        (["", "[a]"], ["a"]),
        (["Hi[a", "x]Ho"], ["Hi[a", "x]Ho"]),
    ],
)
def test_calls_are_lifted_out_of_the_parts_of_a_message(parts: list[str], expected: list[str]) -> None:
    stream = convert_to_stream(API, json.dumps(response(in_parts(*parts), message("Bye", "msg_2"))).encode())
    *found, last = responses.read(run(stream)).items
    found_parts = [part for item in found for part in item.get("content", [item])]
    texts = [part.get("text", part.get("name", f"!{part.get('refusal')}")) for part in found_parts]
    assert (texts, last["id"]) == (expected, "msg_2")


def test_texts_of_two_messages_stay_apart() -> None:
    found = read(message("A~"), reasoning("hm"), message("B[b]", "msg_2"))
    assert [responses._join_text(item) for item in found.items[:3]] == ["A", "hm", "B"]
    assert found.calls == [("b", {})]


def test_a_flat_name_is_parted_into_namespace_and_name() -> None:
    found = read(call("mcp__fs__read"), form=ResponseForm(NAMES))
    assert (found.calls, found.namespaces) == ([("read", {})], ["mcp__fs"])


def test_hidden_content_is_removed() -> None:
    found = read(open_reasoning("hm"), message("(hm)Hi"), drop=("reasoning",))
    assert found.kinds == ["message"]
    assert b'"usage"' not in rewritten(response(message("Hi")), drop=("usage",))


async def test_the_stream_of_a_whole_reply_is_read_by_the_sdk() -> None:
    items = [reasoning("hm"), open_reasoning("hm", "rs_2"), message("Hi"), call("read", filePath="a")]
    body = response(*items, custom_call("patch", "x", call_id="call_2"))
    out = convert_to_stream(API, json.dumps(body).encode())
    assert await sdks.read_responses([out]) == responses.read(out) == responses.read(json.dumps(body).encode())
    assert [event.name for event in events(out)[:2]] == ["response.created", "response.in_progress"]


def test_other_bodies_have_no_stream() -> None:
    with pytest.raises(ValueError, match="not a reply of openai-responses"):
        convert_to_stream(API, b'{"error": {}}')


async def test_a_reply_of_our_own_is_read_by_the_sdk() -> None:
    body = render_text_reply(API, API.request(b'{"input": "", "model": "m"}'), "Stop.", "ab" * 32, 1)
    assert responses.read(body) == await sdks.read_responses([body], stream=False)
    assert (responses.read(body).content, json.loads(body)["model"]) == ("Stop.", "m")
