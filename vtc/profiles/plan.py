"""What to do with one exchange, and why: profiles, the user's settings and the request, put together.

Precedence of a setting: the user's option, then the client profile, the model profile, the dialect, the default.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import msgspec
from msgspec.structs import replace

from vtc.dialects.cache import Memory
from vtc.dialects.syntax.description import Description
from vtc.dialects.text_client import documented_tools
from vtc.events import Message, Tool
from vtc.guards.chain import Guards
from vtc.profiles.loader import Profiles
from vtc.profiles.matching import Choice, Facts, Looks, Matched, best, every
from vtc.profiles.schema import (
    ClientProfile,
    Exchanged,
    FinalCall,
    Match,
    ModelProfile,
    PolicyProfile,
    Reasoning,
    Retry,
    ServerProfile,
)

CLIENT_PATTERNS = ("cline", "kilo", "roo")
"""Parts of the user agents of clients that read calls out of the text, when they declare no tools."""

TEXT_DIALECT = "cline"
"""The dialect of a text client whose profile names none."""
UNKNOWN_CLIENT = ClientProfile(name="unknown", match=Match())
UNKNOWN_MODEL = ModelProfile(name="unknown", match=Match())
UNKNOWN_SERVER = ServerProfile(name="unknown", match=Match())
"""The rescue default: the request is left alone, and a call that leaked into the text is lifted."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user set; an empty string or `auto` leaves the choice to the profiles."""

    client: str = ""
    model: str = ""
    server: str = ""
    tools: Literal["auto", "native", "prompt"] = "auto"
    dialect: str = ""
    lenient: Literal["auto", "on", "off"] = "auto"
    client_patterns: tuple[str, ...] = CLIENT_PATTERNS
    max_call_bytes: int = 1 << 20


def agent_pattern(agent: str, patterns: Iterable[str]) -> str | None:
    """The first of some parts of User-Agents that `agent` holds, upper and lower case alike; an empty one is none."""
    return next((pattern for pattern in patterns if pattern and pattern.casefold() in agent.casefold()), None)


class UnknownName(ValueError):
    """A setting names a profile that does not exist; `setting` is the setting."""

    def __init__(self, setting: str, name: str, known: Sequence[str]) -> None:
        super().__init__(f"there is no {setting} profile {name!r}; known are {', '.join(sorted(known)) or 'none'}")
        self.setting = setting


class Asked(Protocol):
    """What a plan depends on in a request."""

    model: str
    messages: Sequence[Message]
    tools: Sequence[Tool]
    declared: Sequence[str]
    tool_choice: str
    parallel: bool
    legacy: bool
    stream: bool


@dataclass(frozen=True, slots=True)
class TextClient:
    """How a client that declares tools in its prompt and reads calls out of the text wants them."""

    dialect: Description
    tool_sections: tuple[str, ...]
    gap: int
    extra_calls: Literal["note", "drop"]
    final_call: FinalCall | None = None


class Plan(msgspec.Struct, frozen=True):
    """The decision about one exchange; `why` says in lines for people how it came about."""

    client: str
    model: str
    why: tuple[str, ...]
    tools: tuple[Tool, ...] = ()
    """What is offered: declared in the request, or documented in the prompt of a text client."""
    withheld: frozenset[str] = frozenset()
    """Names of tools that the client offers and a policy does not."""
    tool_choice: str = "auto"
    """`auto`, `none`, `required`, or the name of the tool that must be called."""
    guards: tuple[Guards, ...] = ()
    """Policies, in the order in which they act."""
    retry: Retry | None = None
    buffered: bool = False
    """Upstream is asked without streaming, and the client is answered as a stream."""
    response_drop: frozenset[str] = frozenset()
    """Names of fields that the client is not sent."""
    read: tuple[Description, ...] = ()
    """Dialects that are read from the reply; with none the reply passes untouched."""
    write: Description | None = None
    """The dialect in which calls and results of the conversation are written; None leaves them."""
    prompt_tools: bool = False
    """Whether the tools, too, are written into the prompt."""
    promote: bool = False
    """Whether a text client's tools, calls and results are given to the model in their structured form."""
    client_text: TextClient | None = None
    """The client reads calls as text; None for `tool_calls`."""
    set: Mapping[str, Any] = {}
    drop: tuple[str, ...] = ()
    lenient: bool = True
    unknown_tools: Literal["text", "allow", "drop"] = "text"
    ids: Literal["call", "alphanumeric9"] = "call"
    max_calls: int | None = None
    limits_native: bool = False
    """Whether `max_calls` holds for calls that upstream makes in their structured form, too."""
    max_call_bytes: int = 1 << 20
    reasoning: Reasoning | None = None
    markers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Found:
    """The profiles that a request gets, and why these."""

    client: ClientProfile
    model: ModelProfile
    server: ServerProfile
    policies: tuple[PolicyProfile, ...]
    why: tuple[str, ...]


