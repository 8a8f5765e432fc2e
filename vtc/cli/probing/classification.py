"""Classify replies of a probe: support for tools, reasoning, special tokens and schemas."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from vtc.cli.probing.scenarios import LONG, UNGUESSABLE_VALUE
from vtc.cli.probing.talk import ProbeReply
from vtc.dialects.syntax.description import Description
from vtc.profiles.loader import Profiles
from vtc.profiles.reasoning_plan import COMMON_TAGS
from vtc.profiles.schema import ModelProfile

type ToolSupport = Literal["parsed", "leaked", "ignored", "refused"]
type ReasoningStyle = Literal["parted", "raw", "prefilled", "none"]
type SpecialTokenSupport = Literal["kept", "dropped", "unknown"]
type SchemaSupport = Literal["schema", "ignored", "refused", "unknown"]
type StrictSupport = Literal["taken", "ignored", "refused", "unknown"]


@dataclass(slots=True)
class SpecialTokens:
    """Support for a special token that the model was asked to repeat: the server keeps or drops it."""

    marker: str = ""
    """The token; empty if no request asked for one."""
    support: SpecialTokenSupport = "unknown"
    repaired: bool = False
    """True if the server keeps the token when its profile's fields are sent."""


def classify_tools(reply: ProbeReply) -> ToolSupport | None:
    """Classify the effect of `tools` in a request; None if there was no reply at all."""
    if reply.direct.message.calls:
        return "parsed"
    if reply.via_vtc.message.calls:
        return "leaked"
    if reply.is_rejected:
        return "refused"
    return None if reply.problem else "ignored"


@dataclass(frozen=True, slots=True)
class ReasoningFacts:
    """The form of the reasoning in replies."""

    style: ReasoningStyle = "none"
    open: str = ""
    close: str = ""
    field: str = ""
    """The name of the field in which the server sends it, if it is not the API's usual one."""


def classify_reasoning(replies: Iterable[ProbeReply], tags: Sequence[tuple[str, str]], opened: str) -> ReasoningFacts:
    """Find the form of the reasoning in replies; `opened` is the tag that the chat template opens."""
    for reply in replies:
        if reply.direct.message.reasoning:
            return ReasoningFacts("parted", field=reply.direct.thoughts)
        text = reply.direct.message.text
        for open_, close in tags:
            before, closed, _ = text.partition(close)
            if text.lstrip().startswith(open_) or (closed and open_ in before):
                return ReasoningFacts("raw", open_, close)
            if closed:
                return ReasoningFacts("prefilled", open_, close)
    close = next((close for open_, close in tags if open_ == opened), "")
    return ReasoningFacts("prefilled", opened, close) if close else ReasoningFacts()


def list_reasoning_tags(profiles: Profiles, model: ModelProfile | None) -> tuple[tuple[str, str], ...]:
    """List the known tags of reasoning, the model's own first."""
    own = [model.reasoning] if model and model.reasoning else []
    others = [profile.reasoning for profile in profiles.models.values() if profile.reasoning]
    return tuple(
        dict.fromkeys(
            [
                *((reasoning.open, reasoning.close) for reasoning in own),
                *COMMON_TAGS,
                *((reasoning.open, reasoning.close) for reasoning in others),
            ]
        )
    )


def find_call_marker(dialects: Iterable[Description]) -> str:
    """Return the marker that begins a call in the first dialect that has one; empty if none has."""
    return next((text for dialect in dialects for text in _list_call_markers(dialect)), "")


def _list_call_markers(dialect: Description) -> Iterator[str]:
    for pattern in dialect.sections if dialect.section_required else dialect.calls:
        text = pattern.partition("{")[0].strip().partition("\n")[0]
        if len(text) >= 5 and text[0] in "<[" and text[-1] in ">]":
            yield text


def classify_special_token(reply: ProbeReply, text: str) -> SpecialTokenSupport:
    """Find if the server kept a special token that the model was asked to repeat between `red` and `green`."""
    reply_text = reply.direct.message.text.casefold()
    if text.casefold() in reply_text:
        return "kept"
    return "dropped" if "red" in reply_text and "green" in reply_text else "unknown"


def explain_hidden_tools(reply: ProbeReply) -> str:
    """Explain that the prompt has too few tokens to contain the tools; empty if it may contain them."""
    usage, length = reply.direct.usage, sum(len(json.dumps(tool.as_openai())) for tool in reply.scenario.tools)
    if usage and 0 < usage.prompt < length / 8 and not reply.via_vtc.message.calls:
        return f"its prompt was {usage.prompt} tokens, too few to hold the tools: its template omits them"
    return ""


def classify_schema(reply: ProbeReply) -> SchemaSupport:
    """Classify the effect of a schema for the answer, whose value no model guesses."""
    if reply.is_rejected or reply.rejection:
        return "refused"
    if reply.problem:
        return "unknown"
    return "schema" if UNGUESSABLE_VALUE in reply.direct.message.text else "ignored"


def classify_strict(reply: ProbeReply) -> StrictSupport:
    """Classify the effect of `strict`: the schema of the tool forbids the value that the question requests."""
    if reply.is_rejected or reply.rejection:
        return "refused"
    if reply.problem or not reply.via_vtc.message.calls:
        return "unknown"
    return "taken" if UNGUESSABLE_VALUE in reply.via_vtc.message.calls[0].arguments else "ignored"


def is_truncated(reply: ProbeReply) -> bool:
    """Return True if the server's token count shows that it truncated the long prompt."""
    usage, length = reply.direct.usage, sum(len(message.text) for message in LONG.messages)
    return bool(reply.misses and usage and 0 < usage.prompt < length / 8)
