"""`deliver: incremental` for clients that parse calls from text: the text of a call is sent as it is written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.apis import chat
from tests.attacks import clients
from vtc.apis.openai_chat import API as CHAT
from vtc.exchange import Session
from vtc.profiles import Facts, Planner, Settings, builtin_directory, load_profiles

EXAMPLES = settings().max_examples
PROMPT = (Path(__file__).parents[2] / "cases" / "prompts" / "cline.md").read_text("utf-8")
MOST = {"draws": None, "draws one": 1, "waits": None, "waits one": 1}
WRITE = "<write_to_file>\n<path>a.py</path>\n<content>\n{}\n</content>\n</write_to_file>"
OTHER = "<list_files>\n<path>src</path>\n<recursive>false</recursive>\n</list_files>"


@pytest.fixture(scope="module")
def planner(tmp_path_factory: pytest.TempPathFactory) -> Planner:
    directory = tmp_path_factory.mktemp("profiles")
    for name, most in MOST.items():
        deliver = "incremental" if "draws" in name else "complete"
        profile = {
            "kind": "client",
            "name": name,
            "match": {"user_agent": f"{name}/*"},
            "tool_protocol": "text",
            "dialect": "cline",
            "deliver": deliver,
            "max_calls": most,
        }
        (directory / f"{name}.yaml").write_text(json.dumps(profile), "utf-8")
    return Planner(load_profiles([builtin_directory(), directory]), Settings())


def open_client(planner: Planner, client: str, model: str = "x") -> Session:
    facts = Facts(user_agent=f"{client}/1", host="127.0.0.1", path="/v1/chat/completions")
    body = {"model": model, "stream": True, "messages": [{"role": "system", "content": PROMPT}]}
    return Session.open(CHAT, chat.encode_json(body), facts, planner, "seed")


def list_texts(one: Session, pieces: Sequence[str], finish: str | None = "stop") -> list[str]:
    """Return the text sent for each piece of a reply, and at its end; without a finish reason the reply continues."""
    stream = one.stream()
    end = [chat.chunk({}, finish), chat.DONE] if finish else []
    out = [b"".join(stream.feed(frame)) for frame in [chat.ROLE, *chat.make_text_chunks(*pieces)]]
    if finish:
        out.append(b"".join([*(part for frame in end for part in stream.feed(frame)), *stream.finish()]))
    assert not one.report.failures, one.report.failures
    return [chat.read(part).content for part in out]


def split_text(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


PARTS = st.lists(
    st.sampled_from(
        [
            *("Look. ", "\n", "\n\n", " ", "  x", "if a < b:\n", "`", "```\n", "é", "> "),
            *("<write_to_file>\n", "<read_file>", "<path>", "a.py", "</path>\n", "<content>\n", "</content>\n"),
            *("</write_to_file>", "</read_file>", "<diff>", "</diff>", "<recursive>", "True", "</recursive>"),
            *("<start_line>", "12", "</start_line>", "<nope>x</nope>", "</wri", "<", "</", ">", "</path>", "<think>"),
            *(WRITE.format("x = '</p>'\n"), OTHER, WRITE.format("print()")),
            "<read_file>\n<path>b</path>\n</read_file>",
            *("<b>", "</b>", "</parameter>", "</tool_call>", '{"path": "x"}'),
        ]
    ),
    max_size=14,
)


@settings(max_examples=EXAMPLES)
@given(parts=PARTS, size=st.integers(1, 30), finish=st.sampled_from(["stop", "stop", "length"]), one=st.booleans())
def test_client_reads_the_same_as_with_complete_calls(
    planner: Planner, parts: list[str], size: int, finish: str, one: bool
) -> None:
    name = " one" * one
    pieces = split_text("".join(parts), size)
    drawn, other = open_client(planner, "draws" + name), open_client(planner, "waits" + name)
    out, whole = "".join(list_texts(drawn, pieces, finish)), "".join(list_texts(other, pieces, finish))
    broken = any("has left" in refusal["reason"] for refusal in drawn.report.refusals)
    unmended = any(done["action"] == "passed" for done in drawn.report.policies)
    if not broken and not unmended:
        assert out == whole or clients.cline(out) == clients.cline(whole)
        assert drawn.report.calls == other.report.calls


@pytest.mark.parametrize("model", ["x", "cline-model"])
def test_lines_of_a_file_are_sent_as_they_are_written(planner: Planner, model: str) -> None:
    lines = [f"line_{number} = {number}  # mark{number}\n" for number in range(20)]
    text = "Look.\n\n" + WRITE.format("".join(lines))
    pieces = split_text(text, 4)
    one = open_client(planner, "draws one", model)
    outputs = list_texts(one, pieces)
    assert "".join(outputs) == text
    for number in range(20):
        received = next(at for at in range(len(pieces)) if f"mark{number}" in "".join(pieces[: at + 1]))
        assert f"mark{number}" in "".join(outputs[: received + 3]), number
    assert [call["name"] for call in one.report.calls] == ["write_to_file"]


def test_value_is_buffered_from_possible_markup_to_its_end(planner: Planner) -> None:
    begun = "<write_to_file>\n<path>a.py</path>\n<content>\nif a "
    assert "".join(list_texts(open_client(planner, "draws"), [begun, "< b:\n", "  more"], None)) == begun
    ended = [begun, "< b:\n", "  more\n", "</content>\n<task_progress>", "- [x] on"]
    assert "".join(list_texts(open_client(planner, "draws"), ended, None)) == "".join(ended)


def test_a_call_of_another_dialect_waits_for_its_end(planner: Planner) -> None:
    call = "<tool_call>\n<function=write_to_file>\n<parameter=path>\na.py\n</parameter>\n<parameter=content>\nx = 1\n"
    one = open_client(planner, "draws")
    assert not "".join(list_texts(one, split_text(call, 5), None)).strip()
    out = "".join(
        list_texts(open_client(planner, "draws"), split_text(call + "</parameter>\n</function>\n</tool_call>", 5))
    )
    assert clients.cline(out) == [("write_to_file", {"path": "a.py", "content": "x = 1"})]


@pytest.mark.parametrize("second", [OTHER, OTHER[:-20]])
def test_a_call_that_breaks_counts_for_no_limit(planner: Planner, second: str) -> None:
    broken = "<list_files>\n<path>src</path>\n<path>lib</path>\n</list_files>\n\n"
    one = open_client(planner, "draws one")
    text = broken + WRITE.format("x") + "\n\n" + second
    finish = "stop" if second is OTHER else "length"
    out = "".join(list_texts(one, split_text(text, 7), finish))
    assert out.startswith(broken + WRITE.format("x"))
    assert out == "".join(list_texts(open_client(planner, "waits one"), split_text(text, 7), finish))
    assert [call["name"] for call in one.report.calls] == ["write_to_file"]


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("<write_to_file><path>a.py</path><content>x = 1\n</content>", {"path": "a.py", "content": "x = 1"}),
        ("<write_to_file>\n<path>a.py</path>\n<content>x = 1\n</content>\n</x>", {"path": "a.py", "content": "x = 1"}),
        ("<list_files>\n<path>src</path>\n<recursive>True</recursive>\n</list_files>", None),
        ("<write_to_file>\n<path>a.py</path>\n<content>\nx = 1 < 2\n</write_to_file>", None),
    ],
)
def test_repair_continues_sent_text(planner: Planner, written: str, says: dict[str, Any] | None) -> None:
    one, other = open_client(planner, "draws"), open_client(planner, "waits")
    out, whole = ("".join(list_texts(each, split_text(written, 6))) for each in (one, other))
    assert clients.cline(out) == clients.cline(whole)
    assert one.report.calls == other.report.calls
    if says:
        assert [call["name"] for call in one.report.calls] == ["write_to_file"]
        assert clients.cline(out) == [("write_to_file", says)]
