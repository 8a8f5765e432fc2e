"""Fuzz targets: each takes any bytes and raises if a property of VTC does not hold for them.

The first bytes of an input choose settings; the rest is text that people can read and the fuzzer mutates.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any

from fuzz.policies import fuzz_policies
from tests.apis import chat, gemini, ollama
from tests.apis import messages as anthropic
from tests.apis import responses as openai_responses
from tests.apis.shapes import make_request_body as asked_of
from tests.exchanges import agent, reveals_reasoning_late
from vtc.apis import APIS, Api, Request, RequestError
from vtc.dialects import Description, Reader, compile_grammar
from vtc.dialects.writing import write_calls
from vtc.events import Tool, ToolCall
from vtc.exchange import PlannedExchange, PlannedRequest, Session
from vtc.profiles import Facts, Plan, Planner, ProfileError, Settings, builtin_directory, load_profiles
from vtc.profiles.reasoning_plan import COMMON_TAGS
from vtc.reporting.report import Report
from vtc.wire import EventReader

CHAT, MESSAGES, RESPONSES, OLLAMA, GEMINI = APIS
OTHER_APIS = {"messages": MESSAGES, "responses": RESPONSES, "ollama": OLLAMA, "gemini": GEMINI}
"""The APIs other than chat completions, by target."""
PROFILES = load_profiles([builtin_directory()])
NATIVE_CLIENT = Facts(user_agent="OpenAI/Python 3", host="127.0.0.1", path="/v1/chat/completions")
TEXT_CLIENT = Facts(user_agent="Cline/3.82.0", host="127.0.0.1", path="/v1/chat/completions")
PROMPT = (Path(__file__).parents[1] / "tests" / "cases" / "prompts" / "cline.md").read_text("utf-8")
TOOLS = [
    chat.READ,
    chat.LIST,
    chat.WRITE,
    chat.tool("edit", ["edits"], edits="array", count="integer", deep={"type": ["object", "null"]}, dry="boolean"),
]

SETTINGS: tuple[Mapping[str, str], ...] = (
    {},
    {"lenient": "off"},
    *({"model": name} for name in sorted(PROFILES.models)),
    *({"dialect": name, "tools": "prompt"} for name in sorted(PROFILES.dialects)),
)
"""The settings from which the first byte chooses."""
PIECE_SIZES = (1, 2, 3, 7, 16, 64, 500, 1 << 20)
"""Sizes of a delta (characters) or of a read (bytes); the lowest bits of the second byte choose one."""


@cache
def make_planner(choice: int) -> Planner:
    """Return the planner with one of the `SETTINGS`."""
    return Planner(PROFILES, Settings(**SETTINGS[choice % len(SETTINGS)]))  # type: ignore[arg-type]


def open_session(choice: int, *, text_client: bool) -> Session:
    """Open an exchange up to its reply."""
    body, request, plan = plan_request(make_planner(choice % len(SETTINGS)), text_client=text_client)
    return Session(PlannedRequest(CHAT, request, body, PlannedExchange(plan), "seed"))


@cache
def plan_request(planner: Planner, *, text_client: bool) -> tuple[bytes, Request, Plan]:
    """Return a request with its plan."""
    if text_client:
        messages = [{"role": "system", "content": PROMPT}, {"role": "user", "content": "Look."}]
        body = chat.encode_json(chat.request(messages=messages, tools=None, stream=True))
    else:
        body = chat.encode_json(chat.request(stream=True, tools=TOOLS))
    request = CHAT.request(body)
    return body, request, planner.plan(_choose_facts(text_client), request)


def _choose_facts(text_client: bool) -> Facts:
    return TEXT_CLIENT if text_client else NATIVE_CLIENT


def feed_stream(exchange: Session, pieces: Iterator[bytes]) -> bytes:
    """Return the bytes that a stream emits; finish it twice, because callers may do that."""
    stream = exchange.stream()
    out: list[bytes] = []
    for piece in pieces:
        out += stream.feed(piece)
    out += stream.finish() + stream.finish()
    assert b"" not in out, "empty bytes would end the body at the client"
    return b"".join(out)


def split_bytes(body: bytes, size: int) -> Iterator[bytes]:
    """Split bytes into chunks of `size`."""
    return (body[at : at + size] for at in range(0, len(body), size))


def fuzz_reply(data: bytes) -> None:
    """Check the text of a model in well-formed frames: no failure, no lost text, no effect of chunk boundaries."""
    if len(data) >= 2:
        choice, how, text = data[0], data[1], data[2:].decode("utf-8", "surrogateescape")
        finish = "length" if how & 8 else "stop"
        check_reply(lambda: open_session(choice, text_client=bool(how & 16)), text, PIECE_SIZES[how & 7], finish)


def check_reply(open_session: Callable[[], Session], text: str, size: int, finish: str) -> None:
    """Check a reply of this text, in deltas of `size` characters."""
    body = b"".join(chat.make_stream(*(text[at : at + size] for at in range(0, len(text), size)), finish=finish))
    exchange, other = open_session(), open_session()
    out = feed_stream(exchange, split_bytes(body, 1 << 20))
    report = exchange.report
    assert not report.failures, report.failures
    streamed = chat.read(out)
    assert out == feed_stream(open_session(), split_bytes(body, 50)), "chunk boundaries change the output"
    completion = chat.encode_json(chat.completion(text, finish))
    rewritten = other.whole.rewrite(completion)
    whole = chat.read(rewritten)
    assert not other.report.failures, other.report.failures
    if not whole.reasoning and streamed.reasoning and streamed.reasoning.strip() in streamed.content:
        # If a stream took text for reasoning, it sends it again as text at the end of the reply or before a call.
        streamed = replace(streamed, reasoning="")
    is_comparable = _is_comparable(report, other, text)
    if report.calls and exchange.plan.protocol.client_text:  # white space that a client strips from a value
        streamed, whole = (replace(read, content=_AROUND_TAGS.sub(r"\1", read.content)) for read in (streamed, whole))
    assert not is_comparable or streamed == whole, "streamed and whole replies differ"
    assert all(isinstance(arguments, dict) for _, arguments in streamed.calls)
    if not report.calls and _is_other_text_kept(exchange, text):
        repaired = finish == "stop" and exchange.plan.reading.lenient
        assert is_text_preserved([text], streamed.content, repaired=repaired), "no call was read, but the text differs"
        assert not is_comparable or rewritten == completion or streamed.content != text, (
            "no call was read, but the bytes differ"
        )


def _is_comparable(report: Report, whole: Session, text: str) -> bool:
    """Return True if a streamed reply and a `whole` one must be equal.

    A whole reply drops a call in which it ends if its client would run it, but a stream may have sent its beginning.
    """
    was_sent = any("already sent" in refusal["reason"] for refusal in report.refusals)
    return not (was_sent or reveals_reasoning_late(whole, text))


_AROUND_TAGS = re.compile(r"\s*(</?[^<>]+>)\s*")
REMOVABLE_MARKUP = re.compile(r"(?:\s|</[^<>]+>|<\|close\|>\w+<\|sep\|>|<[^<>]+[|｜]>|<end_of_turn>|<eos>)+\Z")
"""Markup at the end of a text that does not belong to the message: closing tags, ends of the turn."""


def is_text_preserved(texts: Sequence[str], output: str, *, repaired: bool = True) -> bool:
    """Return True if `output` consists of these texts, each possibly without unmatched markup at its end.

    The texts contain no calls. Closing tags are removed only after other text, and only if `repaired` is true. White
    space at the end of a text may stay although the markup before it is removed.
    """
    if not texts:
        return not output
    text, *others = texts
    end = REMOVABLE_MARKUP.search(text) if repaired else None
    min_length = end.start() if end else len(text)
    lengths = (length for length in range(min_length, len(text) + 1) if output.startswith(text[:length]))
    lengths = (length for length in lengths if text[:length].strip() or "</" not in text[length:])
    white_space = text[len(text.rstrip()) :]
    rests = ({output[length:], output[length:].removeprefix(white_space)} for length in lengths)
    return any(is_text_preserved(others, rest, repaired=repaired) for rest in chain.from_iterable(rests))


def _is_other_text_kept(exchange: Session, *texts: str) -> bool:
    """Return True if only calls are removed from these texts."""
    plan = exchange.plan.reading
    opened = any(opener in text for text in texts for opener, _ in COMMON_TAGS)
    return not plan.markers and (plan.thinking.to == "keep" or (plan.thinking.to == "opened" and not opened))


def fuzz_stream(data: bytes) -> None:
    """Check any bytes in place of a stream."""
    if len(data) < 2:
        return
    choice, how, body = data[0], data[1], data[2:]
    text_client = bool(how & 16)
    exchange = open_session(choice, text_client=text_client)
    out = feed_stream(exchange, split_bytes(body, PIECE_SIZES[how & 7]))
    other = open_session(choice, text_client=text_client)
    assert out == feed_stream(other, split_bytes(body, 1 << 20)), "chunk boundaries change the output"
    received = _read_choice_texts(body)
    if not exchange.report.calls and _is_other_text_kept(exchange, *chain.from_iterable(received.values())):
        sent = _read_choice_texts(out)
        if received.keys() != sent.keys():  # a single choice is always sent as choice 0
            received, sent = _read_choice_texts(body, merged=True), _read_choice_texts(out, merged=True)
        for index in received | sent:
            text = "".join(sent.get(index, []))
            preserved = is_text_preserved(received.get(index, []), text, repaired=exchange.plan.reading.lenient)
            assert preserved, "no call was read, but the text differs"


def _read_choice_texts(body: bytes, *, merged: bool = False) -> dict[str, list[str]]:
    """Return the texts of each choice, as a lenient client reads them; each finish reason ends a text.

    `merged`: all choices are one, in the order in which their text arrives.
    """
    texts_by_choice: dict[str, list[str]] = {}
    for frame in EventReader().feed(body + b"\n\n"):
        with suppress(ValueError, AttributeError, TypeError):
            for choice in json.loads((frame.data or b"").decode("utf-8", "replace")).get("choices") or ():
                texts = texts_by_choice.setdefault("" if merged else str(choice.get("index") or 0), [""])
                if content := choice.get("delta", {}).get("content"):
                    texts[-1] += str(content)
                if choice.get("finish_reason"):
                    texts.append("")
    return {index: texts for index, texts in texts_by_choice.items() if any(texts)}


def fuzz_request(data: bytes) -> None:
    """Check any body of a request, and any text in the fields that VTC parses or re-encodes."""
    if len(data) < 2:
        return
    choice, how, body = data[0], data[1], data[2:]
    text = body.decode("utf-8", "surrogateescape")
    system: Any = {"role": "system", "content": PROMPT}
    match how % 5:
        case 1:
            value = chat.request(messages=[{"role": "system", "content": text}], tools=None)
            body = chat.encode_json(value)
        case 2:
            answer, _, result = text.partition("\0")
            turns = [{"role": "assistant", "content": answer}, {"role": "user", "content": result}]
            body = chat.encode_json(chat.request(messages=[system, *turns], tools=None))
        case 3:
            tool = {"type": "function", "function": {"name": "f", "description": text}}
            body = chat.encode_json(chat.request(tools=[*TOOLS, tool]))
        case 4:
            arguments, _, result = text.partition("\0")
            call = {"id": "c", "type": "function", "function": {"name": "edit", "arguments": arguments}}
            turns = [
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c", "content": result},
            ]
            body = chat.encode_json(chat.request(messages=turns, tools=TOOLS))
    facts = _choose_facts(bool(how & 16))
    try:
        exchange = Session.open(CHAT, body, facts, make_planner(choice), "s")
        sent, plan = exchange.encode_request(), exchange.plan
    except RequestError as error:
        assert error.__cause__ is None, "a bug in VTC, which the rejection hides"
        assert how % 5 == 0, "a valid request was rejected"
        return
    assert isinstance(json.loads(sent), dict)
    assert sent == Session.open(CHAT, body, facts, make_planner(choice), "s").encode_request()
    stack, protocol = plan.stack, plan.protocol
    if protocol.write is None and not (protocol.promote or stack.request.set or stack.request.drop):
        assert sent == body or exchange.report.request, "a request was changed without a report"


def check_messages(open_session: Callable[[], Session], texts: Sequence[str], size: int, reason: str) -> None:
    """Check a reply of Messages with these texts as blocks, in deltas of `size` characters."""
    pieces = [[text[at : at + size] for at in range(0, len(text), size)] for text in texts]
    blocks = [anthropic.text_block(index, *parts) for index, parts in enumerate(pieces)]
    body = b"".join(anthropic.make_stream(*blocks, stop_reason=reason))
    exchange, other = open_session(), open_session()
    out = feed_stream(exchange, split_bytes(body, 1 << 20))
    assert not exchange.report.failures, exchange.report.failures
    assert out == feed_stream(open_session(), split_bytes(body, 50)), "chunk boundaries change the output"
    message = chat.encode_json(anthropic.message(*map(anthropic.text, texts), stop_reason=reason))
    rewritten = other.whole.rewrite(message)
    assert not other.report.failures, other.report.failures
    is_comparable = not reveals_reasoning_late(other, *texts)
    if is_comparable and all(text.strip() for text in texts):  # the strict client rejects blank text
        assert anthropic.read(out) == anthropic.read(rewritten), "streamed and whole replies differ"
    if is_comparable and not exchange.report.calls and _is_other_text_kept(exchange, *texts):
        sent_texts = [block["text"] for block in json.loads(rewritten)["content"] if block["type"] == "text"]
        lenient = exchange.plan.reading.lenient
        assert is_text_preserved(texts, "".join(sent_texts), repaired=lenient), "no call was read, but the text differs"
        assert rewritten == message or sent_texts != list(texts), "no call was read, but the bytes differ"


_REQUIRED_DIALECTS = """\
{kind: dialect, name: tag, call: "<{name}>\\n{params}</{name}>", names: declared, param: "<{key}>{value}</{key}>\\n"}
---
{kind: dialect, name: hermes, call: "<tool_call>\\n{json}\\n</tool_call>"}
---
{kind: dialect, name: cline, call: "<{name}>\\n{params}</{name}>", names: declared, param: "<{key}>{value}</{key}>\\n"}
"""
_SAMPLE_CALLS = [ToolCall("read", '{"filePath": "a\\n<b> \\"c\\""}', "c1"), ToolCall("list_files", '{"path": ""}')]


@cache
def _make_profile_directories() -> tuple[Path, Path, tempfile.TemporaryDirectory[str]]:
    holder = tempfile.TemporaryDirectory(prefix="vtc-fuzz-")
    required, own = Path(holder.name, "required"), Path(holder.name, "own")
    required.mkdir()
    own.mkdir()
    (required / "dialects.yaml").write_text(_REQUIRED_DIALECTS)
    return required, own, holder


def fuzz_profile(data: bytes) -> None:
    """Check any text as a profile file: it is rejected with a line number, or the profile works."""
    required, own, _ = _make_profile_directories()
    (own / "mine.yaml").write_bytes(data)
    try:
        profiles = load_profiles([required, own])
    except ProfileError as error:
        assert error.problems
        assert all(problem.line >= 1 and problem.message for problem in error.problems)
        return
    tools = {name: Tool(name, "Does it.", parameters) for name, parameters in _list_parameters().items()}
    for dialect in profiles.dialects.values():
        if profiles.sources["dialect", dialect.name].path.parent == own:
            _check_dialect(dialect, tools)
    plan = Planner(profiles, Settings()).plan
    for facts, declared in ((NATIVE_CLIENT, TOOLS), (TEXT_CLIENT, None)):
        fields = chat.request([{"type": "text", "text": "x"}], tools=declared)
        body = CHAT.request(chat.encode_json(fields))
        plan(Facts(facts.user_agent, "lab-model", facts.host, 80, facts.path, {"a": "b"}, fields), body)


@cache
def _list_parameters() -> dict[str, Any]:
    return {tool["function"]["name"]: tool["function"]["parameters"] for tool in TOOLS}


def _check_dialect(dialect: Description, tools: Mapping[str, Tool]) -> None:
    """Check that a reader of the dialect accounts for every character of calls that are written in it."""
    written = write_calls(_SAMPLE_CALLS, dialect, tools)
    for text in (written, f"a\n{written[: len(written) // 2]}", "```\n" + written):
        reader = Reader(compile_grammar((dialect,)), tools)
        events = [event for at in range(0, len(text), 7) for event in reader.feed(text[at : at + 7])]
        events += reader.finish()
        assert "".join(event.raw for event in events) == text


def fuzz_request_or_reply(api: Api, data: bytes) -> None:
    """Check any bytes as a request of an API, or as a reply, streamed and whole."""
    if len(data) < 2:
        return
    choice, how, body = data[0], data[1], data[2:]
    if how & 8:
        try:
            facts = agent(api.name, stream=bool(how & 16))
            sent = Session.open(api, body, facts, make_planner(choice), "s").encode_request()
        except RequestError as error:
            assert error.__cause__ is None, "a bug in VTC, which the rejection hides"
        else:
            assert isinstance(json.loads(sent), dict)
        return
    if body.lstrip().startswith(b"{"):
        open_api_session(api, choice).whole.rewrite(body)
    out = feed_stream(open_api_session(api, choice), split_bytes(body, PIECE_SIZES[how & 7]))
    assert out == feed_stream(open_api_session(api, choice), split_bytes(body, 1 << 20)), (
        "chunk boundaries change the output"
    )


def open_api_session(api: Api, choice: int) -> Session:
    """Open an exchange of an API up to its reply."""
    thinking = {"thinking": {"type": "enabled"}} if api is MESSAGES and choice % 2 else {}
    body, facts = asked_of(api.name, stream=True, **thinking), agent(api.name, stream=True)
    return Session.open(api, body, facts, make_planner(choice), "seed")


def check_responses(open_session: Callable[[], Session], texts: Sequence[str], size: int, status: str) -> None:
    """Check a reply of Responses with these texts as messages, in deltas of `size` characters."""
    pieces = [[text[at : at + size] for at in range(0, len(text), size)] for text in texts]
    items = [openai_responses.text_events(*parts, id=f"msg_{index}") for index, parts in enumerate(pieces)]
    body = b"".join(openai_responses.make_stream(*items, status=status))
    exchange, other = open_session(), open_session()
    out = feed_stream(exchange, split_bytes(body, 1 << 20))
    assert not exchange.report.failures, exchange.report.failures
    assert out == feed_stream(open_session(), split_bytes(body, 50)), "chunk boundaries change the output"
    make_response = openai_responses.response if status == "completed" else openai_responses.make_cut_reply
    whole = chat.encode_json(make_response(*(item[-1]["item"] for item in items)))
    rewritten = other.whole.rewrite(whole)
    assert not other.report.failures, other.report.failures
    streamed = openai_responses.read(out)
    is_comparable = not reveals_reasoning_late(other, *texts)
    assert not is_comparable or _list_contents(streamed) == _list_contents(openai_responses.read(rewritten)), (
        "streamed and whole replies differ"
    )
    if not exchange.report.calls and _is_other_text_kept(exchange, *texts):
        lenient = exchange.plan.reading.lenient
        assert is_text_preserved(texts, streamed.content, repaired=lenient), "no call was read, but the text differs"
        assert not is_comparable or rewritten == whole or streamed.content != "".join(texts), (
            "no call was read, but the bytes differ"
        )
        assert [item["id"] for item in streamed.items] == [item[-1]["item"]["id"] for item in items]


def check_ollama(open_session: Callable[[], Session], text: str, size: int, reason: str) -> None:
    """Check a reply of Ollama with this text, in lines of `size` characters."""
    lines = ollama.make_text_stream(*(text[at : at + size] for at in range(0, len(text), size)), done_reason=reason)
    whole = chat.encode_json(ollama.message(text, done_reason=reason))
    _check_stream_and_whole(
        open_session, text, b"".join(lines), whole, ollama.read, partial(ollama.read, stream=False), reason == "stop"
    )


def check_gemini(open_session: Callable[[], Session], text: str, size: int, reason: str) -> None:
    """Check a reply of Gemini's API with this text, in events of `size` characters."""
    events = gemini.make_text_stream(*(text[at : at + size] for at in range(0, len(text), size)), reason=reason)
    whole = chat.encode_json(gemini.reply(gemini.text(text), reason=reason))
    _check_stream_and_whole(open_session, text, b"".join(events), whole, gemini.read, gemini.read, reason == "STOP")


