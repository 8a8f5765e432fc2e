"""Errors crafted to hurt: odd numbers, thousands of names, words of all tables at once."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
import yaml
from hypothesis import given as over
from hypothesis import strategies as st

from tests.apis.shapes import SHAPES, make_request_body
from tests.exchanges import agent, planner
from vtc.apis import APIS
from vtc.exchange import Session
from vtc.exchange.asking.window import read_counts
from vtc.profiles import Memory

type Json = dict[str, Any]

BY_NAME = {api.name: api for api in APIS}
TABLES = Path(__file__).parents[3] / "vtc/exchange/asking"
LONGEST = 9223372036854775807


def open_api_session(api: str, memory: Memory | None = None, **fields: Any) -> Session:
    exchange = Session.open(BY_NAME[api], make_request_body(api, **fields), agent(api), planner(), "seed", memory)
    exchange.encode_request()
    return exchange


def error_of(words: str) -> bytes:
    return json.dumps({"error": {"message": words}}).encode()


@pytest.mark.parametrize(
    ("words", "fields", "sent"),
    [
        ("temperature at most 01", {"temperature": 1.5}, {"temperature": 1}),
        ("temperature at most 0.5", {"temperature": 1.5}, {"temperature": 0.5}),
        (f"seed at least {LONGEST}", {"seed": 1}, {"seed": LONGEST}),
        ("stop at most 1", {"stop": ["a", "b"]}, {"stop": ["a"]}),
        *(
            (words, fields, None)
            for words, fields in (
                ("temperature at most ٣", {"temperature": 4.5}),
                (f"temperature at most 0.{'5' * 20}", {"temperature": 1.5}),
                (f"temperature at least {'9' * 400}.5", {"temperature": 1.5}),
                (f"stop at most {'9' * 400}.5", {"stop": ["a", "b"]}),
                ("stop at most 1.5", {"stop": ["a", "b"]}),
                (f"seed at least {LONGEST + 1}", {"seed": 1}),
                (f"seed at least {'9' * 300}", {"seed": 1}),
                (f"max_tokens at most {'9' * 5000}", {"max_tokens": 5}),
                (f"prompt is too long: n_prompt_tokens: {'9' * 5000}", {"max_tokens": 5}),
                ("max_tokens: 5 > ٣", {"max_tokens": 5}),
            )
        ),
    ],
)
def test_a_number_of_an_error_has_19_ascii_digits_and_64_bits(words: str, fields: Json, sent: Json | None) -> None:
    exchange = open_api_session("openai-chat", **fields)
    again = exchange.encode_after_rejection(error_of(words), 400)
    assert (again and {name: json.loads(again)[name] for name in fields}) == sent
    exchange.whole.translate_error(error_of(words), 400)


def calls_made(work: Callable[[], object], code: CodeType | None = None) -> int:
    """Count the calls of one function, or of all functions of VTC and Python."""
    count = 0

    def tally(frame: FrameType, event: str, _arg: object) -> None:
        nonlocal count
        count += event == "call" and (code is None or frame.f_code is code)

    before = sys.getprofile()
    sys.setprofile(tally)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def names(count: int) -> bytes:
    return error_of(f"unexpected value(s) {', '.join(f"'z{n}.name'" for n in range(count))} for the")


def test_the_work_for_an_error_does_not_grow_with_the_names_in_it() -> None:
    """The paths of the body are listed once, and each name is looked up once."""

    def work(error: bytes, messages: int) -> int:
        exchange = open_api_session("openai-chat", messages=[{"role": "user", "name": "a", "content": "x"}] * messages)
        return calls_made(lambda: exchange.encode_after_rejection(error, 400))

    work(names(1), 1)  # compiles the tables
    assert work(names(250), 500) < 1.5 * work(names(1), 500) < 25 * 500
    assert work(names(250), 2000) < 5 * work(names(250), 500)


@pytest.mark.parametrize("words", ["max_tokens ", "completion tokens, ", "max_tokens 12 "])
def test_the_numbers_of_an_error_are_read_once_however_often_it_names_the_limit(words: str) -> None:
    """Each reading searches the whole text."""

    def readings(times: int) -> int:
        exchange = open_api_session("openai-chat")
        return calls_made(lambda: exchange.encode_after_rejection(error_of(words * times), 400), read_counts.__code__)

    assert readings(100) == readings(2) > 0


def test_a_name_of_many_parts_is_followed_once() -> None:
    """A body that nests a name, and an error that repeats it, have exponentially many matches."""
    nested: Any = {"x": 1}
    for _ in range(20):
        nested = {"a": [nested]}
    exchange = open_api_session("openai-chat", metadata=nested)
    assert (
        calls_made(
            lambda: exchange.encode_after_rejection(error_of(f"x is not supported; {'a.' * 30}x is unknown"), 400)
        )
        < 20_000
    )


NUMBERS = ["1", "01", "-1", "0.5", "٣", "9" * 19, "9" * 20, "9" * 5000, f"{'9' * 400}.5", "1e999", "NaN", "1,000,000"]


def expressions() -> list[str]:
    """List the expressions of all rules, with their placeholders."""
    found: list[str] = []

    def gather(value: Any) -> None:
        if isinstance(value, dict):
            for key, part in value.items():
                if key not in ("steps", "paths", "headers", "where", "to", "do", "source", "api", "requires", "beside"):
                    gather(part)
        elif isinstance(value, list):
            for part in value:
                gather(part)
        elif isinstance(value, str):
            found.append(value)

    for file in sorted((TABLES / "rules").iterdir()):
        gather(yaml.safe_load(file.read_text("utf-8")))
    return found


NAMES = [
    "temperature",
    "'max_tokens'",
    "`stop`",
    "messages.0.content",
    "tools[0].x",
    "*.*",
    "thinKing level",
    "max tokenſ",
]


@st.composite
def sayings(draw: st.DrawFn) -> str:
    """Generate texts that match an expression, with odd names and numbers in its placeholders."""
    words = draw(st.sampled_from(EXPRESSIONS))
    holes = {f"{{{name}}}": draw(st.sampled_from(NAMES)) for name in ("name", "at", "second")}
    holes |= {f"{{{name}}}": draw(st.sampled_from(NUMBERS)) for name in ("least", "most", "window", "prompt", "limit")}
    holes |= {"{names}": "'a', 'b'", "{use}": "'system'", "{words}": "low, high"}
    marks = {hole: chr(0xE000 + number) for number, hole in enumerate(holes)}
    for hole, mark in marks.items():
        words = words.replace(hole, mark)
    text = draw(st.from_regex(words, fullmatch=True))
    for hole, mark in marks.items():
        text = text.replace(mark, holes[hole])
    return text


EXPRESSIONS = expressions()
SHAPED: list[Callable[[str], Any]] = [
    lambda text: text,
    lambda text: {"error": text},
    lambda text: {"error": {"message": text, "param": text, "code": 400}},
    lambda text: {"detail": [{"loc": ["body", text, 0], "msg": text}]},
    lambda text: {"error": {"message": "Provider returned error", "metadata": {"raw": json.dumps({"message": text})}}},
]


@pytest.mark.parametrize("name", SHAPES)
@over(
    words=st.lists(st.one_of(sayings(), st.text(max_size=20)), min_size=1, max_size=3).map(" ".join),
    shape=st.sampled_from(SHAPED),
    status=st.sampled_from([200, 400, 404, 413, 422, 500]),
    raw=st.booleans(),
)
def test_no_text_of_an_error_raises(name: str, words: str, shape: Callable[[str], Any], status: int, raw: bool) -> None:
    exchange = open_api_session(name, Memory(), **SHAPES[name].history)
    error = words.encode("utf-8", "replace") if raw else json.dumps(shape(words)).encode()
    for _ in range(3):
        if exchange.encode_after_rejection(error, status) is None:
            break
    exchange.whole.translate_error(error, status)
    exchange.whole.extract_from_error(error, status)
    exchange.confirm_quirks()
