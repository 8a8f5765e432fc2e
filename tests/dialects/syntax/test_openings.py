"""How the arguments of a call begin, and its name."""

from __future__ import annotations

import re

import pytest

from tests.dialects.material import DIALECTS
from vtc.dialects.syntax.markup import ENCODED_TWICE, declared_envelopes, opening_of_json
from vtc.dialects.syntax.pattern import Part, whole


def begins(parts: tuple[Part, ...], text: str) -> bool:
    return re.match(whole(parts, "t"), text) is not None


@pytest.mark.parametrize(("text", "found"), [('{"a": 1', True), ("{ 'a'", True), ("{a: 1", False), ("{ a b }", False)])
def test_an_object_begins_with_a_quoted_key(text: str, found: bool) -> None:
    assert begins(opening_of_json(), text) is found


@pytest.mark.parametrize(("text", "found"), [('"{\\"a', True), ('"{}"', True), ('"ls"', False), ('"{ls', False)])
def test_arguments_in_a_string_begin_with_an_object(text: str, found: bool) -> None:
    assert begins(ENCODED_TWICE, text) is found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"name": "bash ", "parameters"', True),
        ('{"id": "call_1", "name": "bash"', True),
        ('{{"name": "bash"', True),
        ('{"answer": "bash"', False),
    ],
)
def test_a_call_without_markers_begins_with_a_name_or_arguments(text: str, found: bool) -> None:
    assert any(begins(opening, text) for opening in declared_envelopes(DIALECTS["llama3"])) is found
