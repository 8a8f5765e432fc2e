"""The fields of a request's body, and edits of JSON by path."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from vtc.apis import fields, json_path
from vtc.json_text import encode_json


def test_every_field_keeps_its_bytes() -> None:
    raw, values, _ = fields.split_body(b'{"a": [1,  2], "tools": ["x"]}')
    assert {key: bytes(one) for key, one in raw.items()} == {"a": b"[1,  2]", "tools": b'["x"]'}
    assert values == {"a": [1, 2], "tools": ["x"]}
    assert [bytes(one) for one in fields.split_items(raw["a"], values["a"])] == [b"1", b"2"]


def test_half_a_character_is_read() -> None:
    raw, values, _ = fields.split_body(b'{"a": ["\\ud83d"], "tools": ["x"]}')
    assert values["a"] == ["\ud83d"]
    assert [bytes(one) for one in fields.split_items(raw["a"], values["a"])] == [b'"\\ud83d"']


@pytest.mark.parametrize("body", [b"", b"[]", b"5", b"{"])
def test_body_that_is_no_object_is_reported(body: bytes) -> None:
    with pytest.raises(ValueError, match="Expect"):
        fields.split_body(body)


@pytest.mark.parametrize(
    ("path", "remaining"),
    [
        ("a.b", {"a": {"c": [1, {"d": 2}]}}),
        ("a.c.0", {"a": {"b": 1, "c": [{"d": 2}]}}),
        ("a.c.2", {"a": {"b": 1, "c": [1, {"d": 2}]}}),
        ("a.c.*.d", {"a": {"b": 1, "c": [1, {}]}}),
        ("a.*", {"a": {}}),
        ("*.b", {"a": {"c": [1, {"d": 2}]}}),
        ("x.y", {"a": {"b": 1, "c": [1, {"d": 2}]}}),
    ],
)
def test_the_values_at_a_path_are_dropped(path: str, remaining: Any) -> None:
    value = {"a": {"b": 1, "c": [1, {"d": 2}]}}
    dropped = json_path.drop_at(value, path.split("."))
    assert dropped == remaining
    assert (dropped is value) is (remaining == value)
    assert json_path.edit_fields({**value}, [path], {"z": 1}) == {**remaining, "z": 1}


def test_only_values_along_the_path_lose_their_bytes() -> None:
    fields = {"a": msgspec.Raw(b'[{"b":  1, "c":  [2]},  {"d":  3}]'), "e": msgspec.Raw(b"[ ]")}
    edited = json_path.edit_at(fields, ("a", "*", "b"), lambda _: 5)
    assert encode_json(edited) == b'{"a":[{"b":5,"c":[2]},{"d":  3}],"e":[ ]}'
    assert edited["e"] is fields["e"]
    assert json_path.edit_at(fields, ("a", "*", "x"), lambda _: 5) is fields


def test_an_edit_that_changes_nothing_returns_the_same_object() -> None:
    value = {"a": [{"type": "x", "b": 1}]}
    for path in (("a", "*", "b"), ("a", "*", "[y]", "b"), ("a", "0"), ("a", "b"), ("a", "*", "*"), ()):
        assert json_path.edit_at(value, path, lambda part: part) is value


def test_a_path_can_require_the_type_of_an_object() -> None:
    value = [{"type": "x", "b": 1}, {"type": "y", "b": 1}, {"type": "z", "b": 1}, "w"]
    edited = json_path.edit_at(value, ("*", "[x|z]", "b"), lambda part: part + 1)
    assert edited == [{"type": "x", "b": 2}, {"type": "y", "b": 1}, {"type": "z", "b": 2}, "w"]
    assert edited[1] is value[1]


def test_the_wildcard_matches_keys_only_on_request() -> None:
    value = {"a": 1, "*": 2}
    assert json_path.edit_at(value, ("*",), str) is value
    assert json_path.edit_at(value, ("*",), str, any_key=True) == {"a": "1", "*": "2"}
