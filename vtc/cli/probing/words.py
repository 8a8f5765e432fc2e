"""Sum up in one word each what replies show of tools, of reasoning, of special tokens, of a schema."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from vtc.cli.probing.scenarios import LONG, SEAL
from vtc.cli.probing.talk import ProbeReply
from vtc.dialects.syntax.description import Description
from vtc.profiles.loader import Profiles
from vtc.profiles.planner import COMMON_TAGS
from vtc.profiles.schema import ModelProfile

type Tools = Literal["parsed", "leaked", "ignored", "refused"]
type ThinkingStyle = Literal["parted", "raw", "prefilled", "none"]
type SpecialTokenFate = Literal["kept", "dropped", "unknown"]
type Constrained = Literal["schema", "ignored", "refused", "unknown"]
type Strict = Literal["taken", "ignored", "refused", "unknown"]


@dataclass(slots=True)
class SpecialTokens:
    """The fate of a special token that the model was asked to repeat."""

    marker: str = ""
    """The token; empty if none was asked for."""
    fate: SpecialTokenFate = "unknown"
    mended: bool = False
    """It is kept if the server is told to."""


def tools(heard: ProbeReply) -> Tools | None:
    """Tell what became of `tools` in a request; None if no reply came at all."""
    if heard.direct.message.calls:
        return "parsed"
    if heard.through.message.calls:
        return "leaked"
    if heard.refused:
        return "refused"
    return None if heard.problem else "ignored"


@dataclass(frozen=True, slots=True)
class ThinkingWords:
    """The words for how replies think."""

    how: ThinkingStyle = "none"
    open: str = ""
    close: str = ""
    field: str = ""
    """The name under which the server parts it off, where that is not the API's usual one."""


def thinking(heard: Iterable[ProbeReply], tags: Sequence[tuple[str, str]], opened: str) -> ThinkingWords:
    """Tell how replies think; `opened` is the tag that the chat template opens."""
    for reply in heard:
        if reply.direct.message.reasoning:
            return ThinkingWords("parted", field=reply.direct.thoughts)
        text = reply.direct.message.text
        for open_, close in tags:
            before, closed, _ = text.partition(close)
            if text.lstrip().startswith(open_) or (closed and open_ in before):
                return ThinkingWords("raw", open_, close)
            if closed:
                return ThinkingWords("prefilled", open_, close)
    close = next((close for open_, close in tags if open_ == opened), "")
    return ThinkingWords("prefilled", opened, close) if close else ThinkingWords()


def tags(profiles: Profiles, model: ModelProfile | None) -> tuple[tuple[str, str], ...]:
    """List the tags of thinking that are known, the model's own first."""
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


def marker(dialects: Iterable[Description]) -> str:
    """Find the marker that begins a call, in the first dialect that has one of its own."""
    return next((text for dialect in dialects for text in _openings(dialect)), "")


def _openings(dialect: Description) -> Iterator[str]:
    for pattern in dialect.sections if dialect.section_required else dialect.calls:
        text = pattern.partition("{")[0].strip().partition("\n")[0]
        if len(text) >= 5 and text[0] in "<[" and text[-1] in ">]":
            yield text


def tokens(heard: ProbeReply, text: str) -> SpecialTokenFate:
    """Tell whether a special token that the model was asked to repeat came back."""
    text_ = heard.direct.message.text.casefold()
    if text.casefold() in text_:
        return "kept"
    return "dropped" if "red" in text_ and "green" in text_ else "unknown"


def hidden(heard: ProbeReply) -> str:
    """Tell if the model cannot have been shown the tools, by the tokens of the prompt; empty if it may have been."""
    usage, length = heard.direct.usage, sum(len(json.dumps(tool.as_openai())) for tool in heard.scenario.tools)
    if usage and 0 < usage.prompt < length / 8 and not heard.through.message.calls:
        return f"its prompt was {usage.prompt} tokens, too few to hold the tools: its template leaves them out"
    return ""


def check_constraint(heard: ProbeReply) -> Constrained:
    """Tell whether a schema for the answer was held to: no model guesses the value that it demands."""
    if heard.refused or heard.refusal:
        return "refused"
    if heard.problem:
        return "unknown"
    return "schema" if SEAL in heard.direct.message.text else "ignored"


def strict(heard: ProbeReply) -> Strict:
    """Tell whether a strict tool was called by its schema, though the model was asked for another value."""
    if heard.refused or heard.refusal:
        return "refused"
    if heard.problem or not heard.through.message.calls:
        return "unknown"
    return "taken" if SEAL in heard.through.message.calls[0].arguments else "ignored"


def is_cut(heard: ProbeReply) -> bool:
    """True if the beginning of a long prompt did not reach the model, by the tokens that the server counted."""
    usage, length = heard.direct.usage, sum(len(message.text) for message in LONG.messages)
    return bool(heard.misses and usage and 0 < usage.prompt < length / 8)
