"""Decides about an exchange: profiles, the user's settings and the request, put together.

Precedence of a setting: the user's option, then the client profile, the model profile, the dialect, the default.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as dataclass_replace
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from vtc.dialects.text_client import documented_tools
from vtc.events import Tool
from vtc.guards.chain import Guards
from vtc.guards.names import ToolNames
from vtc.guards.reactors import as_written
from vtc.profiles.constraining import constraining
from vtc.profiles.loader import Profiles
from vtc.profiles.matching import Choice, Facts, Matched, best, every
from vtc.profiles.memory import Lessons, Memory
from vtc.profiles.plan import Plan, ReadingPlan, ReplyPlan, RequestPlan, Thinking
from vtc.profiles.schema import (
    ClientProfile,
    Exchanged,
    ModelProfile,
    PolicyProfile,
    Retry,
    ServerProfile,
)
from vtc.profiles.settings import Settings, UnknownName
from vtc.profiles.thinking import thinking, told_thoughts
from vtc.profiles.tool_protocol import UNKNOWN_CLIENT, UNKNOWN_MODEL, Asked, ToolProtocol, ToolProtocols, own_tokens

PROMPT = "prompt"
"""The lesson that the server cannot read the calls of its own model: the tools are written into the prompt."""


def agent_pattern(agent: str, patterns: Iterable[str]) -> str | None:
    """The first of some parts of User-Agents that `agent` holds, upper and lower case alike; an empty one is none."""
    return next((pattern for pattern in patterns if pattern and pattern.casefold() in agent.casefold()), None)


@dataclass(frozen=True, slots=True)
class _Found:
    """The profiles that a request gets, and all that they decide alone."""

    client: ClientProfile
    model: ModelProfile
    server: ServerProfile
    guards: tuple[Guards, ...]
    set: Mapping[str, Any]
    drop: tuple[str, ...]
    response_drop: frozenset[str]
    thoughts: tuple[str, ...]
    retry: Retry | None
    unstreamed: bool
    """A streaming request that offers tools is asked without streaming."""
    why: tuple[str, ...]


class Planner:
    """Decides about exchanges; made anew when profiles or settings change. Raises `UnknownName`."""

    def __init__(self, profiles: Profiles, settings: Settings) -> None:
        self.profiles = profiles
        self.settings = settings
        self._protocols = ToolProtocols(profiles, settings)
        for setting, name, known in (
            ("client", settings.client, profiles.clients),
            ("model", settings.model, profiles.models),
            ("server", settings.server, profiles.servers),
            ("dialect", settings.dialect, profiles.dialects),
        ):
            if name and name not in known:
                raise UnknownName(setting, name, tuple(known))

    def with_settings(self, given: Mapping[str, Any]) -> Planner:
        """A planner with these settings, plain data, but for those that this one was given; raises ValueError."""
        settings = msgspec.convert({**given, **self.settings.chosen()}, Settings)
        return self if settings == self.settings else Planner(self.profiles, settings)

    def plan(
        self, facts: Facts, request: Asked, memory: Memory | None = None, taught: Mapping[str, Any] | None = None
    ) -> Plan:
        """Decide about a request that came with these facts.

        `memory` knows what upstreams did before; `taught` are the steps that this one taught by refusing it.
        """
        settings = self.settings
        server_model = self.server_model(facts)
        facts = dataclass_replace(facts, model=server_model) if server_model else facts
        found = self._found(facts)
        lessons = memory.lessons(*facts.whose, facts.model) if memory else Lessons()
        learned = {**lessons.known(), **(taught or {})}
        client, model, guards = found.client, found.model, found.guards
        if learned.get(PROMPT):
            model = replace(model, tools="prompt")
        documented, reason = self._documented(client, facts, request)
        if request.unliftable:
            protocol = ToolProtocol(tools=tuple(request.tools), why=(request.unliftable,))
        elif documented is None:
            protocol = self._protocols.native(model, request)
        else:
            protocol = self._protocols.text(client, model, guards, documented)
        tools = protocol.tools
        withheld = _withheld(guards, {*request.declared, *(tool.name for tool in tools)})
        offered = tuple(tool for tool in tools if tool.name not in withheld)
        # Nothing can be demanded of a model that is not offered the tool.
        tool_choice = request.tool_choice if offered and request.tool_choice not in withheld else "auto"
        by_name = {tool.name: tool for tool in tools}
        reactors = [reactor for one in guards for reactor in one.reactors]
        lenient = {"on": True, "off": False}.get(settings.lenient, model.lenient is not False)
        unknown_tools = model.unknown_tools if settings.unknown_tools == "auto" else settings.unknown_tools
        if protocol.client_text and unknown_tools == "allow":
            unknown_tools = "text"  # what such a client does not know it shows as text itself
        echo = model.echo if settings.echo == "auto" else settings.echo
        if protocol.client_text and echo == "text":
            echo = "steer"  # such a client would carry out what it finds in the text
        thoughts = thinking(
            None if model is UNKNOWN_MODEL else model,
            found.server,
            facts,
            memory,
            asked=request.thinks,
            text_client=protocol.client_text is not None,
        )
        steps = {**_steps(found), **{key: one for key, one in learned.items() if key != PROMPT}}
        why_grammar = self._constrain(steps, learned, request, protocol, offered, tool_choice, thoughts)
        buffered = found.unstreamed and request.stream and bool(tools)
        why = [*found.why, reason, *protocol.why, *why_grammar]
        if server_model:
            why.append(f"model {request.model}: the server is asked for {server_model}")
        if needed := [name for name in learned if name not in ("constrain", "strict")]:
            why.append(f"the server refused requests without: {', '.join(needed)}")
        if withheld:
            why.append(f"not offered to the model: {', '.join(sorted(withheld))}")
        return Plan(
            client.name,
            model.name,
            tuple(why),
            tools,
            request=RequestPlan(
                offered=offered,
                withheld=withheld,
                tool_choice=tool_choice,
                client_text=protocol.client_text,
                write=protocol.write,
                prompt_tools=protocol.prompt_tools,
                promote=protocol.promote,
                set=found.set,
                drop=found.drop,
                unstreamed=buffered,
                ready=steps,
                as_is=found.server.ready == "as-is",
                lessons=lessons,
                thoughts=found.server.thoughts or told_thoughts(facts, memory),
                recalls=_recalls(found),
                skips_billing=found.server.skips_billing,
                loops=tuple(one.loop for one in guards if one.loop),
            ),
            reading=ReadingPlan(
                dialects=protocol.dialects,
                tools=as_written(reactors, by_name) if reactors else by_name,
                lenient=lenient,
                unknown_tools=unknown_tools,
                echo=echo,
                own=own_tokens(model),
                max_call_bytes=settings.max_call_bytes,
                thinking=thoughts,
                markers=model.markers,
                answer=(model.answer.open, model.answer.close),
            ),
            reply=ReplyPlan(
                client_text=protocol.client_text,
                guards=guards,
                tool_choice=tool_choice,
                max_calls=protocol.max_calls,
                limits_native=protocol.limits_native,
                ids=_ids(found),
                lenient=lenient,
                unknown_tools=unknown_tools,
                unoffered=frozenset(request.declared) - by_name.keys(),
                drop=found.response_drop,
                thoughts=found.thoughts,
                errors=found.server.errors,
                retry=found.retry,
                in_pieces=client.deliver == "incremental" and not (guards or buffered),
                buffered=buffered,
            ),
            server_apis=self._apis(found),
            server_path=found.server.api_path,
            server_model=server_model,
        )

    def _constrain(
        self,
        steps: dict[str, Any],
        learned: Mapping[str, Any],
        request: Asked,
        protocol: ToolProtocol,
        offered: Sequence[Tool],
        tool_choice: str,
        thoughts: Thinking,
    ) -> list[str]:
        """Settle the steps that have the server decode by a grammar, and say why."""
        wish, form = self.settings.constrain, steps.pop("constrain", None)
        strict = steps.pop("strict", None) and wish == "auto" and not (protocol.write or request.constrained)
        if strict:
            steps["strict"] = True
        if not form:
            refused = learned.get("constrain") is False or learned.get("strict") is False
            return ["no grammar: the server refused one before"] * (refused and wish != "off")
        found, why = constraining(form, wish, request, protocol, offered, tool_choice, thoughts)
        if found:
            steps["constrain"] = found
        return [why] if why else []

    def serves(self, facts: Facts, api: str) -> bool:
        """True if the server of a request speaks an API itself, as far as is known."""
        apis = self._apis(self._found(facts))
        return not apis or api in apis

    def models(self, facts: Facts) -> list[str]:
        """List the names of models that stand for others, but for globs."""
        server, _ = self._chosen(self.profiles.servers, self.settings.server, facts)
        names = [one.partition("=")[0] for one in self.settings.models]
        return [one for one in (*names, *(server.models if server else ())) if not {*one} & {*"*?["}]

    def tokenizes(self, facts: Facts) -> bool:
        """True if the server counts tokens when it is asked."""
        server, _ = self._chosen(self.profiles.servers, self.settings.server, facts)
        return server is not None and server.tokenize

    def _apis(self, found: _Found) -> tuple[str, ...]:
        """Tell which APIs the server speaks; none if it is to be that of the client."""
        said = self.settings.upstream_api or found.model.api or found.server.api or ()
        return () if "same" in said else (said,) if isinstance(said, str) else tuple(said)

    def server_model(self, facts: Facts) -> str:
        """Find the model that the server is asked for; empty for the one of the request."""
        server, _ = self._chosen(self.profiles.servers, self.settings.server, facts)
        pairs = [(glob, name) for glob, _, name in (one.partition("=") for one in self.settings.models)]
        pairs += server.models.items() if server else ()
        name = facts.model.casefold()
        return next((to for glob, to in pairs if fnmatch.fnmatchcase(name, glob.casefold())), "")

    def refuses(self, facts: Facts) -> bool:
        """True if a policy that refuses calls holds for a request of which only these facts are known."""
        return any(guards.is_strict for guards in self._found(facts).guards)

    def _found(self, facts: Facts) -> _Found:
        """Find the profiles, and put together what they say; of what only one can decide the last does."""
        settings = self.settings
        chosen_client, why_client = self._chosen(self.profiles.clients, settings.client, facts)
        chosen_model, why_model = self._chosen(self.profiles.models, settings.model, facts)
        chosen_server, why_server = self._chosen(self.profiles.servers, settings.server, facts)
        client, model = chosen_client or UNKNOWN_CLIENT, chosen_model or UNKNOWN_MODEL
        server = chosen_server or self.profiles.unknown_server
        matching = every(self.profiles.policies, facts)
        why = [
            why_client or "client: no profile matches",
            why_model or "model: no profile matches; all framed dialects are read",
        ]
        why += [why_server] if why_server else []
        why += [f"policy {policy.name}: {told}" for policy, told in matching]

        policies = [policy for policy, _ in matching]
        guards = (model.guards, client.guards, *(policy.guards for policy in policies))
        kept = server.special_tokens if model.special_tokens else {}
        said: list[Exchanged] = [server, model, *policies]
        asked: list[ModelProfile | PolicyProfile] = [model, *policies]
        retry = next((one.retry for one in reversed(asked) if one.retry), None)
        stream = next((one.upstream_stream for one in reversed(said) if one.upstream_stream), "keep")
        sets = [server.request.set, kept, *(one.request.set for one in said[1:])]
        return _Found(
            client,
            model,
            server,
            guards=tuple(one for one in guards if one != Guards()),
            set={key: value for fields in sets for key, value in fields.items()},
            drop=tuple(path for one in said for path in one.request.drop),
            thoughts=next((one.response.thoughts for one in reversed(said) if one.response.thoughts), ()),
            response_drop=frozenset(name for one in said for name in one.response.drop),
            retry=retry,
            unstreamed=stream == "never" or retry is not None,
            why=tuple(why),
        )

    def _chosen[T: Matched](self, profiles: Mapping[str, T], forced: str, facts: Facts) -> tuple[T | None, str]:
        if forced:
            kind = profiles[forced].kind
            also = ", or recognised by `vtc run`" if kind == "server" else ""
            return profiles[forced], f"{kind} {forced}: named by the option vtc_{kind}{also}"
        choice: Choice[T] = best(profiles, facts, self.profiles.sources)
        return choice.profile, choice.why[0] if choice.profile else ""

    def _documented(self, client: ClientProfile, facts: Facts, request: Asked) -> tuple[Sequence[Tool] | None, str]:
        """Find the tools that a text client documents in its prompt; None for a native client. And the reason."""
        if client.tool_protocol == "native":
            return None, f"client profile {client.name} says tool_protocol: native"
        if request.tools and client.tool_protocol == "auto":
            return (
                None,
                f"the request declares {len(request.tools)} tool{'s' * (len(request.tools) != 1)}: a native client",
            )
        documented, unread = _documented_tools(request, client.tool_sections)
        if client.tool_protocol == "text":
            return documented, f"client profile {client.name} says tool_protocol: text{unread}"
        agent, patterns = facts.user_agent[:80], self.settings.client_patterns
        if not patterns:
            return None, "the request declares no tools; vtc_client_patterns is empty: no text client is looked for"
        if pattern := agent_pattern(facts.user_agent, patterns):
            reason = f"user agent {agent!r} holds {pattern!r} and the request declares no tools: a text client{unread}"
            return documented, reason
        if documented:
            return documented, f"the system prompt documents {len(documented)} tools: a text client"
        lacking = f"user agent {agent!r} holds none of {', '.join(map(repr, patterns))}"
        return None, f"the request declares no tools, {lacking} and the prompt documents no tools{unread}"


def _steps(found: _Found) -> Mapping[str, Any]:
    """Put together the steps that make requests ready; the server's profile decides."""
    ready = found.server.ready
    return {} if isinstance(ready, str) else {**found.model.ready.steps(), **ready.steps()}


