"""Writing requests of Gemini's API."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from vtc.apis import content, request_writer, tool_writer
from vtc.apis.contract import Json
from vtc.apis.fields import part_of
from vtc.apis.gemini_generate.parts import (
    SIGNATURE,
    is_text,
    render_call,
    render_media,
    render_result,
)
from vtc.apis.gemini_generate.request import CONFIG, DECLARATIONS, Request
from vtc.apis.generation import THINKING_BUDGETS
from vtc.events import CanonicalRequest, Message, Opaque, Thought, Tool, ToolCall

_EFFORT_ALIASES = {"xhigh": "high", "max": "high"}
"""Effort levels that this API lacks, with their closest ones."""


class GeminiToolWriter(tool_writer.ToolWriter):
    """Writes the fields about the tools of Gemini's API."""

    @staticmethod
    def render_declaration(tool: Tool) -> dict[str, Any]:
        return {"description": tool.description, **_render_signature(tool)}

    def declare(self, kept: dict[str, Any], tools: Sequence[Tool]) -> None:
        if tools:
            kept["tools"] = [{DECLARATIONS: [*map(self.render_declaration, tools)]}]

    def withhold_entries(self, entries: Sequence[Any], names: Collection[str]) -> Iterable[Any]:
        for entry in entries:
            remaining = {key: value for key, value in entry.items() if key not in names}
            functions = remaining.pop(DECLARATIONS, None) or ()
            if kept := [function for function in functions if self.received.get_name(function) not in names]:
                remaining[DECLARATIONS] = kept
            if remaining:
                yield remaining

    def rewrite_declaration(self, entry: Any, tools: Mapping[str, Tool]) -> Mapping[str, Any] | None:
        entries = entry.get(DECLARATIONS) or ()
        if not any(self.received.get_name(function) in tools for function in entries):
            return None
        written = [
            {**_without_parameters(function), **_render_signature(tool)}
            if (tool := tools.get(self.received.get_name(function) or ""))
            else function
            for function in entries
        ]
        return {**entry, DECLARATIONS: written}

    def _rename_choice(self, choice: Any, names: Mapping[str, str]) -> Any:
        config = part_of(choice, "functionCallingConfig")
        if not config.get("allowedFunctionNames"):
            return choice
        allowed = [names.get(name, name) for name in config["allowedFunctionNames"]]
        return {**choice, "functionCallingConfig": {**config, "allowedFunctionNames": allowed}}


class GeminiRequestWriter(request_writer.RequestWriter):
    """Writes requests of Gemini's API."""

    TOOL_WRITER = GeminiToolWriter

    @staticmethod
    def build_request(canonical: CanonicalRequest) -> Json:
        """Render a canonical request; the model is in the path."""
        prompt, messages = canonical.split_system_prompt()
        fields: dict[str, Any] = {"contents": content.group_turns(messages, _render_parts, model="model", key="parts")}
        if prompt:
            fields["systemInstruction"] = {"parts": [{"text": prompt}]}
        if canonical.tools:
            fields["tools"] = [{DECLARATIONS: [*map(GeminiToolWriter.render_declaration, canonical.tools)]}]
            mode = {"none": {"mode": "NONE"}, "required": {"mode": "ANY"}}
            one_tool = {"mode": "ANY", "allowedFunctionNames": [canonical.choice]}
            if canonical.choice != "auto":
                fields["toolConfig"] = {"functionCallingConfig": mode.get(canonical.choice, one_tool)}
            elif any(tool.strict for tool in canonical.tools):
                fields["toolConfig"] = {"functionCallingConfig": {"mode": "VALIDATED"}}
        config: dict[str, Any] = Request.LAYOUT.write_limits(canonical.limits).get(CONFIG, {})
        if canonical.effort is not None:
            config["thinkingConfig"] = _render_thinking(canonical.effort, canonical.thinking.budget)
        if canonical.answer:
            schema = {"responseJsonSchema": canonical.answer.schema} if canonical.answer.schema else {}
            config |= {"responseMimeType": "application/json", **schema}
        return {**fields, CONFIG: config} if config else fields

    def _add_message(self, entries: list[Any], message: Message, called: Collection[str | None], form: Any) -> None:
        """Append a message; consecutive re-encoded messages of one role are merged into one entry."""
        role = "model" if message.role == "assistant" else "user"
        last = entries[-1] if entries else None
        parts = _render_message(message)
        if isinstance(last, dict) and last["role"] == role:
            last["parts"] += parts
        elif parts:
            entries.append({"role": role, "parts": parts})

    def _render_system_prompt(self, messages: Sequence[Message]) -> Any:
        return {"parts": [part for message in messages for part in _render_content(message.content)]}

    def with_reasoning(self, message: Message, field: str) -> Message:
        thought = (Opaque(thought=Thought(message.reasoning)),) if message.reasoning else ()
        return replace(message, content=(*thought, *message.content))

    def _lacks_call(self, result: Message) -> bool:
        return bool(result.name) and not part_of(result.source, "functionResponse").get("name")


