"""All kinds of malformed calls, in every API: the client's view, streamed in any cut and whole.

`tests/dialects/test_classes.py` tests them for every dialect in the reader alone; here each is tested from the bytes of
a reply to the result of the API's strictest client, with one dialect of each family. Native calls are in
`test_native_calls.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import pytest

from tests.apis import chat, gemini, messages, ollama, responses
from tests.apis.shapes import SHAPES
from tests.dialects.material import DIALECTS
from tests.exchanges import feed_stream, planner
from tests.known import AGREEING
from vtc.apis import APIS
from vtc.dialects.writing import write_calls
from vtc.events import Tool, ToolCall
from vtc.exchange import Session
from vtc.profiles import Facts, Memory
from vtc.reporting import list_sections

FAMILIES = {
    "qwen3-coder": "parameters between tags",
    "hermes": "JSON between tags",
    "glm-4.5": "keys and values between tags",
    "kimi-k2": "a section with markers",
    "lfm2": "Python calls",
    "gemma4": "a codec of its own",
}
TOOLS = {
    one["function"]["name"]: Tool(one["function"]["name"], "", one["function"]["parameters"]) for one in chat.TOOLS
}
READ, LIST = ("read", {"filePath": "/docs"}), ("list_files", {"path": "src"})
WAYS = ("streamed finely", "streamed at once", "whole")
CUT = {"anthropic-messages": "max_tokens", "openai-responses": "incomplete", "gemini-generate": "MAX_TOKENS"}
"""Finish reasons for a reply that was cut off; other APIs use `length`."""

every_api = pytest.mark.parametrize("api", SHAPES)
every_family = pytest.mark.parametrize("dialect", FAMILIES)


@dataclass(frozen=True, slots=True)
class ClientReply:
    """A reply as the client parsed it."""

    calls: list[tuple[str, Any]]
    content: str
    reasoning: str
    end: str | None


def open_api_session(
    api: str, memory: Memory | None = None, settings: dict[str, Any] | None = None, **fields: Any
) -> Session:
    (found,) = [one for one in APIS if one.name == api]
    path = SHAPES[api].build_path(stream=fields.get("stream"), model=fields.get("model"))
    facts = Facts(user_agent="Any/1", host="model.test", path=path)
    request = chat.encode_json(SHAPES[api].request(**fields))
    return Session.open(found, request, facts, planner(**settings or {}), "seed", memory)


def frames(api: str, pieces: Iterable[str], *, cut: bool) -> list[bytes]:
    """Return the frames of a streamed text reply."""
    match api:
        case "openai-chat":
            return chat.make_stream(*pieces, finish="length" if cut else "stop")
        case "anthropic-messages":
            return messages.make_text_stream(*pieces, stop_reason="max_tokens" if cut else "end_turn")
        case "openai-responses":
            return responses.make_text_stream(*pieces, status="incomplete" if cut else "completed")
        case "gemini-generate":
            return gemini.make_stream(*gemini.make_text_events(*pieces), reason="MAX_TOKENS" if cut else "STOP")
        case _:
            return ollama.make_text_stream(*pieces, done_reason="length" if cut else "stop")


def body(api: str, text: str, *, cut: bool) -> bytes:
    """Return the body of a whole text reply."""
    match api:
        case "openai-chat":
            return chat.encode_json(chat.completion(text, "length" if cut else "stop"))
        case "anthropic-messages":
            reason = "max_tokens" if cut else "end_turn"
            return chat.encode_json(messages.message(messages.text(text), stop_reason=reason))
        case "openai-responses":
            return chat.encode_json((responses.make_cut_reply if cut else responses.response)(responses.message(text)))
        case "gemini-generate":
            return chat.encode_json(gemini.reply(gemini.text(text), reason="MAX_TOKENS" if cut else "STOP"))
        case _:
            return chat.encode_json(ollama.message(text, done_reason="length" if cut else "stop"))


def read_client_reply(api: str, data: bytes, *, stream: bool) -> ClientReply:
    match api:
        case "openai-chat":
            one = chat.read(data)
            return ClientReply(one.calls, one.content, one.reasoning, one.finish_reason)
        case "anthropic-messages":
            two = messages.read(data)
            return ClientReply(two.calls, two.content, two.reasoning, two.stop_reason)
        case "openai-responses":
            three = responses.read(data)
            return ClientReply(three.calls, three.content, three.reasoning, three.status)
        case "gemini-generate":
            five = gemini.read(data)
            return ClientReply(five.calls, five.content, five.reasoning, five.reason)
        case _:
            four = ollama.read(data, stream=stream)
            return ClientReply(four.calls, four.content, four.reasoning, four.done_reason)


def read_text_reply(
    api: str, text: str, way: str, *, cut: bool = False, memory: Memory | None = None, **fields: Any
) -> ClientReply:
    """Return the client's view of a reply with this text, after checking that VTC reported no failure."""
    exchange = open_api_session(api, memory, stream=way != "whole", **fields)
    if way == "whole":
        out = exchange.whole.rewrite(body(api, text, cut=cut))
    else:
        size = 3 if way == "streamed finely" else len(text)
        sent = frames(api, (text[at : at + size] for at in range(0, len(text), size)), cut=cut)
        out = feed_stream(exchange.stream(), *(sent if size == 3 else [b"".join(sent)]))
    assert exchange.report.failures == []
    return read_client_reply(api, out, stream=way != "whole")


