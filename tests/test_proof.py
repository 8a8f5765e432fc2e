"""The proof of calls: it holds for values that are in the text, and fails for all others."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import vtc
from vtc.dialects import Repair
from vtc.events import Call, ToolCall
from vtc.proof import CallProver, Proof, prove

TAGGED = (
    "<tool_call>\n<function=write>\n<parameter=path>\n{path}\n</parameter>\n<parameter=text>\n{text}\n</parameter>\n"
)
IN_JSON = '<tool_call>\n{{"name": "write", "arguments": {{"path": {path}, "text": {text}}}}}\n</tool_call>'


def make_call(arguments: Any, *repairs: str, name: str = "write") -> Call:
    return Call("", ToolCall(name, json.dumps(arguments)), "", repairs)


def prove_one(text: str, arguments: Any, *repairs: str) -> Proof:
    return prove(text, [make_call(arguments, *repairs)])


def in_json(path: Any, text: Any, **options: Any) -> str:
    return IN_JSON.format(path=json.dumps(path, **options), text=json.dumps(text, **options))


@pytest.mark.parametrize(
    ("text", "value", "decoding"),
    [
        (TAGGED.format(path="a", text="x <b> & y"), "x <b> & y", "verbatim"),
        (in_json("a", 'say "hi"\n'), 'say "hi"\n', "json"),
        (in_json("a", "\u00e9 \U0001f600"), "é \U0001f600", "json"),
        (IN_JSON.format(path='"a"', text='"C:\\/x"'), "C:/x", "json"),
        (f"write(path='a', text='{chr(92)}x41{chr(92)}n')", "A\n", "python"),
        ("write(path='a', text='x' 'y')", "xy", "python-joined"),
        ("write(path='a', text=f'{{x}} y')", "{x} y", "f-string"),
        (TAGGED.format(path="a", text="a &lt; b"), "a < b", "xml"),
        (TAGGED.format(path="a", text="a\r\nb"), "a\nb", "line-ends"),
        (TAGGED.format(path="a", text="<![CDATA[a ]]]]><![CDATA[> b]]>"), "a ]]> b", "cdata"),
        (json.dumps({"name": "write", "arguments": json.dumps({"path": "a", "text": 'x "y"'})}), 'x "y"', "json-twice"),
        (in_json("a", 5), 5, "literal"),
        (in_json("a", -2.5e3), -2500, "literal"),
        (TAGGED.format(path="a", text="TRUE"), True, "literal"),
        (r"write(path='a', text='\U00100000')", "\U00100000", "python"),
        ("write(path='a', text=None)", None, "literal"),
        ("write(path='a', text=0x1F)", 31, "literal"),
    ],
)
def test_a_value_is_a_slice_in_some_decoding(text: str, value: Any, decoding: str) -> None:
    proof = prove_one(text, {"path": "a", "text": value})
    assert proof.holds, proof.faults
    assert [one.parameter for one in proof.slices] == ["path", "text"]
    assert proof.slices[1].decoding == decoding
    assert proof.slices[0].end <= proof.slices[1].start


TAGGED_TEXT = TAGGED.format(path="src/a.py", text="one two <b>three</b>")
JSON_TEXT = in_json("src/a.py", 'one "two" three')


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        (TAGGED_TEXT, {"path": "src/a.py", "text": "one two"}),
        (TAGGED_TEXT, {"path": "src/a.py", "text": "two <b>three</b>"}),
        (TAGGED_TEXT, {"path": "src/a.py", "text": "one two <b>three</b>."}),
        (TAGGED_TEXT, {"path": "src/b.py", "text": "one two <b>three</b>"}),
        (TAGGED_TEXT, {"path": "src", "text": "one two <b>three</b>"}),
        (TAGGED_TEXT, {"text": "one two <b>three</b>"}),
        (TAGGED_TEXT, {"path": "src/a.py"}),
        (TAGGED_TEXT, {"text": "one two <b>three</b>", "path": "src/a.py"}),
        (TAGGED_TEXT, {"path": "one two <b>three</b>", "text": "src/a.py"}),
        (TAGGED_TEXT, {"path": "src/a.py", "text": "src/a.py"}),
        (TAGGED_TEXT, {"path": "src/a.py", "text": ""}),
        (JSON_TEXT, {"path": "src/a.py", "text": "one"}),
        (JSON_TEXT, {"path": "src/a.py", "text": 'one "two"'}),
        (JSON_TEXT, {"path": "src/a.py", "text": 'one "two" three '}),
        (JSON_TEXT, {"path": "src/a.py", "text": "one two three"}),
        (JSON_TEXT, {"path": "src/a.py", "other": 'one "two" three'}),
        (in_json("a", 12), {"path": "a", "text": 1}),
        (in_json("a", -1), {"path": "a", "text": 1}),
        (in_json("a", 1.5), {"path": "a", "text": 1}),
        (in_json("a", True), {"path": "a", "text": False}),
        (in_json("a", True), {"path": "a", "text": 1}),
        (in_json("a", ["x", "y"]), {"path": "a", "text": ["x"]}),
        (in_json("a", ["x", "y"]), {"path": "a", "text": ["y", "x"]}),
    ],
)
def test_a_value_that_was_cut_altered_moved_or_lost_has_no_proof(text: str, arguments: Any) -> None:
    assert not prove_one(text, arguments).holds


WORDS = st.text("abcdef ", min_size=1).map(lambda text: f"x{text}x")
VALUES = WORDS | st.text(max_size=12) | st.integers() | st.booleans() | st.none()
ARGUMENTS = st.tuples(WORDS, VALUES | st.lists(VALUES, max_size=3)).map(lambda pair: {"path": pair[0], "text": pair[1]})


@given(ARGUMENTS, st.booleans())
def test_calls_that_were_rendered_have_a_proof(arguments: dict[str, Any], ascii_only: bool) -> None:
    text = in_json(**arguments, ensure_ascii=ascii_only)
    proof = prove_one(text, arguments)
    assert proof.holds, proof.faults


@given(ARGUMENTS, WORDS, st.data())
def test_calls_that_were_changed_have_none(arguments: dict[str, Any], value: str, data: st.DataObject) -> None:
    text = in_json(**{**arguments, "path": value})
    at = data.draw(st.integers(1, len(value) - 1))
    changed = data.draw(st.sampled_from([value[:at], value[at:], f"{value[:at]}y{value[at:]}", value.upper()]))
    assume(changed != value)
    assert not prove_one(text, {**arguments, "path": changed}).holds


@given(st.text(max_size=40), ARGUMENTS, st.sampled_from([*Repair]))
def test_any_text_and_call_have_some_proof(text: str, arguments: dict[str, Any], repair: Repair) -> None:
    proof = prove_one(text, arguments, str(repair))
    assert all(0 <= one.start <= one.end <= len(text) for one in proof.slices)


@pytest.mark.parametrize("arguments", ["", "[]", "{", '"x"', "[" * 100_000, "NaN", '{"a": NaN}'])
def test_arguments_that_are_no_object_have_no_proof(arguments: str) -> None:
    assert not prove("a", [Call("", ToolCall("f", arguments), "")]).holds


def test_repairs_explain_only_their_own_effects() -> None:
    cut = TAGGED.format(path="a", text="x") + "</func"
    assert prove_one(cut, {"path": "a", "text": "x"}, "corrupt-closer").repairs == ("corrupt-closer",)
    for repair in Repair:
        assert not prove_one(TAGGED_TEXT, {"path": "src/a.py", "text": "one"}, str(repair)).holds, repair
        assert not prove_one(JSON_TEXT, {"path": "src/a.py", "text": "two three"}, str(repair)).holds, repair
    commented = '{"name": "write", "arguments": {"path": "a", // the file\n"text": "x"}}'
    assert prove_one(commented, {"path": "a", "text": "x"}, "json-comment").holds
    assert not prove_one(commented, {"path": "a", "text": "x"}).holds


@pytest.mark.parametrize(
    ("text", "repairs"),
    [
        ('{"name": "write", "arguments": {"path": 130 "text": "x"}}', ["json-missing-comma"]),
        ('{"name": "write", "arguments": {"path"130, "text": "x"}}', ["json-missing-colon"]),
        ('{"name": "write", "arguments": {"path": 130, "text": "x}}', ["json-missing-quote"]),
        ('{"name": "write", "arguments": {"path": 130, // the next one\n"text": "x"}}', ["json-comment"]),
        ('~~~json\n{"name": "write", "arguments": {"path": 130, "text": "x"}}\n~~~', []),
    ],
)
def test_a_value_next_to_missing_punctuation_has_a_proof_if_it_was_repaired(text: str, repairs: list[str]) -> None:
    arguments = {"path": 130, "text": "x"}
    assert prove_one(text, arguments, *repairs).holds
    assert not repairs or not prove_one(text, arguments).holds


def test_numbers_without_a_comma_between_them_have_a_proof_if_it_was_repaired() -> None:
    for text in ("[0 0]", "[0\n0]", "[0, // the next one\n0]"):
        written = IN_JSON.format(path='"a"', text=text)
        assert prove_one(written, {"path": "a", "text": [0, 0]}, "json-missing-comma", "json-comment").holds
        assert not prove_one(written, {"path": "a", "text": [0]}, "json-missing-comma", "json-comment").holds


def test_a_value_with_markup_of_its_call_is_wide() -> None:
    text = "x</parameter>\n<parameter=other>\ny"
    proof = prove_one(TAGGED.format(path="a", text=text), {"path": "a", "text": text})
    assert (proof.holds, proof.wide) == (True, ("text",))
    assert prove_one(TAGGED.format(path="a", text="<b>"), {"path": "a", "text": "<b>"}).wide == ()


@pytest.mark.parametrize("value", ["true", "string", "name", "save"])
def test_a_value_that_is_also_an_attribute_has_a_proof(value: str) -> None:
    text = f'<invoke name="write"><parameter name="path" string="true">{value}</parameter></invoke>'
    assert prove_one(text, {"path": value}).holds
    assert not prove_one(text.replace(f">{value}<", f">{value} more<"), {"path": value}).holds


def test_calls_of_one_text_share_their_proof() -> None:
    tools = [{"name": "read", "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}}]
    objects = [json.dumps({"name": "read", "arguments": {"path": path}}) for path in "ab"]
    reply = vtc.parse(f"<tool_call>[{', '.join(objects)}]</tool_call>", tools, dialect="hermes")
    first, second = reply.proof()
    assert first is second
    assert first.holds
    assert [one.parameter for one in first.slices] == ["path", "path"]
    dropped = reply.calls[0].evidence
    assert not prove(dropped.text, dropped.calls[:1]).holds


def test_calls_in_the_reasoning_and_in_pieces_have_a_proof() -> None:
    tools = [{"name": "read", "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}}]
    text = '<think>Hm. <tool_call>{"name": "read", "arguments": {"path": "a"}}</tool_call></think>'
    reply = vtc.parse(text, tools, model="Qwen/Qwen3-8B")
    assert [call.raw for call in reply.calls] == [""]
    assert [proof.holds for proof in reply.proof()] == [True]


def write_hostile_texts(count: int) -> Iterator[tuple[str, Any]]:
    """Yield texts and arguments whose proof could take more than linear time."""
    yield in_json("a", ["a"] * count), {"path": "a", "text": ["a"] * count}
    yield in_json("a", [1] * count), {"path": "a", "text": [1] * count}
    yield in_json("a", [""] * count), {"path": "a", "text": [""] * count}
    yield in_json("a", "a " * count), {"path": "a", "text": "b"}
    yield in_json("a", "\\" * count), {"path": "a", "text": "\\" * count}
    yield in_json("a", "") + " x" * count, {"path": "a", "text": ""}
    yield 'id="' * count + in_json("a", ""), {"path": "a", "text": ""}
    yield in_json("a", {f"k{i}": i for i in range(count)}), {"path": "a", "text": {f"k{i}": i for i in range(count)}}
    yield IN_JSON.format(path='"a"', text='"a" ' * count), {"path": "a", "text": ["a"] * count}
    yield IN_JSON.format(path='"a"', text=" " * count + "5"), {"path": "a", "text": 5}


@pytest.mark.parametrize("number", range(10))
def test_the_time_is_linear(number: int) -> None:
    def measure(count: int) -> float:
        text, arguments = [*write_hostile_texts(count)][number]
        call = make_call(arguments)
        begun = time.process_time()
        CallProver().prove(Call(text, call.call, ""))
        return time.process_time() - begun

    short, long = measure(1_000), measure(8_000)
    assert long < 24 * short + 0.05
