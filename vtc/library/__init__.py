"""The library: read a model's reply and write calls, without a proxy.

    reply = vtc.parse(text, tools=request["tools"], model="Qwen/Qwen3-Coder-30B")
    reply.text, reply.reasoning, reply.calls

    reader = vtc.Reader(tools=request["tools"], model="Qwen/Qwen3-Coder-30B")
    for event in reader.feed(chunk):  # vtc.Text, vtc.Reasoning or vtc.Call
        ...

    session = vtc.Session(body, server_api="openai-chat")  # in `session.py`
    session.request, session.feed(chunk), session.finish()

A reply is read by the same pipeline as in the proxy, in a session of its own. `docs/library.md` describes each name;
`vtc` imports these modules when one of them is first used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from secrets import token_hex
from typing import Any

import msgspec

from vtc.apis import APIS, openai_chat
from vtc.dialects.builtin import builtin_directory
from vtc.dialects.writing import render_tool_list, write_calls
from vtc.events import Call, Event, Reasoning, Rewritten, Text, Tool
from vtc.exchange import Session
from vtc.json_text import decode_json, encode_json
from vtc.profiles import Planner, Profiles, Settings, load_profiles
from vtc.profiles.loader import add_policy
from vtc.profiles.matching import Facts
from vtc.proof import CallProver, Proof
from vtc.xml_helpers import make_tool_calls

type ToolDeclarations = Mapping[str, Any] | Iterable[Mapping[str, Any]]
"""Declarations of tools in the form of any of the five APIs, bare functions, or a request that has them in `tools`."""
type LibraryEvent = Text | Reasoning | Call

_TOOL_FORM_KEYS = frozenset({"type", "function", "input_schema"})
"""Keys that distinguish an entry of `tools` from a bare function."""
MAX_PLANNERS = 64
"""Maximum number of planners that are cached; each session needs the one of its settings."""


class Parsed(msgspec.Struct, frozen=True, kw_only=True):
    """A reply that was parsed as a whole."""

    text: str
    """The message for the user, without calls and reasoning."""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    """The calls in order."""
    unread_calls: tuple[Mapping[str, Any], ...] = ()
    """Texts that began like a call and were not read as one, with `reason`, `name`, `dialect` and `excerpt`."""

    def proof(self) -> tuple[Proof, ...]:
        """Prove for each call that its values are characters of the reply (`vtc.proof`)."""
        prover = CallProver()
        return tuple(prover.prove(call) for call in self.calls)


class ReplyReader:
    """Reads one reply while it streams: `vtc.Reader`. Events join to the reply, except for markup."""

    def __init__(self, tools: ToolDeclarations, model: str | None = None, dialect: str | None = None) -> None:
        """Set up the reader; only calls of `tools` count.

        `model` is the name by which a profile is chosen, as in a request; `dialect` is the first dialect to read.
        Raises ValueError if there is no such dialect, and if `tools` have no form of a known API.
        """
        self._session = _open_session(tools, model, dialect)
        self._pipeline = self._session.create_pipeline(whole=False)

    def feed(self, text: str) -> list[LibraryEvent]:
        """Return the events that are certain by now: text and reasoning at once, a call when it is complete."""
        return _select_events(self._pipeline.feed(text))

    def finish(self, *, complete: bool = True) -> list[LibraryEvent]:
        """Return the events at the end of the reply; it is not `complete` if the token limit cut it off."""
        return _select_events(self._pipeline.finish(complete=complete))


def parse(
    text: str, tools: ToolDeclarations, model: str | None = None, dialect: str | None = None, *, complete: bool = True
) -> Parsed:
    """Parse a whole reply; the parameters are those of `vtc.Reader` and of its `finish`. Raises ValueError."""
    session = _open_session(tools, model, dialect)
    pipeline = session.create_pipeline(whole=True)
    events = _select_events([*pipeline.feed(text), *pipeline.finish(complete=complete)])
    return Parsed(
        text="".join(event.raw for event in events if isinstance(event, Text)),
        reasoning="".join(event.raw for event in events if isinstance(event, Reasoning)),
        calls=tuple(event for event in events if isinstance(event, Call)),
        unread_calls=tuple(session.report.refusals),
    )


def render_prompt(tools: ToolDeclarations, dialect: str) -> str:
    """Render the part of a system prompt that declares tools and shows a call in a dialect. Raises ValueError."""
    functions, _ = read_tools(tools)
    return render_tool_list(_load_builtin_profiles().get_dialect(dialect), [*functions.values()])


def render_calls(calls: Iterable[Call | Mapping[str, Any]], dialect: str, tools: ToolDeclarations = ()) -> str:
    """Render calls as a model writes them in a dialect; the schemas of `tools` decide how values are written.

    A call is a `vtc.Call` or has OpenAI's form, with arguments as JSON text or as an object. Raises ValueError.
    """
    functions, _ = read_tools(tools)
    entries = [call.call.as_openai() if isinstance(call, Call) else call for call in calls]
    return write_calls(make_tool_calls(entries), _load_builtin_profiles().get_dialect(dialect), functions)


def read_tools(tools: ToolDeclarations) -> tuple[dict[str, Tool], frozenset[str]]:
    """Return the functions by name, and the names of all declared tools; some are run by the server.

    Each API ignores entries that are not in its form. Raises ValueError if no entry is a function.
    """
    listed: Any = tools.get("tools") if isinstance(tools, Mapping) else tools
    listed = [*listed] if isinstance(listed, Iterable) and not isinstance(listed, str | Mapping) else listed
    if listed is None:
        raise ValueError("the object has no key `tools`")
    if not isinstance(listed, list) or not all(isinstance(entry, Mapping) for entry in listed):
        raise ValueError("it is not a list of objects")
    entries = [_wrap_bare_function(entry) for entry in listed]
    body = encode_json({"model": "any", "messages": [], "input": [], "tools": entries})
    requests = [api.request(body) for api in reversed(APIS)]
    functions = {tool.name: tool for request in requests for tool in request.offer.tools}
    if listed and not functions:
        raise ValueError("no entry is a function")
    return functions, frozenset(name for request in requests for name in request.offer.declared)


def _wrap_bare_function(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Wrap a bare function in an entry of `tools`; return any other entry unchanged."""
    is_bare = "name" in entry and not _TOOL_FORM_KEYS & entry.keys()
    return {"type": "function", "function": entry} if is_bare else entry


