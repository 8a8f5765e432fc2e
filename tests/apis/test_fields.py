"""The fields of a request's body."""

from __future__ import annotations

from typing import Any

import pytest

from vtc.apis import fields


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
    ("path", "expected"),
    [
        ("a.b", {"a": {"c": [1, {"d": 2}]}}),
        ("a.c.0", {"a": {"b": 1, "c": [{"d": 2}]}}),
        ("a.c.*.d", {"a": {"b": 1, "c": [1, {}]}}),
        ("a.*", {"a": {}}),
        ("x.y", {"a": {"b": 1, "c": [1, {"d": 2}]}}),
    ],
)
def test_field_at_a_path_is_removed(path: str, expected: Any) -> None:
    value = {"a": {"b": 1, "c": [1, {"d": 2}]}}
    assert fields.remove_path(value, path.split(".")) == expected
    assert fields.edit_fields({**value}, [path], {"z": 1}) == {**expected, "z": 1}
