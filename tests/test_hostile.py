"""Hostile input: it is read in bounded time, nothing in it is evaluated, and errors are clear."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.apis import chat
from tests.apis.shapes import SHAPES
from tests.bounds import count_calls, time_limit
from tests.dialects.material import COMMON, DIALECTS, read
from tests.exchanges import API, PROFILES, agent, feed_stream, open_session, planner
from vtc.apis import APIS, RequestError
from vtc.exchange import Session
from vtc.profiles import Facts, Memory, Planner, ProfileError, Settings, UnknownName, builtin_directory, load_profiles

__all__ = ["time_limit"]

# Replies

FRAGMENTS = [
    *("<", "</", "{", "[", "[{", "`", "` ", "``", "```\n", "~~~\n", "\n", " \n", "\r\n", "\\", '"', '\\"', "\0"),
    *("é", "\ud83d", "</tool_call>", '<tool_call>{"name": "bash"} ', "<function_calls>"),
    *("<think>", "</think>", "<think></think>", "<x>", "<x/>", "=", "<|", "{}", "[]", "'", '"""', "{'a': ", '{"a":'),
    *("<tool_call>", "<tool_call>{", "<tool_call>[", "<bash>"),
    *("</bash>", "<bash><command>", "<bash>\n<command>a</command>\n", '<bash command="a" ', "<command>"),
    *('<invoke name="bash">', "<function=bash>", "<parameter=command>", "<parameter=command>x</parameter>", "<tools>"),
    *('{"name":', '{"name": "bash", "arguments": {', "bash(", "[TOOL_CALLS]", "functions.", "&lt;", "<![CDATA["),
]  # fmt: skip
HEADS = [
    "",
    "<bash>\n<command>",
    '<tool_call>{"name": "bash", "arguments": {"command": "',
    '<function_calls><invoke name="bash"><parameter name="command">',
    "<tool_call><function=bash><parameter=command>",
    '<bash command="',
    "`<bash>",
    "<think>",
]
SIZE = 1 << 12
BASH = [chat.tool("bash", command="string")]


