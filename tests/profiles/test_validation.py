"""Messages about a document that does not match its class."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from vtc.profiles import ProfileError, load_profiles
from vtc.profiles.document import KeyPath, join_words, problems, read_documents, suggest_nearest
from vtc.profiles.loader import KINDS


class Inner(msgspec.Struct, forbid_unknown_fields=True):
    to: Literal["keep", "drop"] = "keep"
    text: str = ""


class Model(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    name: str
    tools: Literal["native", "prompt"] = "native"
    names: tuple[str, ...] | Literal["auto"] = "auto"
    globs: dict[str, tuple[str, ...] | str] = {}
    flag: bool | None = None
    count: int | None = None
    window: int | Literal[False] | None = None
    inner: Inner | None = None
    anything: Any = None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name: x\ntool: native", "2: tool: unknown key; known here are anything, count, flag, globs, inner, "
         "name, names, tools and window (did you mean 'tools'?)"),
        ("name: x\nzzz: 1", "2: zzz: unknown key; known here are anything, count, flag, globs, inner, "
         "name, names, tools and window"),
        ("tools: native", "1: name: missing; add `name: …`"),
        ("name: x\ntools: promt", "2: tools: must be native or prompt, not \"promt\" (did you mean 'prompt'?)"),
        ("name: x\ntools: 1", "2: tools: must be native or prompt, not 1"),
        ("name: 3.5", "1: name: must be a text, not 3.5; put it in quotes"),
        ("name: no", "1: name: must be a text, not false; put it in quotes"),
        ("name: {x}", "1: name: must be a text, not a mapping; put it in quotes"),
        ("name: x\nnames: tag", "2: names: must be a list or auto, not \"tag\"; write [tag]"),
        ("name: x\nnames: autp", "2: names: must be a list or auto, not \"autp\"; write [autp] (did you mean 'auto'?)"),
        ("name: x\nnames:\n- a\n- 3", "4: names[1]: must be a text, not 3; put it in quotes"),
        ("name: x\nglobs:\n  a: b\n  c: 3", "4: globs.c: must be a list or a text, not 3; put it in quotes"),
        ("name: x\nglobs:\n  a: [b, 3]", "3: globs.a[1]: must be a text, not 3; put it in quotes"),
        ("name: x\nflag: maybe", '2: flag: must be true or false, not "maybe"'),
        ("name: x\nwindow: 64k", '2: window: must be a whole number or false, not "64k"'),
        ("name: x\ncount: many", '2: count: must be a whole number, not "many"'),
        ("name: x\ncount: yes", "2: count: must be a whole number, not true"),
        ("name: x\ninner: []", "2: inner: must be a mapping, not a list"),
        ("name: x\ninner:\n  to: kep", "3: inner.to: must be drop or keep, not \"kep\" (did you mean 'keep'?)"),
        ("name: x\ninner:\n  txet: a", "3: inner.txet: unknown key; known here are text and to (did you mean 'text'?)"),
        ("- name", "1: must be a mapping, not a list"),
        ("name: " + "x" * 100 + "\ntools: " + "y" * 100, f'2: tools: must be native or prompt, not "{"y" * 59}…'),
    ],
)  # fmt: skip
def test_problem_has_place_cause_and_remedy(tmp_path: Path, text: str, expected: str) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(text)
    [document], _ = read_documents(file)
    assert [str(problem) for problem in problems(document, Model)] == [f"{file}:{expected}"]


def test_all_problems_are_found_at_once(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("tools: x\nflag: 3\ninner: {to: 1, text: 2}\nmore: 1\nother: 2\n")
    [document], _ = read_documents(file)
    assert sorted(problem.key for problem in problems(document, Model)) == [
        *("flag", "inner.text", "inner.to", "more", "name", "other", "tools")
    ]


def test_a_valid_document_has_no_problems(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("name: x\nnames: [a]\nglobs: {a: b, c: [d]}\nflag: null\ninner: {to: drop}\nanything: [1]\n")
    [document], _ = read_documents(file)
    assert problems(document, Model) == []


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("dialekt", " (did you mean 'dialect'?)"),
        ("DIALECT", " (did you mean 'dialect'?)"),
        ("xyz", ""),
        (3, ""),
        (None, ""),
    ],
)
def test_the_nearest_word(word: object, hint: str) -> None:
    assert suggest_nearest(word, ["dialect", "match"]) == hint


def test_words_in_a_list() -> None:
    assert join_words(["a"]) == "a"
    assert join_words(["a", "b"]) == "a or b"
    assert join_words(["a", "b", "c"], "and") == "a, b and c"


VALUES = (
    *("null", "true", "-1", "3", "1" * 30, "1e400", ".nan", "0.5", "64k", '"65536"', '""', "'*'", "'/(/'", "'[['"),
    *("'{value'", "'$'", r'"\0"', r'"\uD800"', "2024-01-01", "[]", "[null, 1]", "[[[a]]]", "{}", "{a: 1}", "<<"),
    *("{a: {b: [c]}}", "!!binary aGk=", f"'{'(' * 3000}'", f"'/{'(a|' * 500}/'", f"[{'a, ' * 300}]"),
)
"""Possible values: each type of YAML and JSON, and strings with a special meaning to some key."""


def places(schema: Any, defs: Any, within: tuple[str, ...] = (), path: KeyPath = ()) -> Iterator[tuple[str, KeyPath]]:
    """Yield each value of a schema as its requirements and its path."""
    if path:
        asked = {key: value for key, value in schema.items() if key not in ("description", "default", "title")}
        yield json.dumps(asked, sort_keys=True), path
    if name := schema.get("$ref", "").rpartition("/")[2]:
        if name not in within:
            yield from places(defs[name], defs, (*within, name), path)
        return
    parts = [(part, ()) for part in schema.get("anyOf", ())]
    parts += [(part, (key,)) for key, part in schema.get("properties", {}).items()]
    for key, step in (("additionalProperties", "a"), ("items", 0)):
        parts += [(schema[key], (step,))] if isinstance(schema.get(key), dict) else []
    for part, steps in parts:
        yield from places(part, defs, within, (*path, *steps))


@cache
def by_schema(kind: str) -> dict[str, KeyPath]:
    """Return a path for each different requirement of a value."""
    schema = msgspec.json.schema(KINDS[kind])
    return dict(places(schema, schema["$defs"]))


def write_value(path: KeyPath, value: str) -> str:
    for step in reversed(path):
        value = f"[{value}]" if step == 0 else f"{{{step}: {value}}}"
    return value[1:-1]


@pytest.mark.parametrize("turn", range(6))
@pytest.mark.parametrize("kind", KINDS)
def test_any_value_of_any_key_is_accepted_or_reported(kind: str, turn: int, tmp_path: Path) -> None:
    """The message states the place of the value; there is no other error, and no exit."""
    values, others = VALUES[turn::6], [*KINDS][: [*KINDS].index(kind)]
    file = tmp_path / "x.yaml"
    known = {asked for other in others for asked in by_schema(other)}
    for path in (path for asked, path in by_schema(kind).items() if asked not in known):
        head = {"kind": kind, "name": "x", **({} if kind in ("dialect", "policy") else {"match": "{}"})}
        head.pop(str(path[0]), None)
        begin = "".join(f"{key}: {value}\n" for key, value in head.items())
        file.write_text("---\n".join(f"{begin}{write_value(path, value)}\n" for value in values))
        assert len(read_documents(file)[0]) == len(values)
        with pytest.raises(ProfileError) as error:
            load_profiles([file])
        assert all(str(one).startswith(f"{file}:") for one in error.value.problems)
