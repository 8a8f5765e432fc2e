"""What goes upstream: the conversation as the model is shown it, and the request around it."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from dataclasses import replace as with_fields
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from vtc.apis import BadRequest, Changes, Request, crossing
from vtc.apis.calls import lacks_arguments
from vtc.apis.content import is_billing
from vtc.apis.fields import changed
from vtc.dialects.syntax.description import Description
from vtc.dialects.text_client import conversation, documented_tools
from vtc.dialects.writing import history
from vtc.dialects.writing.calls import write_calls
from vtc.events import CanonicalRequest, Message, Opaque, Tool, ToolCall
from vtc.exchange.asking.steps import StepContext, made_ready
from vtc.exchange.replying.native_calls import NotInOrder, in_order
from vtc.profiles.plan import Plan, TextClient
from vtc.scrub import told as told_of

logger = logging.getLogger(__name__)
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


def prepared(
    request: Request,
    messages: Sequence[Message],
    plan: Plan,
    remark: str,
    told: list[str],
) -> Sequence[Message] | None:
    """Rewrite the messages for the model; None if they stay as they came in the request.

    `remark` is added for the model alone. A line for people about the tools is added to `told`.
    """
    protocol, tools = plan.protocol, plan.protocol.by_name
    shown: Sequence[Tool] = plan.offered
    messages = _with_whole_calls(messages, tools, told)
    write, client = protocol.write, protocol.client_text
    if write:
        messages, shown = _shown(request, messages, plan)
    if write or protocol.promote:
        if client:
            messages = _structured(messages, client, write, tools)
        if write:
            messages = history.to_text(messages, write, tools)
            if client:
                messages = history.joined(messages)
        if write and protocol.prompt_tools and shown:
            messages = history.with_tools(messages, write, shown, plan.tool_choice)
        if protocol.promote or protocol.prompt_tools:
            form = "`tools`" if write is None else f"{write.name} prompt"
            told.append(f"{len(shown)} tool{'s' * (len(shown) != 1)} -> {form}")
    elif client and plan.withheld:
        messages = history.with_rule(messages, f"Tools that must not be used: {', '.join(sorted(plan.withheld))}.")
    if remark:
        messages = history.with_note(messages, remark)
    return None if messages is request.messages else messages


def _shown(request: Request, messages: Sequence[Message], plan: Plan) -> tuple[Sequence[Message], Sequence[Tool]]:
    """The conversation with the tools that results load, each at its first place, and the tools that are left.

    So a tool that is loaded later changes nothing of what stands before. What Claude Code puts before its prompt, and
    changes in each request, is left out.
    """
    offered = {tool.name: tool for tool in plan.offered}
    later = {*request.offer.deferred}

    def told(part: str | Opaque) -> str | Opaque:
        if isinstance(part, str):
            return part
        if name := request.loads(part.part):
            tool = None if name in seen else offered.get(name)
            seen.add(name)
            declared = f":\n{json.dumps(tool.as_openai(), ensure_ascii=False)}" if tool else "."
            return f"The tool {name} can be called now{declared}\n"
        meant = request.meaning(part.part)
        return "" if isinstance(meant, str) and is_billing(meant) and not plan.stack.server.skips_billing else part

    seen: set[str] = set()
    out: list[Message] = []
    for message in messages:
        content = tuple(told(part) for part in message.content)
        out.append(message if content == message.content else replace(message, content=tuple(filter(None, content))))
    later |= seen
    changed_ = any(one is not other for one, other in zip(out, messages, strict=True))
    return out if changed_ else messages, [tool for tool in plan.offered if tool.name not in later]


def _with_whole_calls(messages: Sequence[Message], tools: Mapping[str, Tool], told: list[str]) -> Sequence[Message]:
    """Mend past calls whose arguments are no JSON object: servers refuse all that follows in such a conversation."""
    broken = {place for place, message in enumerate(messages) if any(map(_is_broken, message.calls))}
    if not broken:
        return messages
    told.append(f"{len(broken)} past message{'s' * (len(broken) != 1)} with broken arguments mended")
    return [
        replace(message, calls=tuple(_whole(call, tools) for call in message.calls)) if place in broken else message
        for place, message in enumerate(messages)
    ]


def _is_broken(call: ToolCall) -> bool:
    if call.is_custom:
        return False
    if lacks_arguments(call.source):
        return True
    try:
        _decode_object(call.arguments)
    except (msgspec.DecodeError, UnicodeError):
        try:
            return not isinstance(json.loads(call.arguments), dict)  # half a surrogate pair, a number beyond any type
        except (ValueError, RecursionError):
            return True
    return False


def _whole(call: ToolCall, tools: Mapping[str, Tool]) -> ToolCall:
    if not _is_broken(call):
        return call
    try:
        (found, *more), _ = in_order(call, {**tools, call.name: tools.get(call.name, Tool(call.name))}, lenient=True)
    except NotInOrder:
        more = [call]
    if more:
        return with_fields(call, arguments=json.dumps({"_raw": call.arguments}, ensure_ascii=False))
    return with_fields(call, arguments=found.arguments)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request, rewritten."""

    body: bytes
    messages: Sequence[Message] | None
    """Those that the model is shown; None where they stay as they came."""
    stop: str
    """Why the agent is stopped instead of asking upstream; empty to ask."""


