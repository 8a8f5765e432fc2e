"""`deliver: incremental`: text tool calls are sent as they are written, and add up to the complete ones."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.apis import chat, gemini, messages, ollama, responses
from tests.apis.shapes import SHAPES
from tests.dialects.material import DIALECTS
from tests.exchanges import FILE, REPLY_PIECES, declare_tools
from vtc.apis import APIS
from vtc.dialects.writing import write_calls
from vtc.events import Tool, ToolCall
from vtc.exchange import Session
from vtc.profiles import Facts, Planner, Settings, builtin_directory, load_profiles

EXAMPLES = settings().max_examples
TOOLS = {name: Tool(name, "", FILE) for name in ("write", "read")}
READERS: dict[str, Any] = {
    "gemini-generate": gemini.read,
    "openai-chat": chat.read,
    "anthropic-messages": messages.read,
    "openai-responses": responses.read,
    "ollama-chat": ollama.read,
}
APIS_OF_PIECES = [api.name for api in APIS if api.in_pieces]
STREAMING = (
    *("deepseek-v3.1", "deepseek-v3.2", "glm-4.5", "glm-4.7", "harmony", "hermes", "invoke", "kimi-k2"),
    *("minimax-m2", "mimo", "name-parameters", "openhands", "qwen3-coder", "seed-oss", "tools-tag"),
)
"""Dialects in which clients show files during a call."""
each = pytest.mark.parametrize("api", APIS_OF_PIECES)


class Planners(dict[str, Planner]):
    def __repr__(self) -> str:  # shown for a failing example
        return "planners"


@pytest.fixture(scope="module")
def planners(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Planner]:
    """Planners by dialect whose models write only that; `auto` for unknown models."""
    directory = tmp_path_factory.mktemp("profiles")
    client = {"kind": "client", "name": "draws", "match": {"user_agent": "Draws/*"}, "deliver": "incremental"}
    (directory / "client.yaml").write_text(json.dumps(client), "utf-8")
    for dialect in DIALECTS:
        model = {"kind": "model", "name": f"only {dialect}", "match": {}, "dialect": dialect, "accept": [dialect]}
        (directory / f"{dialect}.yaml").write_text(json.dumps(model), "utf-8")
    profiles = load_profiles([builtin_directory(), directory])
    named = {dialect: Planner(profiles, Settings(model=f"only {dialect}")) for dialect in DIALECTS}
    return Planners({**named, "auto": Planner(profiles, Settings())})


@cache
def make_request(api: str, **fields: Any) -> bytes:
    return chat.encode_json(
        SHAPES[api].request(stream=True, tools=declare_tools(api, dict.fromkeys(TOOLS, FILE)), **fields)
    )


def exchange(planner: Planner, api: str, agent: str = "Draws/1", **fields: Any) -> Session:
    (found,) = [one for one in APIS if one.name == api]
    facts = Facts(
        user_agent=agent, host="127.0.0.1", path=SHAPES[api].build_path(stream=True, model=fields.get("model"))
    )
    return Session.open(found, make_request(api, **fields), facts, planner, "seed")


ENDS = {
    "openai-chat": {"finish": "length"},
    "anthropic-messages": {"stop_reason": "max_tokens"},
    "openai-responses": {"status": "incomplete"},
    "ollama-chat": {"done_reason": "length"},
    "gemini-generate": {"reason": "MAX_TOKENS"},
}
"""Finish reasons of truncated streams."""


def through(one: Session, api: str, pieces: Iterable[str], *, cut: bool = False) -> list[bytes]:
    """Return the bytes sent for each frame of a reply, and at its end."""
    stream = one.stream()
    frames = SHAPES[api].streamed(*pieces, **(ENDS[api] if cut else {}))
    outputs = [*(b"".join(stream.feed(frame)) for frame in frames), b"".join(stream.finish())]
    assert not one.report.failures, one.report.failures
    return outputs


def so_far(one: Session, api: str, pieces: Sequence[str]) -> bytes:
    """Return the bytes sent for the first pieces of a reply that continues."""
    stream, out = one.stream(), []
    for frame in SHAPES[api].streamed(*pieces, "the next"):
        if b"the next" in frame:
            break
        out += stream.feed(frame)
    return b"".join(out)


def split_text(text: str, sizes: Sequence[int]) -> list[str]:
    pieces, at = [], 0
    while at < len(text):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(text[at : at + size])
        at += size
    return pieces


WORDS = st.sampled_from(
    [
        "x",
        " ",
        "\n",
        "\r\n",
        "  ",
        '"',
        "\\",
        "\\n",
        "</",
        "<",
        ">",
        "<b>",
        "</div>",
        "{",
        "}",
        "]",
        "é\ud83d",
        "/p",
        "C:\\new",
    ]
)
VALUES = st.lists(WORDS, max_size=12).map("".join)
OWN = ["</parameter>", "<parameter=content>", "</tool_call>", "</invoke>", "</arg_value>", "```\n", "<tool_call>"]
ARGUMENTS = st.fixed_dictionaries(
    {"filePath": VALUES},
    optional={
        "content": st.one_of(VALUES, st.lists(st.one_of(WORDS, st.sampled_from(OWN)), max_size=12).map("".join)),
        "limit": st.integers(),
        "tags": st.lists(VALUES, max_size=3),
    },
)


@pytest.mark.parametrize("dialect", DIALECTS)
@settings(max_examples=max(1, EXAMPLES // 8))
@given(
    api=st.sampled_from(list(SHAPES)),
    arguments=st.lists(ARGUMENTS, min_size=1, max_size=2),
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=5),
    before=st.sampled_from(["", "Look.\n\n", "A `word` and "]),
    after=st.sampled_from(["", "\n", "\nDone."]),
)
def test_pieces_of_a_call_add_up_to_the_complete_call(
    dialect: str,
    api: str,
    arguments: list[dict[str, Any]],
    sizes: list[int],
    before: str,
    after: str,
    planners: dict[str, Planner],
) -> None:
    calls = [ToolCall("write", json.dumps(one), f"call0000{place}") for place, one in enumerate(arguments)]
    text = before + write_calls(calls, DIALECTS[dialect], TOOLS) + after
    pieces = split_text(text.encode("utf-8", "replace").decode(), sizes)
    drawn, other = exchange(planners[dialect], api), exchange(planners[dialect], api, "Other/1")
    read = READERS[api]
    reply = read(b"".join(through(drawn, api, pieces)))
    assert reply == read(b"".join(through(other, api, pieces)))
    assert [one["name"] for one in drawn.report.calls] == [one["name"] for one in other.report.calls]
    ids = [id_ for id_ in getattr(reply, "ids", []) if id_]
    assert len({*ids}) == len(ids)


def join_arguments(out: bytes) -> str:
    """Return the arguments that a client received so far, of any call."""
    pieces = []
    for line in out.decode().splitlines():
        if line.startswith("data: {"):
            event = json.loads(line[6:])
            for choice in event.get("choices", ()):
                pieces += [one["function"].get("arguments", "") for one in choice["delta"].get("tool_calls", ())]
            if event.get("type") == "content_block_delta":
                pieces.append(event["delta"].get("partial_json", ""))
            if event.get("type") == "response.function_call_arguments.delta":
                pieces.append(event["delta"])
    return "".join(pieces)


@each
@pytest.mark.parametrize("dialect", STREAMING)
def test_lines_of_a_file_are_sent_as_they_are_written(dialect: str, api: str, planners: dict[str, Planner]) -> None:
    lines = [f"line_{number} = {number} < 1  # mark{number}\n" for number in range(20)]
    call = ToolCall("write", json.dumps({"filePath": "a.py", "content": "".join(lines)}), "call00001")
    pieces = split_text("Look.\n\n" + write_calls([call], DIALECTS[dialect], TOOLS), [4])
    outputs = through(exchange(planners[dialect], api), api, pieces)
    for number in range(19):
        received = next(at for at in range(len(pieces)) if f"mark{number}" in "".join(pieces[: at + 1]))
        assert f"line_{number} =" in join_arguments(b"".join(outputs[: received + 4])), number


@each
def test_name_is_sent_before_the_arguments(api: str, planners: dict[str, Planner]) -> None:
    pieces = ["Look.\n\n", "<tool_call>\n<function=write>\n", "<parameter=limit>\n", "1", "2\n"]
    progress = so_far(exchange(planners["qwen3-coder"], api), api, pieces)
    assert b'"write"' in progress
    assert join_arguments(progress) == '{"limit":'  # more digits can follow


@each
@pytest.mark.parametrize("dialect", STREAMING)
def test_truncated_call_is_not_changed_after_it_was_sent(dialect: str, api: str, planners: dict[str, Planner]) -> None:
    call = ToolCall("write", json.dumps({"filePath": "a.py", "content": "one two three four"}), "call00001")
    text = write_calls([call], DIALECTS[dialect], TOOLS)
    cut = text[: text.index("three") + 2]
    one = exchange(planners[dialect], api)
    out = b"".join(through(one, api, ["Look.\n\n", *split_text(cut, [5])], cut=True))
    assert join_arguments(out).endswith(("one two", "one two ", "one two t", "one two th"))
    assert not one.report.calls
    (refusal,) = one.report.refusals
    assert "a part of it was already sent" in refusal["reason"]
    assert any(word in out for word in (b'"length"', b'"max_tokens"', b'"incomplete"', b'"max_output_tokens"'))


@each
@settings(max_examples=max(1, EXAMPLES // 2))
@given(texts=REPLY_PIECES, size=st.integers(1, 40), cut=st.booleans())
def test_any_reply_is_read_as_without_pieces_but_for_calls_that_break(
    api: str, texts: list[str], size: int, cut: bool, planners: dict[str, Planner]
) -> None:
    pieces = split_text("".join(texts), [size])
    drawn, other = exchange(planners["auto"], api), exchange(planners["auto"], api, "Other/1")
    out = b"".join(through(drawn, api, pieces, cut=cut))
    whole = b"".join(through(other, api, pieces, cut=cut))
    if not any("already sent" in one["reason"] for one in drawn.report.refusals):
        assert out == whole or READERS[api](out) == READERS[api](whole)
        assert drawn.report.calls == other.report.calls


TEXT = "<tool_call>\n<function=write>\n<parameter=filePath>\na.py\n</parameter>\n<parameter=content>\none two\n"
REST = "</parameter>\n</function>\n</tool_call>\n"


@each
@pytest.mark.parametrize("before", ["Write it: ", "```\n", "    ", "> ", "`"])
def test_a_call_that_may_be_quoted_waits(api: str, before: str, planners: dict[str, Planner]) -> None:
    text = '<tool_call>{"name": "write", "arguments": {"filePath": "a.py", "content": "one two three '
    progress = so_far(exchange(planners["hermes"], api), api, ["So:\n\n" + before, *split_text(text, [9])])
    assert not join_arguments(progress)
    if before == "Write it: ":
        return
    begun = so_far(exchange(planners["hermes"], api), api, ["So:\n\n", *split_text(text, [9])])
    assert join_arguments(begun) == '{"filePath":"a.py","content":"one two three'


@each
def test_interruption_of_a_begun_call_is_text(api: str, planners: dict[str, Planner]) -> None:
    one = exchange(planners["qwen3-coder"], api)
    out = b"".join(through(one, api, [*split_text(TEXT, [9]), "</parameter>\n<parameter==x>\nx\n", "and more"]))
    assert join_arguments(out).endswith("one two")
    assert b"and more" in out
    assert "a part of it was already sent" in one.report.refusals[0]["reason"]


@each
def test_call_beyond_the_limit_is_not_sent(api: str, planners: dict[str, Planner]) -> None:
    fields: dict[str, Any] = {"parallel_tool_calls": False}
    if api == "anthropic-messages":
        fields = {"tool_choice": _Frozen({"type": "auto", "disable_parallel_tool_use": True})}
    drawn, other = (exchange(planners["qwen3-coder"], api, agent, **fields) for agent in ("Draws/1", "Other/1"))
    pieces = split_text(TEXT + REST + TEXT.replace("a.py", "b.py") + REST, [9])
    output = b"".join(through(drawn, api, pieces))
    assert READERS[api](output) == READERS[api](b"".join(through(other, api, pieces)))
    assert [one["name"] for one in drawn.report.calls] == ["write"]
    assert b"b.py" not in output


class _Frozen(dict[str, Any]):
    """A field of a request that serves as a cache key."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(json.dumps(self))