def _render_thinking(effort: str, budget: int | None) -> Json:
    """Render the client's budget, or that of its effort; all models accept the budget of the highest effort."""
    if effort == "none":
        return {"thinkingBudget": 0}
    tokens = budget or THINKING_BUDGETS.get(_EFFORT_ALIASES.get(effort, effort), -1)
    return {"includeThoughts": True, "thinkingBudget": min(tokens, THINKING_BUDGETS["high"])}


def _render_parts(message: Message) -> list[Json]:
    """Render a message as parts."""
    if message.role == "tool":
        written = _render_sequence(message)
        text = "\n".join(part["text"] for part in written if "text" in part)
        return [render_result(message, text), *(part for part in written if "text" not in part)]
    parts: list[Json] = [*_render_sequence(message)]
    if message.reasoning:
        parts.insert(0, {"text": message.reasoning, "thought": True})
    return parts


def _render_sequence(message: Message) -> list[dict[str, Any]]:
    """Render the content and calls of a message, in order, each seal in its original place: on a part or alone."""
    parts: list[dict[str, Any]] = []
    on_calls: list[Json] = []  # seals of the calls that follow
    for part in message.sequence:
        seal = _get_seal(part) if isinstance(part, Opaque) else None
        if isinstance(part, ToolCall):
            parts.append({**render_call(part), **(on_calls.pop(0) if on_calls else {})})
        elif seal is None:
            parts += _render_part(part)
        elif seal.on == "call":
            on_calls.append({SIGNATURE: seal.encrypted})
        elif seal.on == "text" and parts and is_text(parts[-1]):
            parts[-1] = {**parts[-1], SIGNATURE: seal.encrypted}
        else:
            parts.append({"text": "", SIGNATURE: seal.encrypted})
    return [*parts, *({"text": "", **rest} for rest in on_calls)]


def _get_seal(part: Opaque) -> Thought | None:
    """Return the seal in an opaque part; None if it has none."""
    if part.thought:
        return part.thought if part.thought.encrypted else None
    is_bare = isinstance(part.part, dict) and part.part.keys() == {SIGNATURE}
    return Thought(encrypted=part.part[SIGNATURE], on="text") if is_bare else None


def _render_part(part: str | Opaque) -> Iterator[dict[str, Any]]:
    if isinstance(part, str):
        if part:
            yield {"text": part}
    elif part.part is not None:
        yield part.part
    elif part.thought:
        yield {"text": part.thought.text, "thought": True}
    elif part.media:
        yield render_media(part.media)


def _render_signature(tool: Tool) -> dict[str, Any]:
    """Render the name and parameters of a tool."""
    return {"name": tool.name, "parametersJsonSchema": dict(tool.parameters)}


def _without_parameters(declaration: Mapping[str, Any]) -> Mapping[str, Any]:
    return {key: value for key, value in declaration.items() if key not in ("parameters", "parametersJsonSchema")}


def _render_message(message: Message) -> list[dict[str, Any]]:
    """Render a changed message as parts."""
    return [render_result(message, message.text)] if message.role == "tool" else _render_sequence(message)


def _render_content(parts: Iterable[str | Opaque]) -> list[dict[str, Any]]:
    return [{"text": part} if isinstance(part, str) else part.part for part in parts]
