"""What is told of a document that is not what its class says."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from vtc.profiles.document import read
from vtc.profiles.validation import listed, nearest, problems


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
    inner: Inner | None = None
    anything: Any = None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name: x\ntool: native", "2: tool: unknown key; known here are anything, count, flag, globs, inner, "
         "name, names and tools (did you mean 'tools'?)"),
        ("name: x\nzzz: 1", "2: zzz: unknown key; known here are anything, count, flag, globs, inner, "
         "name, names and tools"),
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
        ("name: x\ncount: many", '2: count: must be a whole number, not "many"'),
        ("name: x\ncount: yes", "2: count: must be a whole number, not true"),
        ("name: x\ninner: []", "2: inner: must be a mapping, not a list"),
        ("name: x\ninner:\n  to: kep", "3: inner.to: must be drop or keep, not \"kep\" (did you mean 'keep'?)"),
        ("name: x\ninner:\n  txet: a", "3: inner.txet: unknown key; known here are text and to (did you mean 'text'?)"),
        ("- name", "1: must be a mapping, not a list"),
        ("name: " + "x" * 100 + "\ntools: " + "y" * 100, f'2: tools: must be native or prompt, not "{"y" * 59}…'),
    ],
)  # fmt: skip
def test_a_problem_says_where_what_and_what_to_do(tmp_path: Path, text: str, expected: str) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(text)
    [document], _ = read(file)
    assert [str(problem) for problem in problems(document, Model)] == [f"{file}:{expected}"]


def test_all_problems_are_found_at_once(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("tools: x\nflag: 3\ninner: {to: 1, text: 2}\nmore: 1\nother: 2\n")
    [document], _ = read(file)
    assert sorted(problem.key for problem in problems(document, Model)) == [
        *("flag", "inner.text", "inner.to", "more", "name", "other", "tools")
    ]


def test_a_valid_document_has_no_problems(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("name: x\nnames: [a]\nglobs: {a: b, c: [d]}\nflag: null\ninner: {to: drop}\nanything: [1]\n")
    [document], _ = read(file)
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
    assert nearest(word, ["dialect", "match"]) == hint


def test_words_in_a_list() -> None:
    assert listed(["a"]) == "a"
    assert listed(["a", "b"]) == "a or b"
    assert listed(["a", "b", "c"], "and") == "a, b and c"