@pytest.mark.parametrize("head", HEADS)
def test_fragments_of_markup_by_the_thousand(head: str, some: Any) -> None:
    """The text of a reply that consists of one repeated fragment arrives unchanged, streamed and whole."""
    for _, fragment in some(product([head], FRAGMENTS), 5):
        text = head + fragment * (SIZE // len(fragment))
        streamed, whole = open_session(tools=BASH), open_session(tools=BASH)
        frames = chat.make_stream(*(text[at : at + 500] for at in range(0, len(text), 500)))
        found = chat.read(feed_stream(streamed.stream(), *frames))
        at_once = chat.read(whole.whole.rewrite(chat.encode_json(chat.completion(text))))
        if head == "<think>" and found.content == text:  # never closed, so it is text that was sent as reasoning
            found = replace(found, reasoning=at_once.reasoning)
        assert found == at_once, fragment
        assert streamed.report.failures == whole.report.failures == [], fragment
        # Special tokens of a call that is cut off are removed and reported.
        is_text = fragment == "[TOOL_CALLS]" and found.content == head.strip() and streamed.report.refusals
        assert found.calls or found.content == text or is_text, fragment


@pytest.mark.rest
@pytest.mark.parametrize("head", HEADS)
def test_work_grows_with_the_text_and_not_faster(head: str, some: Any) -> None:
    dialects = [DIALECTS[name] for name in COMMON]
    for fragment, _ in some(product(FRAGMENTS, [head]), 5):
        texts = [head + fragment * count for count in (100, 800)]
        works = [partial(read, [text], dialects, tags=(("<think>", "</think>"),)) for text in texts]
        works[0]()  # compiles the patterns, which takes far longer while calls are counted
        few, many = map(count_calls, works)
        assert many < 10 * few + 1_000, fragment


def test_a_call_in_doubled_braces_whose_strings_never_end() -> None:
    text = '<tool_call>\n{{"name": "read", "arguments": {"filePath": ' + '"\\' * 150_000 + "}}\n</tool_call>"
    streamed, whole = open_session(), open_session()
    frames = chat.make_stream(*(text[at : at + 999] for at in range(0, len(text), 999)))
    assert chat.read(feed_stream(streamed.stream(), *frames)).content == text
    assert chat.read(whole.whole.rewrite(chat.encode_json(chat.completion(text)))).content == text


CALL = '<tool_call>{{"name": "read", "arguments": {{"filePath": {}}}}}</tool_call>'
ODD_VALUES = {
    "nested as deep as is read": ("[" * 250 + "]" * 250, 1),
    "nested deeper": ("[" * 5_000 + "]" * 5_000, 0),
    "objects nested deeper": ('{"a":' * 5_000 + "1" + "}" * 5_000, 0),
    "never closed": ("[" * 100_000, 0),
    "a number of 300 digits": ("1" * 300, 1),
    "beyond any float": ("1e999999999", 1),
    "half a character": (r'"\ud83d"', 1),
    "NUL": (r'"\u0000"', 1),
    "a key twice": ('"a", "filePath": "b"', 0),
    "keys of JavaScript's": ('"a", "__proto__": {"x": 1}, "constructor": 1', 1),
}


@pytest.mark.parametrize("what", ODD_VALUES)
def test_odd_values_in_a_call(what: str) -> None:
    value, count = ODD_VALUES[what]
    text = CALL.format(value)
    exchange = open_session(settings={"lenient": "off"})
    found = chat.read(
        feed_stream(exchange.stream(), *chat.make_stream(*(text[at : at + 999] for at in range(0, len(text), 999))))
    )
    assert exchange.report.failures == []
    assert len(found.calls) == count
    assert count or found.content == text


@pytest.mark.parametrize("what", ["frame", "reply"])
def test_json_nested_deeper_than_any_stack(what: str) -> None:
    """The frame is invalid JSON, so it passes through; the frames around it are read."""
    deep = b'{"choices":' + b"[" * 100_000
    if what == "reply":
        assert open_session().whole.rewrite(deep) == deep
        return
    exchange = open_session()
    body = feed_stream(exchange.stream(), b"data: " + deep + b"\n\n", *chat.make_stream(CALL.format('"/a"')))
    assert body.startswith(b"data: " + deep)
    assert len(exchange.report.calls) == 1
    assert exchange.report.failures == []


# Names

NAMES = [
    "__proto__",
    "constructor",
    "{name}",
    "{0.__class__}",
    "%s",
    r"\1",
    "(?P<x>",
    "a|b",
    ".*",
    "a[",
    "{{7*7}}",
    "é",
    "$&",
]


def make_named_tools(*names: str) -> list[chat.Json]:
    return [chat.tool(name, a="string") for name in names]


@pytest.mark.parametrize("dialect", ["hermes", "tag", "invoke"])
@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_a_name(name: str, dialect: str) -> None:
    """A name is not interpreted as an expression, a template or an attribute."""
    exchange = open_session(tools=make_named_tools(*NAMES))
    written = chat.DIALECTS[dialect](name, {"a": "x"})
    found = chat.read(feed_stream(exchange.stream(), *chat.make_stream(*written)))
    assert exchange.report.failures == []
    assert found.calls == [(name, {"a": "x"})] or found.content == written
    assert dialect != "hermes" or found.calls


def test_a_name_too_long_for_a_call_spoils_no_other() -> None:
    exchange = open_session(tools=make_named_tools("x" * 10_000, "y" * 129, "z" * 128))
    written = "".join(chat.DIALECTS["tag"](name, {"a": "x"}) for name in ("y" * 129, "z" * 128))
    found = chat.read(feed_stream(exchange.stream(), *chat.make_stream(written)))
    assert exchange.report.failures == []
    assert found.calls == [("z" * 128, {"a": "x"})]


def test_hundreds_of_tools() -> None:
    exchange = open_session(tools=make_named_tools(*(f"tool_{number}" for number in range(500))))
    found = chat.read(feed_stream(exchange.stream(), *chat.make_stream(chat.DIALECTS["tag"]("tool_499", {"a": "x"}))))
    assert found.calls == [("tool_499", {"a": "x"})]


# Requests


@pytest.mark.parametrize("client", SHAPES)
def test_reminders_that_never_end(client: str) -> None:
    """The user's message and the result of a tool can contain a page of opening tags."""
    history = json.dumps(SHAPES[client].request(stream=True, **SHAPES[client].history))
    body = re.sub("Read it|hello", "<system-reminder>" * 50_000, history).encode()
    (api,) = [api for api in APIS if api.name == client]
    exchange = Session.open(api, body, agent(client, stream=True), planner(), "seed", Memory())
    assert json.loads(exchange.encode_request()) == json.loads(body)


DEEP = "[" * 100_000
BODIES = {
    "nothing but brackets": DEEP.encode(),
    "a deep field": b'{"messages": [], "x": ' + DEEP.encode() + b"]" * 100_000 + b"}",
    "a number that no computer likes": b'{"messages": [], "x": ' + b"1" * 100_000 + b"}",
    "bytes": bytes(range(256)) * 400,
    "messages of messages": b'{"messages": [[[[{}]]]]}',
}


@pytest.mark.parametrize("what", BODIES)
def test_bodies_that_are_no_request(what: str, caplog: pytest.LogCaptureFixture) -> None:
    """The error names the cause in the body; it is no internal error."""
    with pytest.raises(RequestError, match="the body is not a valid chat completion request: ") as caught:
        Session.open(API, BODIES[what], Facts(), planner(), "seed")
    assert caught.value.__cause__ is None
    assert caplog.records == []


@pytest.mark.parametrize(
    "body", [b"\xff\xfeopen-sesame", b'{"open-sesame', b'"open-sesame"', b'{"messages": "open-sesame"}']
)
def test_reason_for_a_malformed_body_contains_none_of_its_text(body: bytes) -> None:
    with pytest.raises(RequestError) as caught:
        Session.open(API, body, Facts(), planner(), "seed")
    assert "open-sesame" not in str(caught.value)
    assert "Error" not in str(caught.value)  # no name of an internal class or of Python's


def past(arguments: str) -> list[chat.Json]:
    call = {"id": "c", "type": "function", "function": {"name": "read", "arguments": arguments}}
    return [{"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "user", "content": "on"}]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_odd_arguments_of_the_past(dialect: str) -> None:
    """The arguments of earlier calls are rendered for the model, even if they are malformed."""
    for arguments in (DEEP, "1" * 100_000, "{", "\0", "\ud83d", '{"a": 1e999}', "", "null"):
        exchange = open_session(settings={"tools": "prompt", "dialect": dialect}, messages=past(arguments))
        sent = json.loads(exchange.encode_request())
        assert [message["role"] for message in sent["messages"]][-2:] == ["assistant", "user"], arguments[:9]


TEMPLATE = "{{ 7 * 7 }}{% for x in range(9) %}{{ x }}{% endfor %}{{ ''.__class__.__mro__ }}{# gone #}"


@pytest.mark.parametrize("dialect", [name for name, one in DIALECTS.items() if one.prompt])
def test_a_template_in_a_request_is_text(dialect: str) -> None:
    described = {"type": "function", "function": {"name": "f", "description": TEMPLATE, "parameters": {}}}
    exchange = open_session(settings={"tools": "prompt", "dialect": dialect}, tools=[described], content=TEMPLATE)
    sent = exchange.encode_request().decode()
    assert sent.count("{{ 7 * 7 }}") >= 2
    assert "49" not in sent
    assert "<class" not in sent


SYSTEM = [
    "# Tools\n",
    "## a\nDescription: b\n",
    "- a: (required) ",
    "<a>\n",
    "<a><b>",
    "**",
    "Usage:\n<a>\n",
    "====\n",
    " \n",
    "```\n",
]


@pytest.mark.parametrize("fragment", SYSTEM)
def test_a_system_prompt_of_fragments(fragment: str) -> None:
    messages = [{"role": "system", "content": fragment * (200_000 // len(fragment))}, {"role": "user", "content": "x"}]
    body = chat.encode_json(chat.request(messages=messages, tools=None))
    exchange = Session.open(API, body, Facts(user_agent="Cline/3"), planner(), "seed")
    assert exchange.encode_request() == body


# Profiles


def profile(directory: Path, text: str) -> Path:
    directory.mkdir(exist_ok=True)
    (directory / "mine.yaml").write_text(text)
    return directory


DOUBLING = ["a0: &a0 [x, x]\n", *(f"a{i + 1}: &a{i + 1} [*a{i}, *a{i}]\n" for i in range(30))]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("kind: !!python/object/apply:os.system ['true']\n", "the YAML tag !!python/object/apply:os.system is not"),
        ("".join(DOUBLING), "aliases"),
        ("[" * 500, "not valid YAML|nested"),
        ("a: " * 50_000, "not valid YAML"),
        ("kind: model\nname: m\nmatch: {}\n" + "x" * 300_000, "over 256 KiB"),
    ],
)  # fmt: skip
def test_profiles_that_are_bombs(text: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=problem):
        load_profiles([profile(tmp_path / "mine", text)])


def test_a_name_is_no_path(tmp_path: Path) -> None:
    """Profiles are found by the name that they state; a name is never used as a path."""
    secret = tmp_path / "secret.yaml"
    secret.write_text("kind: model\nname: secret\nmatch: {}\n")
    directory = profile(tmp_path / "mine", "kind: model\nname: ../secret.yaml\nmatch: {model: x}\n")
    profiles = load_profiles([builtin_directory(), directory])
    assert set(profiles.models) - set(PROFILES.models) == {"../secret.yaml"}
    for name in ("../secret", str(secret), "secret"):
        with pytest.raises(UnknownName, match="there is no model"):
            Planner(profiles, Settings(model=name))


@pytest.mark.parametrize(
    "prompt",
    [
        "{{ ().__class__.__bases__ }}",
        "{{ tools.__class__.__mro__[1].__subclasses__() }}",
        "{% include '/etc/passwd' %}",
    ],
)
def test_a_prompt_runs_in_a_sandbox(prompt: str, tmp_path: Path) -> None:
    """A template that fails in the sandbox is rejected."""
    text = f'kind: dialect\nname: mine\ncall: "<c>{{json}}</c>"\nprompt: "{prompt}"\n'
    with pytest.raises(ProfileError, match=r"the template fails: .*(?:unsafe|no loader|undefined)"):
        load_profiles([builtin_directory(), profile(tmp_path / "mine", text)])
