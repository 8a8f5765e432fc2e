"""How tools and calls travel between a client and a model: as fields of the API, or as text in a dialect."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from msgspec.structs import replace

from vtc.dialects.syntax.description import Description
from vtc.events import Answer, Message, Tool
from vtc.guards.chain import Guards
from vtc.profiles.loader import Profiles
from vtc.profiles.plan import TextClient
from vtc.profiles.schema import ClientProfile, Match, ModelProfile
from vtc.profiles.settings import Settings

TEXT_DIALECT = "cline"
"""The dialect of a text client whose profile names none."""
UNKNOWN_CLIENT = ClientProfile(name="unknown", match=Match())
UNKNOWN_MODEL = ModelProfile(name="unknown", match=Match(), recalls=True)
"""The rescue default: the request is left alone, and a call that leaked into the text is lifted."""


class Asked(Protocol):
    """What a plan depends on in a request."""

    model: str
    messages: Sequence[Message]
    tools: Sequence[Tool]
    declared: Sequence[str]
    tool_choice: str
    parallel: bool
    stream: bool
    thinks: bool | None
    answer: Answer | None
    constrained: bool
    unliftable: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolProtocol:
    """How tools and calls travel between this client and this model; `why` tells people."""

    tools: tuple[Tool, ...] = ()
    dialects: tuple[Description, ...] = ()
    write: Description | None = None
    prompt_tools: bool = False
    promote: bool = False
    client_text: TextClient | None = None
    max_calls: int | None = None
    limits_native: bool = False
    why: tuple[str, ...]


class ToolProtocols:
    """Decides how tools and calls travel."""

    def __init__(self, profiles: Profiles, settings: Settings) -> None:
        self.profiles = profiles
        self.settings = settings

    def native(self, model: ModelProfile, request: Asked) -> ToolProtocol:
        """Decide for a client that sends tools and reads calls as the API's own fields."""
        dialect = self._dialect(model)
        allowed = bool(request.tools) and request.tool_choice != "none"
        prompted = self._tools(model) == "prompt" and (request.tools or _has_calls(request.messages))
        write = dialect if prompted else None
        # A model that is not prompted in a dialect writes what its profile accepts.
        named = model.accept == "auto" and model is not UNKNOWN_MODEL
        expected = [dialect] if write or self.settings.dialect or named else []
        dialects = self._read(model, *expected) if allowed else ()
        why = []
        written = write.name if write else ""
        answers = {one.name for one in dialects if one.is_json_reply and one.name != written}
        if request.answer and answers:
            dialects = tuple(one for one in dialects if one.name not in answers)
            expected = [one for one in expected if one.name not in answers]
            why.append("the request asks for JSON: an object that is the whole reply is no call")
        if write:
            why.append(f"the model knows no tools: conversation{' and tools' * allowed} written as {write.name}")
        if dialects:
            why.append(_read_as(dialects, model, *expected))
        else:
            why.append("nothing is read: the request " + ("forbids calls" if request.tools else "offers no tools"))
        return ToolProtocol(
            tools=tuple(request.tools),
            dialects=dialects,
            write=write,
            prompt_tools=bool(write) and allowed,
            max_calls=1 if not request.parallel else model.max_calls,
            limits_native=bool(request.tools) and (not request.parallel or model.max_calls is not None),
            why=tuple(why),
        )

    def text(
        self, client: ClientProfile, model: ModelProfile, guards: Sequence[Guards], documented: Sequence[Tool]
    ) -> ToolProtocol:
        """Decide for a client that documents tools in its prompt and reads calls out of the text."""
        own = self.profiles.dialects[client.dialect or TEXT_DIALECT]
        if any(one.on_calls for one in guards):
            own = replace(own, in_code="call")  # such clients carry out calls in code blocks, too
        text = TextClient(
            own,
            client.tool_sections,
            client.call_gap,
            client.extra_calls,
            client.final_call,
            client.known_tools,
            client.known_parameters,
        )
        if not documented and not any(one.is_strict for one in guards):
            reason = "no tools are found in its prompt, so its text is left alone; the server's own calls become text"
            return ToolProtocol(client_text=text, why=(reason,))
        dialect = self._dialect(model)
        how = self.settings.tools if self.settings.tools != "auto" else "native" if model.promote else model.tools
        promote = how == "native" and (model.promote or self.settings.tools == "native")
        write = dialect if how == "prompt" and dialect is not own else None
        expected = [write, own] if write else [own, dialect] if self.settings.dialect else [own]
        dialects = self._read(model, *expected)
        why = []
        if promote:
            why.append(
                f"the model is given the {len(documented)} documented tools as `tools`, calls go back as {own.name}"
            )
        elif write:
            why.append(f"conversation and tools are written as {write.name}, calls go back as {own.name}")
        return ToolProtocol(
            tools=tuple(documented),
            dialects=dialects,
            write=write,
            prompt_tools=bool(write),
            promote=promote,
            client_text=text,
            max_calls=client.max_calls or model.max_calls,
            why=(*why, _read_as(dialects, model, *expected)),
        )

    def _tools(self, model: ModelProfile) -> str:
        return self.settings.tools if self.settings.tools != "auto" else model.tools

    def _dialect(self, model: ModelProfile) -> Description:
        return self.profiles.dialects[self.settings.dialect or model.dialect]

    def _read(self, model: ModelProfile, *first: Description) -> tuple[Description, ...]:
        return read_dialects(self.profiles, model, *first)


def own_tokens(model: ModelProfile) -> frozenset[str]:
    """Name the dialects of which the special tokens are the model's own."""
    return frozenset(model.accept if model.special_tokens and model.accept != "auto" else ())


def read_dialects(profiles: Profiles, model: ModelProfile, *first: Description) -> tuple[Description, ...]:
    """List the dialects that are read: those that are expected, then all others as far as no one writes them by chance.

    Where two would read the same text, the one that more models write is named.
    """
    own = () if model.accept == "auto" else model.accept
    read: dict[str, Description] = {}
    known = (profiles.dialects[name] for name in own)
    for dialect in (*first, *known, *profiles.rescued):
        read.setdefault(dialect.name, replace(dialect, fenced=True) if dialect.name in own else dialect)
    return tuple(read.values())


def _read_as(dialects: Sequence[Description], model: ModelProfile, *first: Description) -> str:
    """Name the dialects that are expected, and count the others."""
    own = () if model.accept == "auto" else model.accept
    names = list(dict.fromkeys([*(one.name for one in first), *own]))
    if others := len(dialects) - len(names):
        names.append(f"any of {others} other dialects" if names else f"any of {others} dialects")
    return f"calls are read as {', '.join(names)}"


def _has_calls(messages: Iterable[Message]) -> bool:
    return any(message.calls or message.role == "tool" for message in messages)
