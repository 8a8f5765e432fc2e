"""Images and documents as URLs."""

from __future__ import annotations

from typing import Any

import pytest

from vtc.apis import content
from vtc.events import Media, Message, Opaque

PNG = "data:image/png;base64,AAAA"


@pytest.mark.parametrize(
    ("url", "found"),
    [
        (PNG, Media("image", "image/png", "AAAA")),
        ("data:image/png;charset=x;base64,AAAA", Media("image", "image/png", "AAAA")),
        ("https://localhost/a.png", Media("image", url="https://localhost/a.png")),
        ("data:text/plain,abc", Media("image", url="data:text/plain,abc")),
        ("", None),
        (None, None),
        ({"url": PNG}, None),
    ],
)
def test_a_url_is_data_or_a_place(url: Any, found: Media | None) -> None:
    assert content.parse_media_url("image", url) == found


@pytest.mark.parametrize("url", [PNG, "https://localhost/a.png"])
def test_parsed_media_is_rendered_equally(url: str) -> None:
    found = content.parse_media_url("image", url)
    assert found is not None
    assert content.render_media_url(found) == url


def test_note_names_the_omitted_media() -> None:
    assert content.describe_omitted_media(Media("document", "application/pdf", "AA", name="a.pdf")).startswith(
        "[application/pdf a.pdf: left"
    )
    assert content.describe_omitted_media(Media("image", url="https://localhost/" + "a" * 999)).startswith(
        "[image https://localhost/aaa"
    )


def test_parts_of_a_message_are_its_text_and_its_media() -> None:
    image = Media("image", "image/png", "AA")
    message = Message("user", ("a", Opaque({"type": "x"}), Opaque(media=image), ""))
    assert content.list_parts(message) == ["a", image]


@pytest.mark.parametrize(
    ("part", "named"),
    [
        ({"type": "file", "file": {"file_id": "file-1"}}, "file-1"),
        ({"type": "file", "file": {"file_id": "file-1", "filename": "a.pdf"}}, "a.pdf"),
        ({"type": "input_image", "file_id": "file-1"}, "file-1"),
        ({"type": "document", "title": "A", "source": {"type": "file", "file_id": "file-1"}}, "A"),
        ({"type": "input_audio", "input_audio": {}, "filename": "a.wav"}, ""),
        ("bare", ""),
        ({"file": 5}, ""),
    ],
)
def test_a_file_that_the_server_keeps_has_a_name(part: Any, named: str) -> None:
    assert content.get_file_name(part) == named