def _ids(found: _Found) -> Literal["short", "alphanumeric9"] | None:
    ready = found.server.ready
    return (None if isinstance(ready, str) else ready.ids) or found.model.ready.ids


def _recalls(found: _Found) -> bool:
    """True if what the model thought is to be given back to it where it is plain text."""
    return found.model.recalls and (found.model is not UNKNOWN_MODEL or found.server.recalls)


def _withheld(configured: Iterable[Guards], names: Iterable[str]) -> frozenset[str]:
    """Find the tools that a policy does not allow."""
    names = frozenset(names)
    access = [guards.access(ToolNames(names)) for guards in configured if guards.is_access]
    return frozenset(name for name in names if any(one.fault(name) for one in access))


def _documented_tools(request: Asked, tool_sections: tuple[str, ...]) -> tuple[tuple[Tool, ...], str]:
    """The tools that the system prompt documents, by each name the first; and which of its parts was not looked at."""
    tools: dict[str, Tool] = {}
    unread = ""
    for message in request.messages:
        for part in message.content if message.role == "system" else ():
            if isinstance(part, str):
                found = documented_tools.read(part, tool_sections)
                unread = f", its prompt {found.unread}" if found.unread else unread
                for tool in found.tools:
                    tools.setdefault(tool.name, tool)
    return tuple(tools.values()), unread