def read_every_way(api: str, text: str, *, cut: bool = False) -> ClientReply:
    """Return the client's view after checking that it is the same in every way."""
    first, *others = (read_text_reply(api, text, way, cut=cut) for way in WAYS)
    assert others == [first, first]
    called = {"openai-chat": "tool_calls", "anthropic-messages": "tool_use"}
    quiet = {"anthropic-messages": "end_turn", "openai-responses": "completed", "gemini-generate": "STOP"}
    ended = called.get(api) if first.calls and api in called else quiet.get(api, "stop")
    assert first.end == (CUT.get(api, "length") if cut else ended)
    return first


def write_samples(dialect: str, *made: tuple[str, dict[str, Any]]) -> str:
    return _write_raw(dialect, *((name, json.dumps(arguments)) for name, arguments in made)).strip()


@cache
def _write_raw(dialect: str, *made: tuple[str, str]) -> str:
    return write_calls([ToolCall(*call, f"call{at}") for at, call in enumerate(made)], DIALECTS[dialect], TOOLS)


# Calls that are delivered


@every_family
@every_api
def test_call_is_made_with_all_of_its_arguments(api: str, dialect: str) -> None:
    """They include a parameter that the tool does not declare, and a value that quotes a call."""
    quoted = ("write", {"filePath": "/a", "content": f"Write\n{write_samples(dialect, LIST)}\nin it.\n"})
    for made in (READ, ("read", {"filePath": "/a", "note": "why"}), quoted):
        reply = read_every_way(api, f"I look.\n\n{write_samples(dialect, made)}")
        assert (reply.calls, reply.content) == ([made], "I look.")


@every_family
@every_api
def test_truncated_call_after_another_is_dropped(api: str, dialect: str) -> None:
    both = write_samples(dialect, READ, LIST)
    for cut in (False, True):
        reply = read_every_way(api, both[: both.rindex("src") + 1], cut=cut)
        assert (reply.calls, reply.content) == ([READ], "")


@every_api
@pytest.mark.parametrize("dialect", ["qwen3-coder", "hermes", "glm-4.5"])
def test_closing_tags_that_close_nothing_are_not_shown(api: str, dialect: str) -> None:
    reply = read_every_way(api, f"I look.\n{write_samples(dialect, READ)}\n</tool_call>\n</tool_call>")
    assert (reply.calls, reply.content) == ([READ], "I look.")


@every_api
def test_arguments_under_another_key_are_made(api: str) -> None:
    for key in ("args", "input", "parameters"):
        text = write_samples("hermes", READ).replace('"arguments"', f'"{key}"')
        assert read_every_way(api, text).calls == [READ]


@every_family
@every_api
def test_call_of_an_unknown_tool_stays_text_and_is_reported(api: str, dialect: str) -> None:
    """The client answers that there is no such tool, and its agent continues."""
    unknown = ("rm", {"path": "/", "content": "  two\n\nlines "})
    reply = read_every_way(api, f"I look.\n\n{write_samples(dialect, unknown)}")
    assert (reply.calls, reply.content) == ([unknown], "I look.")
    exchange = open_api_session(api)
    exchange.whole.rewrite(body(api, write_samples(dialect, unknown), cut=False))
    assert [call["repairs"] for call in exchange.report.calls] == [["unknown-tool"]]


