"""The content of a message: its text, and opaque parts that pass through unchanged (images, signed reasoning)."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from msgspec.structs import replace

from vtc.events import Media, Message, Opaque, ToolCall

_TEXT_TYPES = ("text", "input_text", "output_text")
BILLING_PREFIX = "x-anthropic-billing-header:"
"""Prefix of a text of Claude Code that differs in each request and must remain the first part; it is not parsed."""


_BILLING = re.compile(rf"{BILLING_PREFIX}(?:[ \t]*[\w.-]+=[^;\n]*;)*[^\S\n]*\n?")


def without_billing(text: str) -> str:
    """Remove the billing header before Claude Code's prompt: it differs in each request, and only Anthropic uses it."""
    return _BILLING.sub("", text, count=1) if is_billing(text) else text


def is_billing(text: str) -> bool:
    """Return True for a text that begins with Claude Code's billing header."""
    return text.startswith(BILLING_PREFIX)


def is_text(part: Mapping[str, Any] | str) -> bool:
    """Return True for a text part, False for a bare string of some clients. Raises AttributeError for anything else."""
    if isinstance(part, str):
        return False
    text = part.get("text")
    return part.get("type") in _TEXT_TYPES and isinstance(text, str) and not is_billing(text)


def read(content: Any) -> tuple[str | Opaque, ...]:
    """Decode a content: a text, or a list of parts. Raises TypeError or AttributeError if it is neither."""
    if isinstance(content, str):
        return (content,) if content else ()
    return tuple(part["text"] if is_text(part) else Opaque(part) for part in content or ())


def split_calls[P](
    parts: Iterable[P],
    is_call: Callable[[P], bool],
    read_call: Callable[[P], ToolCall],
    is_thought: Callable[[P], bool],
) -> tuple[list[P], tuple[ToolCall, ...]]:
    """Split the parts of a message into calls and the rest; reasoning between calls is attached to these."""
    rest: list[P] = []
    calls: list[ToolCall] = []
    between: list[Opaque] = []
    for part in parts:
        if is_call(part):
            call, before, between = read_call(part), tuple(between), []
            calls.append(replace(call, before=before) if before else call)
        elif calls and is_thought(part):
            between.append(Opaque(part))
        else:
            rest.append(part)
    if between:
        calls[-1] = replace(calls[-1], after=tuple(between))
    return rest, tuple(calls)


def render_parts(content: Iterable[str | Opaque], originals: Any, new: Mapping[str, Any]) -> list[Any]:
    """Render a list of parts; an unchanged text keeps its fields (`cache_control`), other texts get those of `new`."""
    return _render_parts(content, _select_text_parts(originals), new)


def _select_text_parts(originals: Any) -> list[Any]:
    return [part for part in originals if is_text(part)] if isinstance(originals, list) else []


def _render_parts(content: Iterable[str | Opaque], known: list[Any], new: Mapping[str, Any]) -> list[Any]:
    """Render a list of parts; texts that are still present reuse their `known` parts."""
    out: list[Any] = []
    for part in content:
        if isinstance(part, Opaque):
            out.append(part.part)
        elif same := [place for place, text_part in enumerate(known) if text_part["text"] == part]:
            out.append(known.pop(same[0]))
        else:
            out.append({**new, "text": part})
    return out


def render_content(content: Sequence[str | Opaque], original: Any, new: Mapping[str, Any]) -> Any:
    """Render a content: as a text if it was no list of parts and has only text, else as parts.

    If the text with the last cache mark is gone, the mark moves to the last part.
    """
    if not isinstance(original, list) and Opaque not in map(type, content):
        return "".join(content)  # type: ignore[arg-type]
    out = _render_parts(content, known := _select_text_parts(original), new)
    marks = [part["cache_control"] for part in known if part.get("cache_control")]
    if marks and out and isinstance(out[-1], Mapping):
        out[-1] = {"cache_control": marks[-1], **out[-1]}
    return out


def group_turns(
    messages: Iterable[Message], write: Callable[[Message], Iterable[Any]], *, model: str, key: str
) -> list[dict[str, Any]]:
    """Render messages as entries of an API whose turns alternate: messages of the same role in a row share one entry.

    `model` is the role of the model's, `key` the field of the parts that `write` makes. An entry without parts is
    omitted.
    """
    entries: list[dict[str, Any]] = []
    for message in messages:
        role = model if message.role == "assistant" else "user"
        if not entries or entries[-1]["role"] != role:
            entries.append({"role": role, key: []})
        entries[-1][key] += write(message)
    return [entry for entry in entries if entry[key]]