class Encoded(NamedTuple):
    """A request in the server's API, lines for people, and what its prompt is made of."""

    body: bytes
    told: list[str]
    messages: Sequence[Message]
    tools: Sequence[Tool]
    took: Collection[str] = ()
    """The steps that changed something."""
    constrained: bool = False
    """The server is told the grammar of its reply."""
    model: str = ""
    """The name of the model that it is told, if not the one that the client asked for."""


def encoded(
    request: Request,
    body: bytes,
    plan: Plan,
    messages: Sequence[Message] | None,
    steps: Mapping[str, Any],
    given: StepContext,
) -> Encoded:
    """Encode the request with these messages, or its own, made ready; `body`, as it came, if nothing changes."""
    stack, protocol = plan.stack, plan.protocol
    asked = CanonicalRequest(
        model=plan.server_model,
        messages=tuple(request.messages if messages is None else messages),
        tools=plan.offered if protocol.is_native or protocol.promote else (),
        choice=plan.tool_choice,
        limits=request.generation.limits,
    )
    ready, took = made_ready(asked, steps, given)
    withheld = plan.withheld if protocol.is_native else frozenset[str]()
    is_plain = not (stack.request_set or stack.request_drop or withheld or plan.buffered or plan.server_model)
    if messages is None and ready is asked and is_plain:
        return Encoded(body, [], request.messages, asked.tools)
    if ready.messages is not asked.messages:
        messages = ready.messages
    came = {tool.name: tool for tool in asked.tools}
    left = {given.names.back(tool.name): tool for tool in ready.tools}
    changes = Changes(
        messages=messages,
        tools=ready.tools if protocol.promote else () if protocol.write else None,
        withheld=withheld | (came.keys() - left.keys()),
        redeclared={name: tool for name, tool in left.items() if tool is not came.get(name)},
        undemanded=ready.choice != asked.choice and ready.choice == "auto",
        model=plan.server_model,
        unstreamed=plan.buffered,
        limits={name: limit for name, limit in ready.limits.items() if asked.limits.get(name) != limit},
        drop=stack.request_drop,
        set={**_constrained(ready, given), **stack.request_set},
    )
    said = request.messages if messages is None else messages
    is_constrained = ready.constraint is not None
    went = request.encode(changes)
    return Encoded(went, [*took.values()], said, ready.tools, took, is_constrained, plan.server_model)


def crossed(
    request: Request,
    plan: Plan,
    messages: Sequence[Message] | None,
    steps: Mapping[str, Any],
    given: StepContext,
    origin: str = "",
) -> Encoded:
    """The request as one of the server's API, made ready; what of it cannot be told there is named."""
    tools = plan.offered if plan.protocol.is_native or plan.protocol.promote else ()
    said = request.messages if messages is None else messages
    asked, took = made_ready(crossing.read(request, said, tools, plan.tool_choice, plan.thoughts, origin), steps, given)
    model = plan.server_model or asked.model.removesuffix("[1m]")  # by which Claude Code asks for a longer context
    fields = given.server.ask(replace(asked, model=model, stream=asked.stream and not plan.buffered))
    fields = {**fields, **_constrained(asked, given)}
    kept = {key: value for key, value in fields.items() if key not in plan.stack.request_drop}
    places, known = request.LAYOUT.limits, given.server.layout.limits
    limits = (places.get(name, (name,))[0] for name in asked.limits if name not in known)
    told = [*took.values()]
    loose = bool(asked.answer and not asked.answer.schema and not given.server.layout.any_json)
    held = {given.names.back(tool.name) for tool in asked.tools if tool.strict}
    untold = ["strict of tools"] * bool(crossing.strict_tools(request) & {tool.name for tool in tools} - held)
    if left_out := [*asked.left_out, *untold, *limits, *(["JSON without a schema"] if loose else [])]:
        told = [*told, f"not told to the server, whose API has no word for it: {', '.join(left_out)}"]
    body = changed(kept, plan.stack.request_drop, plan.stack.request_set)
    return Encoded(body, told, asked.messages, asked.tools, took, asked.constraint is not None, model)


def _constrained(asked: CanonicalRequest, given: StepContext) -> Mapping[str, Any]:
    """The fields that tell the server the grammar of its reply."""
    return given.server.constrain(*asked.constraint) if asked.constraint else {}


def _structured(
    messages: Sequence[Message], client: TextClient, write: Description | None, tools: Mapping[str, Tool]
) -> Sequence[Message]:
    """A text client's conversation with calls and results as such, and its prompt without what it says of tools."""

    def sample(call: ToolCall) -> str:
        return write_calls([call], write, tools) if write else f"{call.name}({call.arguments})"

    def told(part: str | Opaque) -> str | Opaque:
        if isinstance(part, Opaque):
            return part
        rest = documented_tools.read(part, client.profile.tool_sections).rest
        return conversation.with_samples(rest, client.dialect, tools, sample)

    out: list[Message] = []
    for message in conversation.structured(messages, client.dialect, tools):
        if message.role == "system":
            content = tuple(part for part in map(told, message.content) if isinstance(part, Opaque) or part.strip())
            if not content:  # it was about tools only; servers refuse an empty one
                continue
            message = message if content == message.content else replace(message, content=content)
        out.append(message)
    return out


@contextmanager
def as_it_came(known: Iterable[str] = ()) -> Iterator[None]:
    """Turn a fault of ours into `BadRequest`, so that the request is passed on as it came."""
    try:
        yield
    except BadRequest:
        raise
    except Exception as error:
        logger.error("vtc: the request is passed on as it came\n%s", told_of(error, known))
        raise BadRequest(f"{type(error).__name__}: {error}") from error