def _open_session(tools: ToolDeclarations, model: str | None, dialect: str | None) -> Session:
    """Open a session of chat completions in which these tools are offered to a model."""
    functions, _ = read_tools(tools)
    declared = [tool.as_openai() for tool in functions.values()]
    body = encode_json({"model": model or "", "messages": [{"role": "user", "content": ""}], "tools": declared})
    return Session.open(openai_chat.API, body, Facts(), make_planner(Settings(dialect=dialect or "")), token_hex(8))


def _select_events(events: Iterable[Event]) -> list[LibraryEvent]:
    """Select the events that make up the reply for a client; text that was changed is text."""
    texts = (Text(event.text) if isinstance(event, Rewritten) else event for event in events)
    return [event for event in texts if isinstance(event, Text | Reasoning | Call)]


@lru_cache(MAX_PLANNERS)
def make_planner(settings: Settings, paths: Sequence[Path] = (), policy: bytes = b"") -> Planner:
    """Make the planner for settings, the user's profiles and a policy as JSON. Raises ValueError."""
    profiles = load_profiles([builtin_directory(), *paths]) if paths else _load_builtin_profiles()
    return Planner(add_policy(profiles, decode_json(policy)) if policy else profiles, settings)


@cache
def _load_builtin_profiles() -> Profiles:
    return load_profiles([builtin_directory()])