class Planner:
    """Decides about exchanges; made anew when profiles or settings change. Raises `UnknownName`."""

    def __init__(self, profiles: Profiles, settings: Settings) -> None:
        self.profiles = profiles
        self._settings = settings
        for setting, name, known in (
            ("client", settings.client, profiles.clients),
            ("model", settings.model, profiles.models),
            ("server", settings.server, profiles.servers),
            ("dialect", settings.dialect, profiles.dialects),
        ):
            if name and name not in known:
                raise UnknownName(setting, name, tuple(known))
        kinds: list[Mapping[str, Matched]] = [profiles.clients, profiles.models, profiles.servers, profiles.policies]
        self._looks = Looks(one for kind in kinds for one in kind.values())
        self.memory = Memory()
        """What was made of past turns; made anew with the profiles, as it depends on them."""
        self._framed = [dialect for dialect in profiles.dialects.values() if dialect.framed]

    def plan(self, facts: Facts, request: Asked) -> Plan:
        """The plan for a request that came with these facts."""
        settings = self._settings
        found = self.memory.made(("profiles", *self._looks.at(facts)), lambda: self._found(facts))
        client, model, server, policies, why = found.client, found.model, found.server, found.policies, [*found.why]
        done = _exchanged(Plan(client.name, model.name, ()), server, model, policies)
        guards = (model.guards, client.guards, *(policy.guards for policy in policies))
        done = replace(
            done,
            ids=model.ids,
            tool_choice=request.tool_choice,
            guards=tuple(one for one in guards if one != Guards()),
        )

        protocol, documented, reason = self._protocol(client, facts, request)
        why.append(reason)
        done = replace(done, max_call_bytes=settings.max_call_bytes, unknown_tools=model.unknown_tools)
        if protocol == "text":
            plan = self._for_text(done, client, model, documented, why)
        else:
            plan = self._for_native(done, model, request, why)
        withheld = _withheld(plan, request.declared)
        if withheld:
            why.append(f"not offered to the model: {', '.join(sorted(withheld))}")
        offered = [tool for tool in plan.tools if tool.name not in withheld]
        if plan.tool_choice in withheld or not offered:
            plan = replace(plan, tool_choice="auto")  # nobody can do what it demands
        plan = replace(plan, withheld=withheld, buffered=plan.buffered and request.stream and bool(plan.tools))
        lenient = {"on": True, "off": False}.get(settings.lenient, model.lenient is not False)
        return replace(plan, lenient=lenient, reasoning=model.reasoning, markers=model.markers, why=tuple(why))

    def _for_native(self, plan: Plan, model: ModelProfile, request: Asked, why: list[str]) -> Plan:
        dialect = self._dialect(model)
        allowed = bool(request.tools) and request.tool_choice != "none"
        prompted = self._tools(model) == "prompt" and (request.tools or _has_calls(request.messages))
        write = dialect if prompted else None
        # A model that is not prompted in a dialect writes what its profile accepts.
        expected = [dialect] if write or self._settings.dialect or model.accept == "auto" else []
        read = self._read(model, *expected) if allowed else ()
        if write:
            why.append(f"the model knows no tools: conversation{' and tools' * allowed} written as {write.name}")
        if read:
            why.append(f"calls are read as {', '.join(one.name for one in read)}")
        else:
            why.append("nothing is read: the request " + ("forbids calls" if request.tools else "offers no tools"))
        return replace(
            plan,
            tools=tuple(request.tools),
            read=read,
            write=write,
            prompt_tools=bool(write) and allowed,
            max_calls=1 if request.legacy or not request.parallel else model.max_calls,
            limits_native=bool(request.tools) and (not request.parallel or model.max_calls is not None),
        )

    def _for_text(
        self, plan: Plan, client: ClientProfile, model: ModelProfile, documented: Sequence[Tool], why: list[str]
    ) -> Plan:
        if not documented:
            why.append("its prompt documents no tools, so there is nothing to read: left alone")
            return plan
        own = self.profiles.dialects[client.dialect or TEXT_DIALECT]
        if any(guards.on_calls for guards in plan.guards):
            own = replace(own, in_code="call")  # such clients carry out what stands in code, too
        dialect = self._dialect(model)
        how = self._settings.tools if self._settings.tools != "auto" else "native" if model.promote else model.tools
        promote = how == "native" and (model.promote or self._settings.tools == "native")
        write = dialect if how == "prompt" and dialect is not own else None
        if promote:
            why.append(
                f"the model is given the {len(documented)} documented tools as `tools`, calls go back as {own.name}"
            )
        elif write:
            why.append(f"conversation and tools are written as {write.name}, calls go back as {own.name}")
        expected = [write, own] if write else [own, dialect] if self._settings.dialect else [own]
        read = self._read(model, *expected)
        why.append(f"calls are read as {', '.join(one.name for one in read)}")
        return replace(
            plan,
            tools=tuple(documented),
            read=read,
            write=write,
            prompt_tools=bool(write),
            promote=promote,
            client_text=TextClient(own, client.tool_sections, client.call_gap, client.extra_calls, client.final_call),
            max_calls=client.max_calls or model.max_calls,
        )

    def _found(self, facts: Facts) -> _Found:
        settings = self._settings
        client, why_client = self._chosen(self.profiles.clients, settings.client, facts)
        model, why_model = self._chosen(self.profiles.models, settings.model, facts)
        server, why_server = self._chosen(self.profiles.servers, settings.server, facts)
        policies = every(self.profiles.policies, facts)
        why = [why_client or "client: no profile matches", why_model or "model: no profile matches, rescue only"]
        why += [why_server] if why_server else []
        why += [f"policy {policy.name}: {told}" for policy, told in policies]
        return _Found(
            client or UNKNOWN_CLIENT,
            model or UNKNOWN_MODEL,
            server or UNKNOWN_SERVER,
            tuple(policy for policy, _ in policies),
            tuple(why),
        )

    def _chosen[T: Matched](self, profiles: Mapping[str, T], forced: str, facts: Facts) -> tuple[T | None, str]:
        if forced:
            return profiles[forced], f"{profiles[forced].kind} {forced}: forced by an option"
        choice: Choice[T] = best(profiles, facts, self.profiles.sources)
        return choice.profile, choice.why[0] if choice.profile else ""

    def _protocol(self, client: ClientProfile, facts: Facts, request: Asked) -> tuple[str, Sequence[Tool], str]:
        """`native` or `text`, the tools that a text client documents in its prompt, and the reason."""
        if client.tool_protocol == "native":
            return "native", (), f"client profile {client.name} says tool_protocol: native"
        if request.tools and client.tool_protocol == "auto":
            return "native", (), f"the request declares {len(request.tools)} tools: a native client"
        documented = _documented(request, client.tool_sections)
        if client.tool_protocol == "text":
            return "text", documented, f"client profile {client.name} says tool_protocol: text"
        agent, patterns = facts.user_agent[:80], self._settings.client_patterns
        if not patterns:
            return (
                "native",
                (),
                "the request declares no tools; vtc_client_patterns is empty: no text client is looked for",
            )
        if pattern := agent_pattern(facts.user_agent, patterns):
            reason = f"user agent {agent!r} holds {pattern!r} and the request declares no tools: a text client"
            return "text", documented, reason
        if documented:
            return "text", documented, f"the system prompt documents {len(documented)} tools: a text client"
        lacking = f"user agent {agent!r} holds none of {', '.join(map(repr, patterns))}"
        return "native", (), f"the request declares no tools, {lacking} and the prompt documents no tools"

    def _tools(self, model: ModelProfile) -> str:
        return self._settings.tools if self._settings.tools != "auto" else model.tools

    def _dialect(self, model: ModelProfile) -> Description:
        return self.profiles.dialects[self._settings.dialect or model.dialect]

    def _read(self, model: ModelProfile, *first: Description) -> tuple[Description, ...]:
        """The dialects that are read, those that are expected before the others."""
        known = self.profiles.dialects
        if model.accept == "auto":
            accepted = self._framed
        else:
            accepted = [known[name] for name in model.accept]
        return tuple({one.name: one for one in [*first, *accepted]}.values())