NO_TOOL: dict[str, tuple[str, dict[str, Any], dict[str, Any] | None]] = {
    "a name that no tool can have": ("container.exec", {}, None),
    "the request offers no tools": ("rm", {"tools": []}, None),
    "the option": ("rm", {}, {"unknown_tools": "text"}),
}


@every_api
@pytest.mark.parametrize("name", NO_TOOL)
def test_a_call_of_a_tool_that_is_not_offered_stays_text(name: str, api: str) -> None:
    tool, fields, settings = NO_TOOL[name]
    text = write_samples("hermes", (tool, {"path": "/"}))
    exchange = open_api_session(api, settings=settings, **fields)
    reply = read_client_reply(api, exchange.whole.rewrite(body(api, text, cut=False)), stream=False)
    assert (reply.calls, reply.content) == ([], text)


def test_declared_tool_excluded_by_the_choice_is_not_called_as_an_unknown_one() -> None:
    choice = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "read"}]}
    for name in ("write", "Write"):
        text = write_samples("hermes", (name, {"filePath": "/a", "content": "x"}))
        exchange = open_api_session("openai-responses", tool_choice=choice)
        reply = read_client_reply(
            "openai-responses", exchange.whole.rewrite(body("openai-responses", text, cut=False)), stream=False
        )
        assert (reply.calls, reply.content) == ([], text)
        (refusal,) = exchange.report.refusals
        assert refusal["reason"] == f"no tool {name!r} is offered; offered: read"


@every_family
@every_api
def test_missing_required_parameter_is_reported(api: str, dialect: str) -> None:
    text = write_samples(dialect, ("read", {"offset": 5}))
    exchange = open_api_session(api)
    reply = read_client_reply(api, exchange.whole.rewrite(body(api, text, cut=False)), stream=False)
    assert reply.calls == [("read", {"offset": 5})]
    assert [call.get("lacks") for call in exchange.report.calls] == [["filePath"]]
    assert "read lacks what its tool requires" in exchange.report.summarize()
    assert "  lacks: filePath, which the tool requires" in dict(list_sections(asdict(exchange.report)))["What VTC did"]


# Text that is no call

NO_CALLS = {
    "a call that the end cuts off": "{cut}",
    "a call amid a line": "It writes {lined} then.",
    "a call in indented code": "So:\n\n    {indented}\n\nDone.",
    "a call in a line of code": "So:\n\n    x = {indented}\n\nDone.",
    "a call in a quoted line": "> For example {quoted}\n\nDone.",
    "a call in a code block": "So:\n```\n{call}\n```\nDone.",
}


@every_family
@every_api
@pytest.mark.parametrize("text", NO_CALLS.values(), ids=NO_CALLS.keys())
def test_text_without_a_call_is_sent_unchanged(text: str, api: str, dialect: str) -> None:
    call = write_samples(dialect, READ)
    reply = read_every_way(
        api,
        text := text.format(
            call=call,
            lined=call.replace("\n", ""),
            cut=call[: call.rindex("docs") + 2],
            indented=call.replace("\n", "\n    "),
            quoted=call.replace("\n", "\n> "),
        ),
    )
    assert (reply.calls, reply.content) == ([], text)


@every_family
@every_api
def test_a_call_in_the_reasoning_of_an_unknown_model_stays_in_it(api: str, dialect: str) -> None:
    call = write_samples(dialect, READ)
    reply = read_every_way(api, f"<think>\nI might write\n{call}\n</think>\nDone.")
    assert (reply.calls, reply.content) == ([], "Done.")
    assert reply.reasoning in ("", f"\nI might write\n{call}\n")  # a Messages client must ask for it


OPENED = {
    "closed": ("<think>\nhm\n</think>\nHi.", [], "Hi."),
    "closed before a call": ("<think>\nhm\n</think>\n{call}", [READ], ""),
    "a call at its end": ("<think>\nhm\n{call}\n</think>", [READ], ""),
    "two blocks": ("<think>a</think>\n<think>b</think>Hi", [], "Hi"),
    "a quoted closing tag": ("<think>a `</think>` b</think>Hi", [], "Hi"),
    "only mentioned": ("<think> is a tag.", [], "<think> is a tag."),
    "after text": ("I say <think>a</think> b", [], "I say <think>a</think> b"),
    "never closed": ("<think>\nhm\n{call}\nso.", [], "<think>\nhm\n{call}\nso."),
    "never closed, a call at its end": ("<think>\nhm\n{call}", [READ], ""),
}


