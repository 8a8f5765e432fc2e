"""The finish reasons that the decoder accepts and the encoder writes."""

from __future__ import annotations

import pytest

from vtc.apis.openai_chat import API
from vtc.events import CUT_OFF, Finish, TextDelta
from vtc.json_text import decode_json, encode_json
from vtc.wire import Frame

HALTED = ["length", "content_filter", "error", "abort", "sensitive", "model_context_window_exceeded"]


@pytest.mark.parametrize("word", ["stop", "tool_calls", "function_call", *HALTED])
def test_each_finish_reason_is_written_as_the_word_that_was_read(word: str) -> None:
    chunk = encode_json({"id": "a", "choices": [{"index": 0, "delta": {}, "finish_reason": word}]})
    decoded = API.decoder().decode(Frame(b"data: " + chunk + b"\n\n", chunk))
    assert decoded is not None
    *_, finish = (delta for delta in decoded.deltas if not isinstance(delta, TextDelta))
    assert isinstance(finish, Finish)
    assert (finish.reason in CUT_OFF) is (word in HALTED)
    *_, last = API.encoder().write([finish], 0)
    assert decode_json(encode_json(last))["choices"][0]["finish_reason"] == word