_ANSWER_TYPE_ENDINGS = ("_call_output", "_tool_result", "mcp_call")
"""Endings of the types of parts and items that contain a tool's answer but are no message."""


def get_tool_output(message: Message) -> str:
    """Return the text of tools in a message: all of a result; in other messages the answers of server-side tools."""
    is_result = message.role == "tool"
    own = [part.part for part in message.content if isinstance(part, Opaque) and isinstance(part.part, dict)]
    answers = [part for part in own if is_result or str(part.get("type")).endswith(_ANSWER_TYPE_ENDINGS)]
    texts = [text for part in answers for text in _find_texts(part)]
    return "\n".join([message.text, *texts] if is_result else texts)


def _find_texts(value: Any) -> Iterator[str]:
    """Find the texts in a part, except encoded data of images."""
    if isinstance(value, str):
        if not value.startswith("data:"):
            yield value
    elif isinstance(value, list):
        for part in value:
            yield from _find_texts(part)
    elif isinstance(value, dict) and value.get("type") != "base64":
        for part in value.values():
            yield from _find_texts(part)


def parse_media_url(
    kind: Literal["image", "document"], url: object, name: str = "", detail: object = ""
) -> Media | None:
    """Parse media as most APIs have them: a `data:image/png;base64,…` URL, or an address; None if it is no URL."""
    detail_text = detail if isinstance(detail, str) else ""
    if not isinstance(url, str) or not url:
        return None
    head, comma, data = url.partition(",")
    if head.startswith("data:") and comma and head.endswith(";base64"):
        return Media(kind, head[5:].partition(";")[0], data, name=name, detail=detail_text)
    return Media(kind, url=url, name=name, detail=detail_text)


def render_media_url(media: Media) -> str:
    """Render media as a URL."""
    return media.url or f"data:{media.media_type or 'application/octet-stream'};base64,{media.data}"


def find_cache_mark(source: Any) -> Any:
    """Return the last cache mark in a message or a list of parts, as the client sent it; None if it has none."""
    content = getattr(source, "content", source)  # of a field such as the system prompt
    if isinstance(content, list):
        parts = [part for part in content if isinstance(part, dict) and part.get("type") != "tool_result"]
        return next((mark for part in reversed(parts) if (mark := part.get("cache_control"))), None)
    if not isinstance(content, dict):
        return None
    return content.get("cache_control") or find_cache_mark(content.get("content"))


def put_cache_mark(parts: list[Any], mark: Any, unmarked: Collection[str] = ()) -> list[Any]:
    """Put a cache mark on the last part that is not of a type in `unmarked`; return the same list without a mark."""
    places = [place for place, part in enumerate(parts) if part.get("type") not in unmarked]
    if not mark or not places:
        return parts
    last = places[-1]
    return [*parts[:last], {**parts[last], "cache_control": mark}, *parts[last + 1 :]]


def list_parts(message: Message) -> list[str | Media]:
    """Return the text and the media of a message, in order."""
    parts = (part.media if isinstance(part, Opaque) else part for part in message.content)
    return [part for part in parts if part]


def describe_omitted_media(media: Media) -> str:
    """Describe media that are omitted because the server accepts none there."""
    description = " ".join(part for part in (media.media_type or media.kind, media.name or media.url[:200]) if part)
    return f"[{description}: left out, as this server takes none here]"


def describe_omitted_part(name: str) -> str:
    """Describe a part that is omitted because no other API has it: for example, a file that its server stores."""
    return f"[{name}: left out, as this server cannot be given it]"


def get_file_name(part: object) -> str:
    """Return the name of the server-side file that a part refers to; empty if it refers to none."""
    outer = part if isinstance(part, Mapping) else {}
    inside = (outer, *(fields for key in ("file", "source") if isinstance(fields := outer.get(key), Mapping)))
    names = [
        fields[key] for key in ("filename", "title", "file_id") for fields in inside if isinstance(fields.get(key), str)
    ]
    return str(names[0]) if names and any("file_id" in fields for fields in inside) else ""
