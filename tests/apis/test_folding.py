"""Whole replies of every API, decoded and encoded as the equivalent streams."""

from __future__ import annotations

import json

import pytest

from tests.apis import chat
from tests.apis.shapes import SHAPES
from vtc.apis import APIS, Api, NoReply, convert_to_stream, fold_rewritten, read_replies

each = pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
TEXTS = ["", "Hi", "é\n<b>", "\ud83d"]


@each
@pytest.mark.parametrize("text", TEXTS)
def test_stream_of_a_whole_reply_folds_back_to_it(api: Api, text: str) -> None:
    body, other = (chat.encode_json(SHAPES[api.name].whole(content)) for content in (text, "other"))
    stream = convert_to_stream(api, body)
    assert fold_rewritten(api, other, convert_to_stream(api, other), stream) != other
    assert json.loads(fold_rewritten(api, other, convert_to_stream(api, other), stream)) == json.loads(body)
    assert fold_rewritten(api, body, stream, stream) is body


@each
@pytest.mark.parametrize("text", TEXTS)
def test_stream_made_of_a_whole_reply_has_the_same_content(api: Api, text: str) -> None:
    body = chat.encode_json(SHAPES[api.name].whole(text))
    assert read_replies(api, convert_to_stream(api, body)) == read_replies(api, body)


@each
@pytest.mark.parametrize("body", [b"{}", b"[]", b"5", b'"x"', b'{"error": {"message": "no"}}', b'{"choices": [5]}'])
def test_body_that_is_no_reply_is_refused(api: Api, body: bytes) -> None:
    with pytest.raises(NoReply, match=f"not a reply of {api.name}"):
        convert_to_stream(api, body)