@every_api
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("text", "calls", "content"), OPENED.values(), ids=OPENED)
def test_opened_reasoning_of_an_unknown_model_is_reasoning_if_it_is_closed_or_ends_with_a_call(
    text: str, calls: list[tuple[str, dict[str, str]]], content: str, way: str, api: str
) -> None:
    call = write_samples("hermes", READ)
    reply = read_text_reply(api, text.format(call=call), way)
    assert (reply.calls, reply.content) == (calls, content.format(call=call))


@every_api
@pytest.mark.parametrize("way", WAYS)
def test_opened_reasoning_that_the_length_cuts_off_is_text(way: str, api: str) -> None:
    text = f"<think>\nhm\n{write_samples('hermes', READ)}"
    reply = read_text_reply(api, text, way, cut=True)
    assert (reply.calls, reply.content) == ([], text)


TWICE = {
    "qwen3-coder": ("<parameter=filePath>", "<parameter=filePath>\n/b\n</parameter>\n<parameter=filePath>"),
    "hermes": ('"filePath": ', '"filePath": "/b", "filePath": '),
    "glm-4.5": ("<arg_key>filePath", "<arg_key>filePath</arg_key>\n<arg_value>/b</arg_value>\n<arg_key>filePath"),
}


@pytest.mark.parametrize("dialect", TWICE)
@every_api
def test_a_parameter_that_is_given_twice_is_no_call(api: str, dialect: str) -> None:
    text = write_samples(dialect, READ)
    twice = text.replace(*TWICE[dialect])
    assert twice != text
    reply = read_every_way(api, twice)
    assert (reply.calls, reply.content) == ([], twice)


# Reasoning that began in the prompt

THOUGHTS = (
    f"I might write\n{write_samples('hermes', READ)}\nor so.\n</think>\n\nI look.\n\n{write_samples('hermes', LIST)}"
)
PARTS_THINKING = {"ollama-chat"}
"""APIs whose servers separate the reasoning themselves, so the text contains none."""


@pytest.mark.parametrize("api", [api for api in SHAPES if api not in PARTS_THINKING])
def test_an_example_in_the_reasoning_of_a_model_that_is_not_known_is_no_call(api: str) -> None:
    """A whole reply reveals that it began inside. A stream sends text as it arrives; after several replies VTC
    knows.
    """
    expected = THOUGHTS[: THOUGHTS.index("I look.") + len("I look.")]
    for first in WAYS:
        memory = Memory()
        for _ in range(AGREEING):
            reply = read_text_reply(api, THOUGHTS, first, memory=memory)
            assert reply.calls == ([LIST] if first == "whole" else [READ, LIST])
            assert reply.content.replace("\n", "").endswith("or so.</think>I look.")
        for way in WAYS:
            reply = read_text_reply(api, THOUGHTS, way, memory=memory)
            assert (reply.calls, reply.content) == ([LIST], expected)


@pytest.mark.parametrize("api", [api for api in SHAPES if api not in PARTS_THINKING])
@pytest.mark.parametrize("model", ["mine", "qwen3-8b"])
def test_call_at_the_end_of_reasoning_is_made_if_there_is_no_other_text(model: str, api: str) -> None:
    exchange = open_api_session(api, model=model)
    text = f"I look.\n{write_samples('hermes', READ)}\n</think>"
    reply = read_client_reply(api, exchange.whole.rewrite(body(api, text, cut=False)), stream=False)
    assert reply.calls == [READ]
    assert [call["repairs"] for call in exchange.report.calls] == [["call-in-reasoning"]]


@pytest.mark.parametrize("api", [api for api in SHAPES if api not in PARTS_THINKING])
def test_a_reply_that_does_not_begin_in_reasoning_after_one_that_did_loses_no_call(api: str) -> None:
    memory = Memory()
    for _ in range(AGREEING):
        read_text_reply(api, THOUGHTS, "whole", memory=memory)
    text = f"I look.\n\n{write_samples('hermes', READ)}"
    reply = read_text_reply(api, text, "streamed finely", memory=memory)
    assert (reply.calls, reply.content) == ([READ], text)  # too late to decide that it was no reasoning
    reply = read_text_reply(api, text, "streamed finely", memory=memory)
    assert (reply.calls, reply.content) == ([READ], "I look.")