def _exchanged(plan: Plan, server: ServerProfile, model: ModelProfile, policies: Sequence[PolicyProfile]) -> Plan:
    """What server, model and policies say of requests and replies; of what only one can decide the last does."""
    kept = server.special_tokens if model.special_tokens else {}
    told: list[Exchanged] = [server, model, *policies]
    asked: list[ModelProfile | PolicyProfile] = [model, *policies]
    retry = next((one.retry for one in reversed(asked) if one.retry), None)
    stream = next((one.upstream_stream for one in reversed(told) if one.upstream_stream), "keep")
    sets = [server.request.set, kept, *(one.request.set for one in told[1:])]
    return replace(
        plan,
        set={key: value for fields in sets for key, value in fields.items()},
        drop=tuple(path for one in told for path in one.request.drop),
        response_drop=frozenset(name for one in told for name in one.response.drop),
        retry=retry,
        buffered=stream == "never" or retry is not None,
    )


def _has_calls(messages: Iterable[Message]) -> bool:
    return any(message.calls or message.role == "tool" for message in messages)


def _withheld(plan: Plan, declared: Iterable[str]) -> frozenset[str]:
    access = [guards.access() for guards in plan.guards if guards.is_access]
    names = {*declared, *(tool.name for tool in plan.tools)}
    return frozenset(name for name in names if any(one.fault(name) for one in access))


def _documented(request: Asked, tool_sections: tuple[str, ...]) -> tuple[Tool, ...]:
    """The tools that the system prompt documents, in whichever of its parts; by each name the first."""
    tools: dict[str, Tool] = {}
    for message in request.messages:
        for part in message.content if message.role == "system" else ():
            for tool in documented_tools.read(part, tool_sections).tools if isinstance(part, str) else ():
                tools.setdefault(tool.name, tool)
    return tuple(tools.values())
