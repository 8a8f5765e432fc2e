"""Prepare the conversation that the model sees."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from vtc.apis import Request
from vtc.apis.calls import lacks_arguments
from vtc.apis.content import is_billing
from vtc.dialects.reading.reader import Reader
from vtc.dialects.syntax.description import Description
from vtc.dialects.text_client import conversation, documented_tools
from vtc.dialects.writing import history
from vtc.dialects.writing.calls import write_calls
from vtc.events import Call, Message, Opaque, Tool, ToolCall, UnreadCall
from vtc.exchange.replying.native_calls import MalformedCall, normalize_call
from vtc.guards import loops
from vtc.profiles.plan import Plan, TextClient
from vtc.reporting.report import Report

_check_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
"""Checks that a text is a JSON object, without building it."""


def prepare_messages(
    request: Request,
    messages: Sequence[Message],
    plan: Plan,
    remark: str,
    lines: list[str],
) -> Sequence[Message] | None:
    """Rewrite the messages for the model; None if they stay unchanged.

    `remark` is appended for the model only. A report line about the tools is appended to `lines`.
    """
    protocol, tools = plan.protocol, plan.protocol.by_name
    shown: Sequence[Tool] = plan.offered
    messages = _repair_past_calls(messages, tools, lines)
    write, client = protocol.write, protocol.client_text
    if write:
        messages, shown = _write_loaded_tools(request, messages, plan)
    if write or protocol.promote:
        if client:
            messages = _structure_conversation(messages, client, write, tools)
        if write:
            messages = history.convert_to_text(messages, write, tools)
            if client:
                messages = history.join_user_turns(messages)
        if write and protocol.prompt_tools and shown:
            messages = history.append_tools(messages, write, shown, plan.tool_choice)
        if protocol.promote or protocol.prompt_tools:
            form = "`tools`" if write is None else f"{write.name} prompt"
            lines.append(f"{len(shown)} tool{'s' * (len(shown) != 1)} -> {form}")
    elif client and plan.withheld:
        messages = history.append_rule(messages, f"Tools that must not be used: {', '.join(sorted(plan.withheld))}.")
    if remark:
        messages = history.append_note(messages, remark)
    return None if messages is request.messages else messages


def _write_loaded_tools(
    request: Request, messages: Sequence[Message], plan: Plan
) -> tuple[Sequence[Message], Sequence[Tool]]:
    """Declare deferred tools in the conversation, at the first result that loads each.

    So a tool that is loaded later changes nothing before it, which the server has cached. Return the conversation, and
    the other tools for the start of the prompt. The line that Claude Code puts before its prompt, and changes in each
    request, is omitted.
    """
    offered = {tool.name: tool for tool in plan.offered}
    later = {*request.offer.deferred}

    def render_part(part: str | Opaque) -> str | Opaque:
        if isinstance(part, str) or part.thought:
            return part
        name = request.get_loaded_tool(part.part)
        if name:
            tool = None if name in loaded else offered.get(name)
            loaded.add(name)
            declared = f":\n{json.dumps(tool.as_openai(), ensure_ascii=False)}" if tool else "."
            return f"The tool {name} can be called now{declared}\n"
        content = request.interpret_part(part.part)
        if isinstance(content, str) and is_billing(content) and not plan.stack.server.skips_billing:
            return ""
        return part

    loaded: set[str] = set()
    out: list[Message] = []
    for message in messages:
        content = tuple(render_part(part) for part in message.content)
        out.append(message if content == message.content else replace(message, content=tuple(filter(None, content))))
    later |= loaded
    is_changed = any(new is not old for new, old in zip(out, messages, strict=True))
    return out if is_changed else messages, [tool for tool in plan.offered if tool.name not in later]


def _repair_past_calls(messages: Sequence[Message], tools: Mapping[str, Tool], lines: list[str]) -> Sequence[Message]:
    """Repair past calls whose arguments are no JSON object, because servers reject every later request with them."""
    broken = {place for place, message in enumerate(messages) if any(map(_is_broken, message.calls))}
    if not broken:
        return messages
    lines.append(f"{len(broken)} past message{'s' * (len(broken) != 1)} with broken arguments repaired")

    def repair(message: Message) -> Message:
        return replace(message, calls=tuple(_repair_call(call, tools) for call in message.calls))

    return [repair(message) if place in broken else message for place, message in enumerate(messages)]


def _is_broken(call: ToolCall) -> bool:
    """Return True if the arguments of a call are missing or no JSON object."""
    if call.is_custom:
        return False
    if lacks_arguments(call.source):
        return True
    try:
        _check_object(call.arguments)
    except (msgspec.DecodeError, UnicodeError):
        try:
            return not isinstance(json.loads(call.arguments), dict)  # half a surrogate pair, or a number too large
        except (ValueError, RecursionError):
            return True
    return False


def _repair_call(call: ToolCall, tools: Mapping[str, Tool]) -> ToolCall:
    """Repair broken arguments; wrap them as `{"_raw": …}` if they cannot be repaired as one object."""
    if not _is_broken(call):
        return call
    try:
        known = {**tools, call.name: tools.get(call.name, Tool(call.name))}
        repaired = normalize_call(call, known, lenient=True).calls
    except MalformedCall:
        repaired = []
    if len(repaired) != 1:
        return replace(call, arguments=json.dumps({"_raw": call.arguments}, ensure_ascii=False))
    return replace(call, arguments=repaired[0].arguments)


def _structure_conversation(
    messages: Sequence[Message], client: TextClient, write: Description | None, tools: Mapping[str, Tool]
) -> Sequence[Message]:
    """Parse a text client's conversation into calls and results, and remove its prompt's instructions about tools."""

    def sample(call: ToolCall) -> str:
        return write_calls([call], write, tools) if write else f"{call.name}({call.arguments})"

    def without_tools(part: str | Opaque) -> str | Opaque:
        if isinstance(part, Opaque):
            return part
        rest = documented_tools.find_documented_tools(part, client.profile.tool_sections).rest
        return conversation.rewrite_samples(rest, client.dialect, tools, sample)

    out: list[Message] = []
    for message in conversation.structure_messages(messages, client.dialect, tools):
        if message.role == "system":
            content = tuple(
                part for part in map(without_tools, message.content) if isinstance(part, Opaque) or part.strip()
            )
            if not content:  # only instructions, and servers reject empty messages
                continue
            message = message if content == message.content else replace(message, content=content)
        out.append(message)
    return out


RECENT_MESSAGES = 4 * (loops.DEFAULT_LOOP.repeated_calls or 0)
"""Messages that are searched for loops if no profile configures that."""
_PAST_ACTIONS = {"stop": "stopped", "steer": "steered", "tell": "told"}


def answer_to_loops(
    plan: Plan,
    request: Request,
    reader: Callable[[], Reader],
    report: Report,
) -> tuple[str, str]:
    """Find loops in the conversation; return the reason to stop the agent, and a remark that steers the model out.

    Both are empty if there is no loop. `reader` creates the reader for a whole reply.
    """
    stop = steer = ""
    configured = [guards.loop for guards in plan.stack.guards if guards.loop]
    client = plan.protocol.client_text
    messages: Sequence[Message] = request.messages
    if plan.stack.settings.stop_loops == "on":
        configured.append(replace(loops.DEFAULT_LOOP, action="stop"))
    if not configured:
        if not plan.protocol.tools:
            return stop, steer
        configured, messages = [loops.DEFAULT_LOOP], messages[-RECENT_MESSAGES:]
    own = {id(message) for message in messages}
    if client:
        messages = conversation.structure_messages(messages, client.dialect, plan.protocol.by_name)

    def is_turn(message: Message) -> bool:
        return message.role == "user" and id(message) in own  # text that a client adds to results is no turn

    def is_malformed(message: Message) -> bool:
        """Return True if an assistant's message contains a call that cannot be parsed, and none that can."""
        if message.calls or not plan.reading.dialects:
            return False
        kinds = {type(event) for event in reader().read_whole(message.text)}
        return UnreadCall in kinds and Call not in kinds

    for loop in configured:
        fault = loops.describe_exceeded_limit(loop, messages, is_turn, is_malformed)
        if not fault:
            continue
        if loop.action == "stop":
            stop = fault
        elif loop.action == "steer":
            steer = f"({fault[0].upper()}{fault[1:]}. Do something else, or answer without a tool.)"
        report.record_intervention("loop", _PAST_ACTIONS[loop.action], "", fault)
    return stop, steer
