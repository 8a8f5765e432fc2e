"""No input blocks other exchanges: the work is linear in its size, and is limited."""

from __future__ import annotations

import json
from functools import partial

import pytest

from benchmarks.hostile import PROMPTS, REPLIES, list_work, open_session
from tests.apis import chat
from tests.attacks.clients import find_chat_calls
from tests.attacks.lab import native, open_under, stream_reply, whole
from tests.bounds import count_calls, time_limit
from tests.known import MAX_BUFFERED_CALLS, MAX_PROMPT_LENGTH
from vtc.apis.relay.choice import MAX_CHOICES
from vtc.dialects.bounded_cache import COMPILED_PATTERNS
from vtc.dialects.text_client import Documentation, find_documented_tools
from vtc.reporting import hints

MOST_STEPS = 1_200_000
"""Maximum number of function calls, in VTC and the interpreter, for one read of a stream or a request: some 0.2 s."""


__all__ = ["time_limit"]
pytestmark = [pytest.mark.every, pytest.mark.usefixtures("time_limit"), pytest.mark.rest]


@pytest.mark.parametrize("what", PROMPTS)
def test_reading_tools_out_of_a_prompt_is_linear(what: str) -> None:
    """This includes the longest prompt; slow parts were inside of expressions, in which no step is counted."""
    few = count_calls(partial(find_documented_tools, PROMPTS[what](5_000)))
    longest, found = PROMPTS[what](MAX_PROMPT_LENGTH)[:MAX_PROMPT_LENGTH], list[Documentation]()
    taken = count_calls(lambda: found.append(find_documented_tools(longest)))
    assert taken < min(MAX_PROMPT_LENGTH // 4_000 * few + 1_000, MOST_STEPS)
    assert found[0].rest is not None


@pytest.mark.parametrize(("length", "why"), [(2, "too long"), (0.5, "too many tools")])
def test_too_long_prompt_is_unchanged_and_reported(length: float, why: str) -> None:
    prompt = PROMPTS["tools"](int(length * MAX_PROMPT_LENGTH))
    assert find_documented_tools(prompt).tools == ()
    messages = [{"role": "system", "content": prompt}, {"role": "user", "content": "x"}]
    one = open_under(None, text=True, messages=messages)
    assert why in "; ".join(one.plan.why)
    assert json.loads(one.encode_request())["messages"] == messages


@pytest.mark.parametrize("count", [1, 256, 5_000])
def test_reading_calls_of_many_tools_is_not_long(count: int) -> None:
    """Names are in no expression, because one with thousands of them would take seconds to compile."""
    COMPILED_PATTERNS.clear()
    tools = [chat.tool(f"of_{count}_{number}") for number in range(count)]
    calls = [chat.DIALECTS[dialect](f"of_{count}_0", {}) for dialect in ("hermes", "tag")]
    one = open_under(None, tools=tools)
    stream, out = one.stream(), list[bytes]()
    for piece in chat.make_stream(*calls):
        taken = count_calls(lambda piece=piece: out.extend(stream.feed(piece)))
        assert taken < MOST_STEPS
    assert len(chat.read(b"".join([*out, *stream.finish()])).calls) == 2


def test_a_text_client_whose_prompt_was_not_read_is_held_to_policies() -> None:
    messages = [{"role": "system", "content": "x" * (2 * MAX_PROMPT_LENGTH)}, {"role": "user", "content": "x"}]
    text = "<execute_command><command>rm</command></execute_command>"
    for guards in ({"denied_tools": ["execute_command"]}, {"allowed_tools": ["read_file"]}):
        body = stream_reply(open_under(guards, text=True, messages=messages), chat.make_stream(*text))
        assert b"< " in body
        assert chat.read(body).content == f"< {text[1:]}"


@pytest.mark.parametrize("what", REPLIES)
def test_the_work_of_a_stream_is_linear_and_none_of_it_long(what: str) -> None:
    open_session()
    few, many, most = ([*map(count_calls, list_work(REPLIES[what](count)))] for count in (25, 200, 1_500))
    assert sum(many) < 12 * sum(few) + 5_000
    assert max(*many, *most) < MOST_STEPS


@pytest.mark.parametrize("form", ["streamed", "whole"])
def test_thousands_of_calls_are_too_many(form: str) -> None:
    """Calls that lack their end are processed at the end of the message; too many are withheld under a policy."""
    calls = [("read", '{"filePath": "a"')] * MAX_BUFFERED_CALLS
    deny = {"denied_tools": ["bash"]}

    def reply(*more: tuple[str, str]) -> set[str]:
        if form == "whole":
            return find_chat_calls(open_under(deny, stream=False).whole.rewrite(whole(*calls, *more)))
        return find_chat_calls(stream_reply(open_under(deny), native(*calls, *more)))

    assert reply() == {"read"}
    assert reply(("bash", "{}")) == set()


def test_choices_are_distinguished_up_to_a_number() -> None:
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
    frames = [chat.chunk({"tool_calls": [call]}, index=index) for index in range(MAX_CHOICES + 10)]
    exchange = open_under({"denied_tools": ["bash"]}, n=MAX_CHOICES)
    assert find_chat_calls(stream_reply(exchange, frames)) == set()
    free = open_under(None, n=MAX_CHOICES)
    assert stream_reply(free, frames).endswith(frames[-1])
    assert len(free.report.failures) == 1


def test_report_of_thousands_of_calls_is_short() -> None:
    exchange = open_under({"arguments": {"misfit": "drop"}})
    text = "".join(f'<tool_call>{{"name": "bash", "arguments": [{i}]}}</tool_call>\n' for i in range(3_000))
    stream_reply(exchange, chat.make_stream(*(text[at : at + 500] for at in range(0, len(text), 500))))
    assert len(exchange.report.summarize()) < 3_000
    assert len(json.dumps(exchange.report.as_dict())) < 60_000


@pytest.mark.parametrize("begun", ["read_file", "```\nread_file <", "Tool: read_file\n```\n{"])
def test_a_hint_at_a_call_takes_no_time_that_grows_with_the_square(begun: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scanned text is bounded, but sixteen times that text would take minutes if the time were quadratic."""
    monkeypatch.setattr(hints, "MAX_MESSAGE_CHARS", 1 << 18)
    for unit in (" ", "\n", " \n", "`", "` ", "|", "tool ", "> "):
        text = begun + unit * ((1 << 18) // len(unit) - len(begun)) + "\n```"
        hints.find_possible_call(text, ["read_file"])
        found = hints.find_possible_call(f"{text[: 1 << 17]}\nread_file(path='a.py')", ["read_file"])
        assert (found is not None and "read_file" in str(found)) or "`" in begun + unit
