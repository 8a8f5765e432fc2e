"""Transport of tools and calls between client and model: as fields of the API, or as text in a dialect."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from msgspec.structs import replace

from vtc.dialects.syntax.description import Description
from vtc.dialects.text_client import documented_tools
from vtc.dialects.user_agent import find_agent_pattern
from vtc.events import GenerationConfig, Message, Tool, ToolOffer
from vtc.profiles.loader import Profiles
from vtc.profiles.matching import Facts
from vtc.profiles.plan import TextClient, ToolProtocol
from vtc.profiles.schema import ModelProfile
from vtc.profiles.stack import ProfileStack, first_set

TEXT_DIALECT = "cline"
"""The dialect of a text client whose profile names none."""


class RequestFacts(Protocol):
    """The parts of a request that a plan depends on."""

    model: str
    offer: ToolOffer
    generation: GenerationConfig
    stream: bool
    unliftable: str

    @property
    def messages(self) -> Sequence[Message]:
        """The conversation."""
        ...


def plan_protocol(profiles: Profiles, stack: ProfileStack, facts: Facts, request: RequestFacts) -> ToolProtocol:
    """Plan the transport of tools and calls."""
    documented, reason = _find_documented_tools(stack, facts, request)
    if request.unliftable:
        protocol = ToolProtocol(tools=tuple(request.offer.tools), why=(request.unliftable,))
    elif documented is None:
        protocol = _plan_native_protocol(profiles, stack, request)
    else:
        protocol = _plan_text_protocol(profiles, stack, documented)
    return replace(protocol, why=(reason, *protocol.why))


def _plan_native_protocol(profiles: Profiles, stack: ProfileStack, request: RequestFacts) -> ToolProtocol:
    """Plan the transport for a client that sends tools and receives calls in the API's own fields."""
    model, dialect = stack.model, profiles.dialects[stack.dialect]
    offer = request.offer
    allowed = bool(offer.tools) and offer.choice != "none"
    prompted = stack.tools == "prompt" and (offer.tools or _has_calls(request.messages))
    write = dialect if prompted else None
    # A model that is not prompted in a dialect writes the dialects that its profile accepts.
    named = model.accept == "auto" and stack.known_model
    expected = [dialect] if write or stack.settings.dialect or named else []
    expected += _list_further_dialects(profiles, stack)
    dialects = list_dialects(profiles, model, *expected) if allowed else ()
    why = []
    written = write.name if write else ""
    answers = {dialect.name for dialect in dialects if dialect.is_json_reply and dialect.name != written}
    if request.generation.answer and answers:
        dialects = tuple(dialect for dialect in dialects if dialect.name not in answers)
        expected = [dialect for dialect in expected if dialect.name not in answers]
        why.append("the request asks for JSON: an object that is the whole reply is no call")
    if write:
        why.append(f"the model knows no tools: conversation{' and tools' * allowed} written as {write.name}")
    if dialects:
        why.append(_describe_dialects(dialects, model, *expected))
    else:
        why.append("nothing is read: the request " + ("forbids calls" if offer.tools else "offers no tools"))
    return ToolProtocol(
        tools=tuple(offer.tools),
        dialects=dialects,
        write=write,
        prompt_tools=bool(write) and allowed,
        max_calls=1 if not offer.parallel else model.max_calls,
        limits_native=bool(offer.tools) and (not offer.parallel or model.max_calls is not None),
        why=tuple(why),
    )


def _plan_text_protocol(profiles: Profiles, stack: ProfileStack, documented: Sequence[Tool]) -> ToolProtocol:
    """Plan the transport for a client that documents tools in its prompt and parses calls from the text."""
    model, dialect = stack.model, profiles.dialects[stack.dialect]
    own = profiles.dialects[stack.client.dialect or TEXT_DIALECT]
    if any(guards.checks_calls for guards in stack.guards):
        own = replace(own, in_code="call")  # such clients execute calls in code blocks, too
    client = TextClient(own, stack.client)
    if not documented and not any(guards.is_strict for guards in stack.guards):
        reason = "no tools are found in its prompt, so its text is left alone; the server's own calls become text"
        return ToolProtocol(client_text=client, why=(reason,))
    tools = first_set(stack.settings.tools, "native" if model.promote else "", otherwise=stack.tools)
    promote = tools == "native" and (model.promote or stack.settings.tools == "native")
    write = dialect if tools == "prompt" and dialect is not own else None
    expected = [write, own] if write else [own, dialect] if stack.settings.dialect else [own]
    expected += _list_further_dialects(profiles, stack)
    dialects = list_dialects(profiles, model, *expected)
    why = []
    if promote:
        why.append(f"the model is given the {len(documented)} documented tools as `tools`, calls go back as {own.name}")
    elif write:
        why.append(f"conversation and tools are written as {write.name}, calls go back as {own.name}")
    return ToolProtocol(
        tools=tuple(documented),
        dialects=dialects,
        write=write,
        prompt_tools=bool(write),
        promote=promote,
        client_text=client,
        max_calls=stack.max_calls,
        why=(*why, _describe_dialects(dialects, model, *expected)),
    )


