"""With `vtc_cache=off` no content of a client or a model stays in memory after an exchange.

All content of the conversations below contains one word, `mark()`. The tests search for it in all texts and bytes that
are reachable from any object of this process.
"""

from __future__ import annotations

import asyncio
import gc
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest
from mitmproxy import http
from mitmproxy.test import taddons, tflow, tutils

from tests.apis import chat
from tests.exchanges import AGENT, API, feed_stream, planner
from vtc.dialects.bounded_cache import COMPILED_PATTERNS
from vtc.exchange import Session
from vtc.proxy.addon import VirtualToolCalling

POLICY = """\
kind: policy
name: checking
match: {}
guards:
  arguments: {misfit: steer}
  content: [{pattern: 'never said'}]
  denied_tools: ["forbidden*"]
  loop: {max_tool_messages: 9}
"""


def mark() -> str:
    """Build the word again for each call, so that no lasting object contains it, including this module's code."""
    return "".join(map(chr, (122, 113, 120, 109, 97, 114, 107)))


# Conversations


def declare_marked_tools(number: int) -> list[chat.Json]:
    """Declare tools with the word in all texts: names, descriptions and schemas, also of a tool that a policy
    withholds.
    """
    schema = {
        "type": "string",
        "description": f"The {mark()} path.",
        "pattern": f"^({mark()}|.*)$",
        "examples": [f"{mark()}.py"],
    }
    tools = [chat.tool(f"{mark()}_read{number}", **{f"{mark()}_path": schema}), chat.tool(f"forbidden_{mark()}")]
    tools[0]["function"]["description"] = f"Reads what {mark()} wrote."
    return tools


def document_marked_tools(number: int) -> str:
    """Return the same tools in the system prompt of a text client."""
    name, path = f"{mark()}_read{number}", f"{mark()}_path"
    return (
        f"You are {mark()}.\n\n# Tools\n\n## {name}\nDescription: Reads what {mark()} wrote.\nParameters:\n"
        f"- {path}: (required) The {mark()} path.\nUsage:\n<{name}>\n<{path}>a {mark()} file</{path}>\n</{name}>\n\n"
        f"# Rules\n\nSay {mark()}.\n"
    )