@every_api
@pytest.mark.parametrize("settings", [{}, {"dialect": "hermes"}], ids=["as known", "chosen"])
def test_a_reply_that_is_one_code_block_around_calls_is_these_calls(settings: dict[str, Any], api: str) -> None:
    for way in WAYS:
        reply = read_text_reply(
            api, f"```xml\n{write_samples('hermes', READ)}\n```", way, model="qwen2.5-7b-instruct", settings=settings
        )
        assert (reply.calls, reply.content) == ([READ], "")


PROMPTED = {
    "zai-org/GLM-4.7": "glm-4.7",
    "MiniMaxAI/MiniMax-M2": "minimax-m2",
    "deepseek-ai/DeepSeek-V4": "deepseek-v4",
    "Qwen/Qwen3.5-35B-A3B": "qwen3-coder",
    "Qwen/Qwen3-30B-A3B-Thinking-2507": "hermes",
}
"""Models whose prompt can open the reasoning, with the dialect of each."""


@pytest.mark.parametrize("api", [api for api in SHAPES if api not in PARTS_THINKING])
@pytest.mark.parametrize("model", PROMPTED)
def test_a_closing_tag_of_reasoning_in_an_argument_is_the_argument_s(model: str, api: str) -> None:
    """The reply begins with the call, so it contains no reasoning, even if the prompt opened its tag."""
    made = [("read", {"filePath": "x</think>y"}), ("read", {"filePath": "/<think>/a</think>\nb"})]
    for way in WAYS:
        for calls in (made[:1], made[1:], made):
            reply = read_text_reply(api, write_samples(PROMPTED[model], *calls), way, model=model)
            assert (reply.calls, reply.content, reply.reasoning) == (calls, "", ""), way


@pytest.mark.parametrize("api", [api for api in SHAPES if api not in PARTS_THINKING])
@pytest.mark.parametrize("model", ["mine", "qwen3-8b", "glm-4.6", "kimi-k2"])
@pytest.mark.parametrize(
    "sentence", ["x</think>y", "The closing tag is </think>.", "So:\n    re.sub('</think>', '')\nDone."]
)
def test_closing_tag_inside_a_line_does_not_affect_later_replies(sentence: str, model: str, api: str) -> None:
    text = "It is sunny in Paris today."
    memory = Memory()
    before = read_text_reply(api, text, "streamed finely", model=model)
    for way in WAYS * AGREEING:
        read_text_reply(api, sentence, way, memory=memory, model=model)
        assert read_text_reply(api, text, "streamed finely", memory=memory, model=model) == before


@pytest.mark.parametrize("api", [api for api in SHAPES if api not in PARTS_THINKING])
@pytest.mark.parametrize("model", ["mine", "qwen3-8b"])
def test_truncated_reply_mistaken_for_reasoning_is_sent_as_text(model: str, api: str) -> None:
    memory = Memory()
    for _ in range(AGREEING):
        read_text_reply(api, THOUGHTS, "whole", memory=memory, model=model)
    text = f"It is sunny.\n\n{write_samples('hermes', READ)}\n\n"
    reply = read_text_reply(api, text + "And then", "streamed finely", cut=True, memory=memory, model=model)
    assert reply.content.count("It is sunny.") == 1
    assert reply.content.endswith("And then")
    assert reply.calls == []  # the model may still have been reasoning, and have written an example


# Malformed calls in the history

BROKEN = {
    "the end is cut off": ('{"filePath": "/a"', READ_A := {"filePath": "/a"}),
    "a string is cut off": (CUT_STRING := '{"filePath": "/home/me/pro', {"_raw": CUT_STRING}),
    "several objects": ('{"filePath": "/a"}{"filePath": "/b"}', {"_raw": '{"filePath": "/a"}{"filePath": "/b"}'}),
    "encoded twice": (json.dumps('{"filePath": "/a"}'), READ_A),
    "nothing": ("", {}),
    "white space": (" ", {}),
    "null": (None, {}),
}