def _check_stream_and_whole(
    open_session: Callable[[], Session],
    text: str,
    streamed: bytes,
    whole: bytes,
    read: Callable[[bytes], Any],
    read_whole: Callable[[bytes], Any],
    complete: bool,
) -> None:
    """Check a stream of this text, and the whole reply with the same text."""
    exchange, other = open_session(), open_session()
    out = feed_stream(exchange, split_bytes(streamed, 1 << 20))
    assert not exchange.report.failures, exchange.report.failures
    assert out == feed_stream(open_session(), split_bytes(streamed, 50)), "chunk boundaries change the output"
    rewritten = other.whole.rewrite(whole)
    assert not other.report.failures, other.report.failures
    is_comparable = _is_comparable(exchange.report, other, text)
    assert not is_comparable or read(out) == read_whole(rewritten), "streamed and whole replies differ"
    if not exchange.report.calls and _is_other_text_kept(exchange, text):
        content, repaired = read(out).content, complete and exchange.plan.reading.lenient
        assert is_text_preserved([text], content, repaired=repaired), "no call was read, but the text differs"
        assert not is_comparable or rewritten == whole or content != text, "no call was read, but the bytes differ"


def _list_contents(reply: openai_responses.Read) -> list[Any]:
    """Return the fields that a stream and a whole reply must share."""
    return [reply.content, reply.reasoning, reply.calls, reply.status, reply.reason]


TARGETS: Mapping[str, Callable[[bytes], None]] = {
    "reply": fuzz_reply,
    "stream": fuzz_stream,
    "request": fuzz_request,
    **{name: partial(fuzz_request_or_reply, api) for name, api in OTHER_APIS.items()},
    "profile": fuzz_profile,
    "policies": fuzz_policies,
}
