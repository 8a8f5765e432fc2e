"""Lists and objects as tags that say the type of each value: read as they are written, or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from vtc.dialects.arguments import typed_tags


def read(text: str) -> Any:
    tags = text.replace("<v", "<cofl:value").replace("</v", "</cofl:value")
    return typed_tags.read(tags, "cofl:value", lambda key: key.replace("&quot;", '"'))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('<v type="raw"> a </v>\n<v type="json">1</v>', [" a ", 1]),
        ('<v name="a&quot;" type="json">null</v>', {'a"': None}),
        ('<v name="a" type="list"><v type="dict"></v></v>', {"a": [{}]}),
        ('<v name="a" type="list"></v>', {"a": []}),
    ],
)
def test_tags_are_read_as_what_they_say(text: str, value: object) -> None:
    assert read(text) == value


@pytest.mark.parametrize(
    "text",
    [
        '<v type="raw">a',
        '<v type="raw">a</v> b',
        '<v type="raw">a</v></v>',
        '<v type="json">a</v>',
        '<v type="raw">a</v><v name="b" type="raw">c</v>',
        '<v name="b" type="raw">c</v><v name="b" type="raw">d</v>',
        '<v type="raw">a<v type="raw">b</v></v>',
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"tag|text|JSON|list|deep"):
        read(text)


def test_the_type_of_a_value_is_written() -> None:
    assert [typed_tags.kind_of(one) for one in ("a", 1, None, {}, [])] == ["raw", "json", "json", "dict", "list"]