BLOCK_DIALECT = "json-block"
"""The dialect of calls that are JSON in a code block at the end of the reply."""


def _list_further_dialects(profiles: Profiles, stack: ProfileStack) -> list[Description]:
    """List the dialect derived from the model's template, and that of code blocks if the settings enable it."""
    blocks = first_set(stack.settings.blocks, otherwise=stack.model.blocks)
    enabled = [profiles.dialects[BLOCK_DIALECT]] if blocks == "last" else []
    return [*filter(None, [stack.derived]), *enabled]


def list_token_dialects(model: ModelProfile) -> frozenset[str]:
    """Name the dialects whose special tokens are the model's own."""
    return frozenset(model.accept if model.special_tokens and model.accept != "auto" else ())


def list_dialects(profiles: Profiles, model: ModelProfile, *first: Description) -> tuple[Description, ...]:
    """List the dialects to read: the expected ones, then all others that no model writes by chance.

    If two dialects match the same text, the more common one is named.
    """
    own = () if model.accept == "auto" else model.accept
    read: dict[str, Description] = {}
    known = (profiles.dialects[name] for name in own)
    for dialect in (*first, *known, *profiles.rescued):
        read.setdefault(dialect.name, replace(dialect, fenced=True) if dialect.name in own else dialect)
    return tuple(read.values())


def _describe_dialects(dialects: Sequence[Description], model: ModelProfile, *first: Description) -> str:
    """Name the expected dialects, and count the others."""
    own = () if model.accept == "auto" else model.accept
    names = list(dict.fromkeys([*(dialect.name for dialect in first), *own]))
    others = len(dialects) - len(names)
    ways = [", ".join(names)] * bool(names) + [f"any of {others} {'other ' * bool(names)}dialects"] * bool(others)
    return f"calls are read as {' or as '.join(ways)}"


def _has_calls(messages: Iterable[Message]) -> bool:
    return any(message.calls or message.role == "tool" for message in messages)


def _find_documented_tools(
    stack: ProfileStack, facts: Facts, request: RequestFacts
) -> tuple[Sequence[Tool] | None, str]:
    """Return the tools that a text client documents in its prompt, or None for a native client, and the reason."""
    client, patterns = stack.client, stack.settings.client_patterns
    if client.tool_protocol == "native":
        return None, f"client profile {client.name} says tool_protocol: native"
    if request.offer.tools and client.tool_protocol == "auto":
        count = len(request.offer.tools)
        return None, f"the request has {count} tool{'s' * (count != 1)}; calls go back as `tool_calls`"
    documented, unread = _collect_documented_tools(request, client.tool_sections)
    if client.tool_protocol == "text":
        return documented, f"client profile {client.name} says tool_protocol: text{unread}"
    agent = facts.user_agent[:80]
    if not patterns:
        return None, "the request declares no tools; vtc_client_patterns is empty: no text client is looked for"
    if pattern := find_agent_pattern(facts.user_agent, patterns):
        reason = f"user agent {agent!r} holds {pattern!r} and the request declares no tools: a text client{unread}"
        return documented, reason
    if documented:
        return documented, f"the system prompt documents {len(documented)} tools: a text client"
    lacking = f"user agent {agent!r} holds none of {', '.join(map(repr, patterns))}"
    return None, f"the request declares no tools, {lacking} and the prompt documents no tools{unread}"


def _collect_documented_tools(request: RequestFacts, tool_sections: tuple[str, ...]) -> tuple[tuple[Tool, ...], str]:
    """Return the tools that the system prompt documents, the first of each name, and a note on unread parts."""
    tools: dict[str, Tool] = {}
    unread = ""
    for message in request.messages:
        for part in message.content if message.role == "system" else ():
            if isinstance(part, str):
                prompt = documented_tools.find_documented_tools(part, tool_sections)
                unread = f", its prompt {prompt.unread}" if prompt.unread else unread
                for tool in prompt.tools:
                    tools.setdefault(tool.name, tool)
    return tuple(tools.values()), unread
