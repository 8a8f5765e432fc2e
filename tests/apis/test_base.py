"""Rules for every API in the registry, and the search for an API."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.apis.toy import Toy
from vtc.apis import APIS, Api, BadRequest, Changes, explain_unread, match_request
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

each = pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)


@pytest.mark.parametrize(
    ("method", "path", "name"),
    [
        ("POST", "/v1/chat/completions", "openai-chat"),
        ("POST", "/chat/completions?api-version=2024", "openai-chat"),
        ("POST", "/openai/deployments/x/chat/completions/", "openai-chat"),
        ("GET", "/v1/chat/completions", None),
        ("POST", "/v1/completions", None),
        ("POST", "/v1/messages?x=/chat/completions", "anthropic-messages"),
        ("POST", "/anthropic/v1/messages?beta=true", "anthropic-messages"),
        ("POST", "/v1/messages/count_tokens", None),
        ("POST", "/v1/messages/batches", None),
        ("POST", "/v1/chat/completions/cmpl-1/cancel", None),
        ("POST", "", None),
        ("POST", "/V1/Chat/Completions", "openai-chat"),
        ("POST", "/v1/chat%2Fcompletions", "openai-chat"),
        ("POST", "/v1/chat/completions;x=1", "openai-chat"),
        ("POST", "/v1//./chat/completions", "openai-chat"),
        ("POST", "/v1/%6Dessages", "anthropic-messages"),
    ],
)
def test_an_api_is_found_by_method_and_path(method: str, path: str, name: str | None) -> None:
    found = match_request(method, path)
    assert (found.name if found else None) == name


@pytest.mark.parametrize(
    ("method", "path", "why"),
    [
        ("POST", "/v1/messages/count_tokens?beta=true", "tokens are counted"),
        ("POST", "/anthropic/v1/messages/count_tokens", "tokens are counted"),
        ("POST", "/v1/messages/batches", "of a batch"),
        ("GET", "/v1/messages/batches/b1/results", "of a batch"),
        ("POST", "/v1/responses/input_tokens", "tokens are counted"),
        ("POST", "/codex/responses/compact", "compaction"),
        ("GET", "/v1/responses/resp_1?stream=true", "a response that the server stored"),
        ("POST", "/v1/responses/resp_1/cancel", "a response that the server stored"),
        ("GET", "/v1/responses", "a response that the server stored"),
        ("GET", "/v1/chat/completions/c1", "a completion that the server stored"),
        ("POST", "/v1/completions", "text completions have no tools"),
        ("POST", "/api/generate", "text completions have no tools"),
        ("POST", "/v1/messages", ""),
        ("OPTIONS", "/v1/responses", ""),
        ("GET", "/v1/models", ""),
        ("POST", "/survey/responses/5", ""),
        ("POST", "/api/generated", ""),
    ],
)
def test_path_similar_to_an_api_is_ignored_with_a_reason(method: str, path: str, why: str) -> None:
    found = explain_unread(method, path)
    assert (why in found.why) if found else not why


def test_every_api_has_a_name_of_its_own() -> None:
    assert len({api.name for api in APIS}) == len(APIS) > 0


@each
@given(body=BODIES)
def test_any_body_is_a_request_or_a_bad_one(api: Api, body: bytes) -> None:
    """No other exception is raised; a request that is encoded again is parsed to the same values."""
    try:
        request = api.request(body)
        again = api.request(encode_json(request.apply_changes(Changes(messages=request.messages))))
    except BadRequest:
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