@pytest.mark.parametrize("api", SHAPES)
def test_calls_are_complete_if_they_are_not_sent_in_pieces(
    api: str, planners: dict[str, Planner], tmp_path: Path
) -> None:
    policy = {"kind": "policy", "name": "mine", "match": {}, "guards": {"denied_tools": ["bash"]}}
    (tmp_path / "policy.yaml").write_text(json.dumps(policy), "utf-8")
    client = {"kind": "client", "name": "draws", "match": {"user_agent": "Draws/*"}, "deliver": "incremental"}
    (tmp_path / "client.yaml").write_text(json.dumps(client), "utf-8")
    checked = exchange(Planner(load_profiles([builtin_directory(), tmp_path]), Settings()), api)
    outputs = through(checked, api, split_text(TEXT + REST, [9]))
    places = [place for place, out in enumerate(outputs) if b"a.py" in out or b"one two" in out]
    assert len(places) == 1 or api == "openai-responses"
    whole = exchange(planners["auto"], api)
    assert b"a.py" in whole.whole.rewrite(chat.encode_json(SHAPES[api].whole(TEXT + REST)))
    assert [one["name"] for one in whole.report.calls] == ["write"]


def test_upstreams_own_calls_after_one_in_text_have_other_numbers(planners: dict[str, Planner]) -> None:
    one = exchange(planners["qwen3-coder"], "openai-chat")
    own = chat.chunk({"tool_calls": [chat.native(0, id="c0", name="read", arguments='{"filePath": "b"}')]})
    frames = [
        chat.ROLE,
        *chat.make_text_chunks(*split_text(TEXT + REST, [9])),
        own,
        chat.chunk({}, "tool_calls"),
        chat.DONE,
    ]
    stream = one.stream()
    out = b"".join(part for frame in frames for part in stream.feed(frame)) + b"".join(stream.finish())
    reply = chat.read(out)
    assert reply.calls == [("write", {"filePath": "a.py", "content": "one two"}), ("read", {"filePath": "b"})]
    assert len({*reply.ids}) == 2


def test_native_call_inside_a_text_call_breaks_it(planners: dict[str, Planner]) -> None:
    one = exchange(planners["qwen3-coder"], "openai-chat")
    own = chat.chunk({"tool_calls": [chat.native(0, id="c0", name="read", arguments='{"filePath": "b"}')]})
    frames = [chat.ROLE, *chat.make_text_chunks(*split_text(TEXT, [9])), own, chat.chunk({}, "tool_calls"), chat.DONE]
    stream = one.stream()
    out = b"".join(part for frame in frames for part in stream.feed(frame)) + b"".join(stream.finish())
    assert join_arguments(out).startswith('{"filePath":"a.py","content":"one two')
    assert join_arguments(out).endswith('{"filePath": "b"}')
    assert "a part of it was already sent" in one.report.refusals[0]["reason"]
    assert not one.report.failures