def native(number: int) -> chat.Json:
    """Return a conversation of a native client, with a call, its result and a reply."""
    name, arguments = f"{mark()}_read{number}", json.dumps({f"{mark()}_path": f"</parameter>{mark()}"})
    called = {"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}
    turns = [
        {"role": "system", "content": f"You are {mark()}."},
        {"role": "user", "content": f"Look at {mark()}."},
        {"role": "assistant", "content": f"I look at {mark()}.", "tool_calls": [called]},
        {"role": "tool", "tool_call_id": "c1", "content": f"It says {mark()}."},
    ]
    return chat.request(stream=True, tools=declare_marked_tools(number), messages=turns, model="lab-model", user=mark())


def text(number: int) -> chat.Json:
    """Return a conversation of a text client."""
    name, path = f"{mark()}_read{number}", f"{mark()}_path"
    turns = [
        {"role": "system", "content": document_marked_tools(number)},
        {"role": "user", "content": f"Look at {mark()}."},
        {"role": "assistant", "content": f"I look at {mark()}.\n<{name}>\n<{path}>{mark()}</{path}>\n</{name}>"},
        {"role": "user", "content": f"[{name} for '{mark()}'] Result:\n\nIt says {mark()}."},
    ]
    return chat.request(stream=True, tools=None, messages=turns, model="lab-model", user=mark())


def replies(number: int) -> Sequence[str]:
    """Return replies with calls that are correct, malformed, cut off or of an unknown tool, and without calls."""
    name, path = f"{mark()}_read{number}", f"{mark()}_path"
    hermes = chat.DIALECTS["hermes"](name, {path: mark()})
    coder = chat.DIALECTS["qwen3-coder"](name, {path: mark()})
    return (
        f"I look at `{mark()}`.\n{hermes}",
        f"{coder}\n{chat.DIALECTS['tag'](name, {path: mark()})}",
        hermes.replace("</tool_call>", f"</{mark()}"),
        coder.replace("</parameter>", "").replace("</function>", f"inv{name}>"),
        chat.DIALECTS["invoke"](name, {f"{mark()}_none": mark(), path: mark()}),
        chat.DIALECTS["tag"](f"{mark()}_other", {path: mark()})[:-3],
        f"Nothing but {mark()}.",
    )


# Exchanges


def exchange(addon: VirtualToolCalling, body: bytes, reply: str, *, streamed: bool) -> None:
    """Pass one exchange through the addon's hooks, to its end."""
    headers = http.Headers(content_type="application/json", user_agent=f"Cline/{mark()}")
    request = tutils.treq(method=b"POST", path=b"/v1/chat/completions", headers=headers, content=body)
    flow = tflow.tflow(req=request)
    asyncio.run(addon.request(flow))
    if streamed:
        flow.response = tutils.tresp(headers=http.Headers(content_type="text/event-stream"), content=None)
        asyncio.run(addon.responseheaders(flow))
        assert callable(flow.response.stream)
        for frame in [*chat.make_stream(*(reply[i : i + 9] for i in range(0, len(reply), 9))), b""]:
            for word in (b"chatcmpl-", chat.MODEL.encode()):
                frame = frame.replace(word, word + mark().encode())
            flow.response.stream(frame)
    else:
        whole = chat.encode_json(chat.completion(reply))
        flow.response = tutils.tresp(headers=http.Headers(content_type="application/json"), content=whole)
        asyncio.run(addon.responseheaders(flow))
    asyncio.run(addon.response(flow))


def converse(addon: VirtualToolCalling, most: int = 2) -> None:
    """Run all conversations with `most` replies each, streamed and whole."""
    for number, reply in enumerate(replies(0)[:most]):
        for conversation in (native, text):
            for streamed in (True, False):
                body = {**conversation(number), "stream": streamed}
                exchange(addon, chat.encode_json(body), reply.replace("_read0", f"_read{number}"), streamed=streamed)
    unfit = tflow.tflow(req=tutils.treq(method=b"POST", path=b"/v1/chat/completions", content=mark().encode()))
    asyncio.run(addon.request(unfit))


# The search


def list_untracked(one: Any) -> list[object]:
    """Return the objects that an object contains without telling the garbage collector."""
    kind = type(one)  # `__class__` of a proxy object is that of another object
    if issubclass(kind, msgspec.Struct):
        return [getattr(one, name) for name in one.__struct_fields__]
    if issubclass(kind, re.Pattern):
        return [one.pattern, *one.groupindex]
    if issubclass(kind, re.Match):
        return [one.string]
    if issubclass(kind, msgspec.Raw | bytearray | memoryview):
        return [bytes(one)]
    return []


@pytest.fixture(autouse=True)
def unlogged(caplog: pytest.LogCaptureFixture) -> None:
    """Disable VTC's log, because pytest would store its lines, which contain names of tools."""
    caplog.set_level("CRITICAL", "vtc")


def find_marked() -> list[str]:
    """Return the texts that contain the word; use `gc.get_referrers` to find their owners."""
    gc.unfreeze()  # an earlier addon froze objects, which the collector does not list
    gc.collect()
    word = mark()
    data = word.encode()
    seen = {id(word), id(data)}
    found: list[str] = []
    # A module's dict is a separate object. `_asyncio` lists some objects that are freed already.
    rest = [one for one in gc.get_objects() if type(one) is not ModuleType]
    while rest:
        held = {
            id(one): one for one in [*gc.get_referents(*rest), *(part for one in rest for part in list_untracked(one))]
        }
        rest.clear()
        for key, one in held.items():
            if key in seen:
                continue
            if issubclass(type(one), str | bytes):
                if word in one if isinstance(one, str) else data in one:
                    found.append(repr(one[:200]).replace(word, "[mark]"))  # otherwise the next search would find this
            elif not gc.is_tracked(one):  # otherwise the collector lists it
                seen.add(key)
                rest.append(one)
    return found


@pytest.fixture
def addon(tmp_path: Path) -> Iterator[Callable[..., VirtualToolCalling]]:
    """Return a function that configures an addon."""
    (tmp_path / "policy.yaml").write_text(POLICY)
    running = VirtualToolCalling()
    with taddons.context(running) as context:

        def configure_addon(**options: Any) -> VirtualToolCalling:
            context.options.reset()
            context.configure(running, vtc_profiles=[str(tmp_path)], **options)
            return running

        yield configure_addon


WITHOUT_MEMORY = (
    {"vtc_model": "qwen3-coder", "vtc_tools": "prompt"},
    {"vtc_model": "hermes", "vtc_tools": "prompt"},
    {"vtc_model": "qwen3", "vtc_tools": "native"},
    {"vtc_model": "llama3", "vtc_mode": "observe"},
)


@pytest.mark.alone
@pytest.mark.parametrize(
    ("replies", "some"),
    [
        pytest.param(2, WITHOUT_MEMORY[:1], id="few", marks=pytest.mark.rest),
        pytest.param(5, WITHOUT_MEMORY, id="many", marks=pytest.mark.rest),
    ],
)
def test_no_content_is_reachable_afterwards_if_memory_is_off(
    replies: int, some: Sequence[Mapping[str, str]], addon: Callable[..., VirtualToolCalling]
) -> None:
    """Only the objects of this test are found, which shows that the search works."""
    kept: list[object] = [f"{mark()} is kept", f"and {mark()}".encode()]
    converse(addon(vtc_cache="off"), replies)
    for options in some:
        converse(addon(vtc_cache="off", **options), 1)
    assert sorted(find_marked()) == ["'[mark] is kept'", "b'and [mark]'"]
    del kept


@pytest.mark.alone
@pytest.mark.rest
def test_prompts_and_names_are_found_until_memory_is_switched_off(addon: Callable[..., VirtualToolCalling]) -> None:
    """Control for the search. Apart from the last sent prompts only names are found."""
    running = addon(vtc_model="qwen3-coder", vtc_tools="prompt")
    converse(running)
    assert running.memory is not None
    assert COMPILED_PATTERNS.size > 0
    assert "You are [mark]" in "\n".join(find_marked())
    running.memory.prompts.clear()
    found = "\n".join(find_marked())
    for pattern in ("{}_read1", "{}_path"):
        assert pattern.format("[mark]") in found, pattern
    for pattern in (
        "You are {}",
        "Reads what {}",
        "The {} path",
        "ook at {}",
        "It says {}",
        "Nothing but {}",
        "Cline/{}",
    ):
        assert pattern.format("[mark]") not in found, pattern
    addon(vtc_cache="off")
    assert find_marked() == []


@pytest.mark.alone
@pytest.mark.rest
def test_without_an_addon_only_names_stay_in_compiled_patterns() -> None:
    for conversation in (native, text):
        opened = Session.open(API, chat.encode_json(conversation(0)), AGENT, planner(tools="prompt"), "seed")
        opened.encode_request()
        stream = opened.stream()
        feed_stream(stream, *chat.make_stream(replies(0)[0]))
    del opened, stream
    assert COMPILED_PATTERNS.size > 0
    COMPILED_PATTERNS.evict_temporary()
    assert find_marked() == []


def test_reloading_profiles_forgets_learned_quirks(addon: Callable[..., VirtualToolCalling]) -> None:
    running = addon()
    before = running.memory
    addon(vtc_lenient="off")
    assert running.memory is not before
    assert running.memory is not None


def test_an_addon_shares_its_memory_with_no_other() -> None:
    one, other = VirtualToolCalling(), VirtualToolCalling()
    for running in (one, other):
        with taddons.context(running) as context:
            context.configure(running, vtc_mode="rewrite")
    assert one.memory is not None
    assert one.memory is not other.memory