def past_call(api: str, request: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Return the object that contains the arguments of the call in `SHAPES[api].history`, and their key."""
    match api:
        case "anthropic-messages":
            return request["messages"][1]["content"][0], "input"
        case "openai-responses":
            return request["input"][1], "arguments"
        case "gemini-generate":
            return request["contents"][1]["parts"][0]["functionCall"], "args"
    return request["messages"][1]["tool_calls"][0]["function"], "arguments"


@every_api
@pytest.mark.parametrize("name", BROKEN)
def test_malformed_call_of_the_history_is_repaired_or_wrapped_and_reported(name: str, api: str) -> None:
    """Otherwise a server would reject all later requests."""
    broken, mended = BROKEN[name]
    history = json.loads(json.dumps(SHAPES[api].history))
    call, key = past_call(api, history)
    call[key] = broken
    exchange = open_api_session(api, **history)
    sent, key = past_call(api, json.loads(exchange.encode_request()))
    arguments = json.loads(sent[key]) if api in ("openai-chat", "openai-responses") else sent[key]
    assert arguments == mended
    assert exchange.report.request == ["1 past message with broken arguments repaired"]


# Text next to native calls


def calling(api: str, text: str, *, stream: bool) -> bytes:
    """Return a reply with text and one native call."""
    arguments = json.dumps(READ[1])
    function = {"name": "read", "arguments": arguments}
    match api, stream:
        case "openai-chat", True:
            made = chat.chunk({"tool_calls": [{"index": 0, "id": "a", "type": "function", "function": function}]})
            sent = [chat.ROLE, *chat.make_text_chunks(*text), made, chat.chunk({}, "tool_calls"), chat.USED, chat.DONE]
        case "openai-chat", False:
            calls = {"tool_calls": [{"id": "a", "type": "function", "function": function}]}
            return chat.encode_json(chat.completion(text, "tool_calls", message=calls))
        case "anthropic-messages", True:
            blocks = [messages.text_block(0, *text), messages.call_block(1, "read", arguments)]
            sent = messages.make_stream(*blocks, stop_reason="tool_use")
        case "anthropic-messages", False:
            made_ = messages.call("read", **READ[1])
            return chat.encode_json(messages.message(messages.text(text), made_, stop_reason="tool_use"))
        case "openai-responses", True:
            sent = responses.make_stream(responses.text_events(*text), responses.call_events("read", arguments))
        case "openai-responses", False:
            items = [responses.message(text), responses.call("read", **READ[1])]
            return chat.encode_json(responses.response(*items))
        case "gemini-generate", _:
            parts = gemini.text(text), gemini.call("read", **READ[1])
            if not stream:
                return chat.encode_json(gemini.reply(*parts))
            sent = gemini.make_stream(*gemini.make_text_events(*text), gemini.frame(gemini.event(parts[1])))
        case _, True:
            sent = ollama.make_stream(*ollama.make_text_lines(*text), ollama.piece("", ollama.call("read", **READ[1])))
        case _:
            return chat.encode_json(ollama.message(text, ollama.call("read", **READ[1])))
    return b"".join(sent)


TAGGED, BEGUN, SPOKEN = "<think>\nSo.\n</think>\n\nI look.", "So.\n</think>\n\nI look.", "I look."
BESIDE = {
    "mine": (TAGGED, BEGUN, SPOKEN),
    "qwen3-8b": (TAGGED, SPOKEN),
    "deepseek-r1": (TAGGED, BEGUN),  # a stream of it is assumed to begin in reasoning that never ends
}


@every_api
@pytest.mark.parametrize("model", BESIDE)
def test_reasoning_next_to_native_calls_is_separated_equally_in_streams_and_whole_replies(model: str, api: str) -> None:
    for text in BESIDE[model]:
        found = []
        for stream in (False, True):
            exchange, data = open_api_session(api, model=model, stream=stream), calling(api, text, stream=stream)
            out = feed_stream(exchange.stream(), data) if stream else exchange.whole.rewrite(data)
            found.append(read_client_reply(api, out, stream=stream))
        assert found[0] == found[1]
        assert found[0].calls == [READ]
        assert "I look." in found[0].content


# A message that its model marks as an answer

FINAL = ("final", "final <|constrain|>json", "final<|constrain|>json", "final json")
ANSWERS = {
    name: write_samples(name, READ) for name in ("harmony", "hermes", "qwen3-coder", "invoke", "tag", "bare-json")
}
ANSWERS["several lines"] = f"So:\n\n{ANSWERS['hermes']}\n\n```\ncode\n\n{ANSWERS['tag']}\nDone."
CALLING = '<|start|>assistant<|channel|>commentary to=functions.list_files <|constrain|>json<|message|>{"path": "src"}'


@every_api
@pytest.mark.parametrize("text", ANSWERS.values(), ids=ANSWERS.keys())
def test_an_answer_of_gpt_oss_is_text_also_if_it_looks_like_a_call(api: str, text: str) -> None:
    thought = "<|channel|>analysis<|message|>Easy.<|end|><|start|>assistant"
    shown = text.removesuffix("<|call|>")  # which ends the answer
    for header in FINAL:
        for before, after in (("", ""), ("", "<|return|>"), (thought, "<|return|>"), (thought, "<|end|>" + CALLING)):
            reply = f"{before}<|channel|>{header}<|message|>{text}{after}"
            for way in WAYS:
                found = read_text_reply(api, reply, way, model="openai/gpt-oss-120b")
                assert found.content == shown
                assert found.calls == ([LIST] if CALLING in after else [])


@every_api
def test_a_message_before_the_answer_may_call(api: str) -> None:
    reply = f"<|channel|>commentary<|message|>I look.<|end|>{CALLING}<|call|>"
    for way in WAYS:
        found = read_text_reply(api, reply, way, model="openai/gpt-oss-120b")
        assert (found.content, found.calls) == ("I look.", [LIST])


# A reply that a filter or a fault of the server ends

HALTED = {
    "openai-chat": ("content_filter", "error", "abort", "sensitive"),
    "anthropic-messages": ("refusal",),
    "openai-responses": ("content_filter",),
    "ollama-chat": ("content_filter", "error"),
}
OPEN = {
    "hermes": '<tool_call>\n{"name": "read", "arguments": {"filePath": "/docs"',
    "qwen3-coder": "<tool_call>\n<function=read>\n<parameter=filePath>\n/docs\n</parameter>\n",
}


def read_halted_reply(api: str, text: str, reason: str, way: str) -> ClientReply:
    """Return the client's view of a reply with this finish reason."""
    data: list[bytes] | bytes
    pieces = [*text] if way == "streamed finely" else [text]
    exchange = open_api_session(api, stream=way != "whole")
    match api:
        case "openai-chat":
            data = (
                chat.encode_json(chat.completion(text, reason))
                if way == "whole"
                else chat.make_stream(*pieces, finish=reason)
            )
        case "anthropic-messages":
            whole = chat.encode_json(messages.message(messages.text(text), stop_reason=reason))
            data = whole if way == "whole" else messages.make_text_stream(*pieces, stop_reason=reason)
        case "openai-responses":
            swap = (b"max_output_tokens", reason.encode())
            if way == "whole":
                data = chat.encode_json(responses.make_cut_reply(responses.message(text))).replace(*swap)
            else:
                data = [one.replace(*swap) for one in responses.make_text_stream(*pieces, status="incomplete")]
        case _:
            whole = chat.encode_json(ollama.message(text, done_reason=reason))
            data = whole if way == "whole" else ollama.make_text_stream(*pieces, done_reason=reason)
    out = exchange.whole.rewrite(data) if isinstance(data, bytes) else feed_stream(exchange.stream(), *data)
    assert exchange.report.failures == []
    return read_client_reply(api, out, stream=way != "whole")


@pytest.mark.parametrize(("api", "reason"), [(api, reason) for api, reasons in HALTED.items() for reason in reasons])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dialect", OPEN)
def test_a_call_that_a_filter_or_a_fault_ends_in_is_none(api: str, reason: str, way: str, dialect: str) -> None:
    alone = read_halted_reply(api, OPEN[dialect], reason, way)
    assert (alone.calls, alone.content.strip()) == ([], OPEN[dialect].strip())
    after = read_halted_reply(api, f"{write_samples(dialect, LIST)}\n{OPEN[dialect]}", reason, way)
    assert (after.calls, after.content) == ([LIST], "")
    assert alone.end == after.end == ("incomplete" if api == "openai-responses" else reason)
