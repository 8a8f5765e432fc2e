"""JSON as servers send it, valid or not."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtc.json_schema import resolve_reference
from vtc.json_text import (
    decode_json,
    encode_json,
    encode_line,
    has_distinct_keys,
    is_unambiguous,
    parse,
    parse_exact_float,
    serialize_changed,
)

LEAVES = st.none() | st.booleans() | st.integers() | st.text()
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))


@given(VALUES)
def test_value_is_read_back(value: object) -> None:
    assert decode_json(encode_json(value)) == value


@pytest.mark.parametrize("text", ['"\\ud83d"', "123456789012345678901234567890", "[NaN]", "1e999"])
def test_fallback_decodes_like_python(text: str) -> None:
    assert repr(decode_json(text.encode())) == repr(json.loads(text))


def test_bytes_that_are_no_text_are_replaced_as_clients_do() -> None:
    assert decode_json(b'"\xff"', "replace") == "\ufffd"
    with pytest.raises(ValueError, match="utf-8"):
        decode_json(b'"\xff"')


@pytest.mark.parametrize("data", [b"", b"{", b"[" * 100_000, b"nope"])
def test_malformed_json_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_json(data)


def test_half_a_surrogate_pair_and_raw_json_are_written() -> None:
    assert encode_json(["\ud83d", msgspec.Raw(b"[1, 2]")]) == b'["\\ud83d",[1,2]]'
    assert encode_json(msgspec.Raw(b"[1, 2]")) == b"[1, 2]"


@given(VALUES)
def test_line_of_json_is_one_line_to_every_client(value: object) -> None:
    """Python's `str.splitlines` also splits at U+2028, U+2029 and U+0085."""
    for item in (value, ["a\u2028b\u2029c\x85d", value]):
        line = encode_line(item)
        assert decode_json(line) == item
        assert len(line.decode().splitlines()) == 1


@pytest.mark.parametrize(
    ("reference", "found"),
    [
        ("#", {"$defs": {"a/b": {"~": 1}}, "list": [1]}),
        ("#/$defs/a~1b/~0", 1),
        ("#/$defs/none/deeper", None),
        ("#/list/0", None),
        ("other.json#/$defs", None),
        (7, None),
    ],
)
def test_reference_of_a_schema_is_found_in_its_root_or_is_nothing(reference: object, found: object) -> None:
    assert resolve_reference({"$defs": {"a/b": {"~": 1}}, "list": [1]}, reference) == found


# Arguments of calls


@pytest.mark.parametrize("text", ["", "{", "NaN", '{"a": Infinity}', "[" * 100_000, "1" * 5_000, '"a\nb"'])
def test_malformed_json(text: str) -> None:
    for number in (float, parse_exact_float):
        with pytest.raises(ValueError, match=r"."):
            parse(text, number)


@pytest.mark.parametrize(
    ("text", "exact"),
    [("0.1", True), ("1.50", True), ("1e5", True), ("123456789012345678901234567890", True), ("1e400", False),
     ("0.12345678901234567890123", False), ("9007199254740993.0", False)],
)  # fmt: skip
def test_numbers_that_would_not_be_written_as_they_were(text: str, exact: bool) -> None:
    body = f'{{"n": {text}}}'
    if exact:
        assert json.loads(serialize_changed(body, {"n": parse(text, parse_exact_float), "é": 1})) == {
            "n": json.loads(text),
            "é": 1,
        }
    else:
        with pytest.raises(ValueError, match="a float cannot represent"):
            serialize_changed(body, {"n": 1})


@given(st.recursive(st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.text(), st.lists, max_leaves=5))
def test_json_of_python_is_read_exactly(value: object) -> None:
    assert parse(json.dumps(value), parse_exact_float) == value


@pytest.mark.parametrize(
    ("text", "proper"),
    [
        ('{"a": 1, "b": {"a": 2}}', True),
        ('[{"a": 1}, {"a": 1}]', True),
        ('{"a": 1, "a": 1}', False),
        ('{"a": {"b": 1, "\\u0062": 2}}', False),
        ('{"a": 1, "A": 2}', False),
        ('{"type": 1, "K": 2, "\u212a": 3}', False),
        ('{"a": 1} x', False),
        ("[" * 100_000, False),
    ],
)
def test_json_is_proper_if_every_client_reads_the_same(text: str, proper: bool) -> None:
    assert is_unambiguous(text.encode()) is proper
    if proper:
        assert has_distinct_keys(decode_json(text.encode()))


def test_a_value_is_looked_through_however_deep_it_is() -> None:
    inner: Any = {"k": 1}
    for _ in range(100_000):
        inner = [inner]
    assert has_distinct_keys(inner)
    assert not has_distinct_keys((inner, {"x": {"key": 1, "Key": 2}}))
