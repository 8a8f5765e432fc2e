"""Rules for every API in the registry, and the search for an API."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.apis.toy import Toy
from tests.dialects.material import CASES, plain
from vtc.apis import APIS, Api, Changes, RequestError, explain_unread, match_request
from vtc.apis.relay import Relay
from vtc.json_text import decode_json, encode_json

BODIES = st.binary(max_size=200) | st.recursive(
    st.none()
    | st.booleans()
    | st.integers(0, 3)
    | st.sampled_from(["", "assistant", "user", "tool", "text", "tool_use", "tool_result", "x"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    *("messages", "tools", "function", "name", "role", "content", "tool_calls", "id", "choices"),
                    *("message", "system", "type", "text", "tool_use_id", "input"),
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=30,
).map(lambda value: str(value).replace("'", '"').replace("None", "null").lower().encode())

PATHS = plain((CASES / "apis" / "paths.yaml").read_text("utf-8"))
each = pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)


@pytest.mark.every
@pytest.mark.parametrize("case", PATHS["apis"], ids=lambda case: f"{case['method']} {case['path']}")
def test_api_is_found_by_method_and_path(case: dict[str, str]) -> None:
    found = match_request(case["method"], case["path"])
    assert (found.name if found else None) == case["api"]


@pytest.mark.every
@pytest.mark.parametrize("case", PATHS["unread"], ids=lambda case: f"{case['method']} {case['path']}")
def test_path_similar_to_an_api_is_ignored_with_a_reason(case: dict[str, str]) -> None:
    found = explain_unread(case["method"], case["path"])
    assert (case["reason"] in found.why) if found else not case["reason"]


def test_every_api_has_a_name_of_its_own() -> None:
    assert len({api.name for api in APIS}) == len(APIS) > 0


@each
@given(body=BODIES)
def test_any_body_is_a_request_or_a_bad_one(api: Api, body: bytes) -> None:
    """No other exception is raised; a request that is encoded again is parsed to the same values."""
    try:
        request = api.request(body)
        again = api.request(encode_json(api.writer.apply_changes(request, Changes(messages=request.messages))))
    except RequestError:
        return
    assert (again.messages, again.offer, again.model) == (request.messages, request.offer, request.model)


@each
@given(data=BODIES)
def test_any_frame_passes(api: Api, data: bytes) -> None:
    """Any other frame is forwarded unchanged, except that clients of chat completions get only objects."""
    relay = Relay(api.decoder(), api.encoder(), Toy)
    framing = relay.decoder.framing
    is_dropped = api.name == "openai-chat" and is_json_without_object(data)
    body = b"data: " + data + b"\n\n" if framing.media_type == "text/event-stream" else data + b"\n"
    if not any(key in data for key in (b"choices", b"message")):
        reader = framing.make_reader()
        frames = [*reader.feed(body), *reader.finish()]
        sent = b"".join([*(out for frame in frames for out in relay.feed(frame)), *relay.finish()])
        assert sent == (b"" if is_dropped else body)


def is_json_without_object(data: bytes) -> bool:
    try:
        return not isinstance(decode_json(data), dict)
    except ValueError:
        return False


@each
def test_end_of_nothing_is_nothing(api: Api) -> None:
    relay = Relay(api.decoder(), api.encoder(), Toy)
    assert relay.finish() == relay.finish() == relay.release() == []
