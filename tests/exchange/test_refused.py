"""What is taken out of a request that a server refused."""

from __future__ import annotations

import pytest

from vtc.exchange.refused import Without, without


@pytest.mark.parametrize(
    ("words", "left"),
    [
        (
            "'max_tokens' or 'max_completion_tokens' is too large: 64000. This model's maximum context length is 64001 "
            "tokens and your request has 24235 input tokens (64000 > 64001 - 24235).",
            39766,
        ),
        (
            "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens (1000 in the "
            "messages, 8000 in the completion). Please reduce the length of the messages or completion.",
            7192,
        ),
        (
            "This model's maximum context length is 4096 tokens. However, your request has 5000 input tokens. Please "
            "reduce max_tokens.",
            None,
        ),
        ("the request exceeds the available context size (4096 tokens), try increasing it", None),
        ("max_tokens must be at least 1, got 0", None),
        ("no such model", None),
        ("", None),
    ],
)
def test_the_limit_becomes_what_the_server_has_room_for(words: str, left: int | None) -> None:
    assert without(400, words) == (None if left is None else Without(limit=left))


@pytest.mark.parametrize(
    ("words", "images"),
    [
        ("image input is not supported - hint: you may need to provide the mmproj", True),
        ("At most 0 image(s) may be provided in one prompt.", True),
        ("Qwen3-Coder is not a multimodal model", True),
        ("This model does not support image inputs", True),
        ("image_url is not valid", False),
        ("the image could not be decoded", False),
    ],
)
def test_images_are_left_out_where_the_server_takes_none(words: str, images: bool) -> None:
    assert without(400, words) == (Without(images=True) if images else None)


@pytest.mark.parametrize(
    ("words", "thinking"),
    [
        ('"llama3.1:8b" does not support thinking', True),
        ('think value "medium" is not supported for this model', True),
        ("Unsupported parameter: 'reasoning_effort' is not supported with this model.", True),
        ("Unrecognized request argument supplied: reasoning_effort", True),
        ("adaptive thinking is not supported on this model", True),
        ("Input should be 'enabled' or 'disabled'", True),
        ("`temperature` may only be set to 1 when thinking is enabled", True),
        ("Encrypted content is not supported with this model.", True),
        ("The `reasoning_content` in the thinking mode must be passed back to the API", False),
        ("messages.1.content.0: Invalid `signature` in `thinking` block", False),
    ],
)
def test_thinking_is_not_asked_for_where_the_model_cannot(words: str, thinking: bool) -> None:
    assert without(400, words) == (Without(thinking=True) if thinking else None)


def test_the_least_limit_is_the_one_that_the_server_names() -> None:
    words = "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got 1 instead."
    assert without(400, words) == Without(limit=16)


def test_other_errors_are_none_of_these() -> None:
    assert without(401, "This model does not support image inputs") is None
