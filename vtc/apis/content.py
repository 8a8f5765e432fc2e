"""The content of a message: its text, and parts that pass as they are (images, thoughts that are signed)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from msgspec.structs import replace

from vtc.events import Media, Message, Opaque, ToolCall

_TEXTS = ("text", "input_text", "output_text")
BILLING_PREFIX = "x-anthropic-billing-header:"
"""Begins a text of Claude Code that differs in each request and must stay the first part: it is not read."""


_BILLING = re.compile(rf"{BILLING_PREFIX}(?:[ \t]*[\w.-]+=[^;\n]*;)*[^\S\n]*\n?")


def without_billing(text: str) -> str:
    """Leave out what Claude Code puts before its prompt, which differs in each request; no other server wants it."""
    return _BILLING.sub("", text, count=1) if is_billing(text) else text


def is_billing(text: str) -> bool:
    """True for what Claude Code puts before its prompt."""
    return text.startswith(BILLING_PREFIX)


def is_text(part: Mapping[str, Any] | str) -> bool:
    """True if a part says text; some clients send bare strings, which pass. Raises AttributeError if it is none."""
    if isinstance(part, str):
        return False
    text = part.get("text")
    return part.get("type") in _TEXTS and isinstance(text, str) and not is_billing(text)


def read(content: Any) -> tuple[str | Opaque, ...]:
    """Read a content: a text, or a list of parts. Raises TypeError or AttributeError if it is neither."""
    if isinstance(content, str):
        return (content,) if content else ()
    return tuple(part["text"] if is_text(part) else Opaque(part) for part in content or ())


def split_calls[P](
    parts: Iterable[P],
    is_call: Callable[[P], bool],
    read_call: Callable[[P], ToolCall],
    is_thought: Callable[[P], bool],
) -> tuple[list[P], tuple[ToolCall, ...]]:
    """Part the calls of a message from all else that it says; what it thought between calls goes with these."""
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
    """Write a list of parts; one that says what it said before keeps its fields (`cache_control`), `new` has others."""
    return _render_parts(content, _select_text_parts(originals), new)


def _select_text_parts(originals: Any) -> list[Any]:
    return [part for part in originals if is_text(part)] if isinstance(originals, list) else []


def _render_parts(content: Iterable[str | Opaque], known: list[Any], new: Mapping[str, Any]) -> list[Any]:
    """Write a list of parts; those that are `known` and still said are taken from there."""
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
    """Write a content: as a text if it was none of parts and is all text, else as parts.

    A mark for the cache on a text that is not said any more moves to the last part.
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
    """Write messages as entries, for APIs in which turns alternate: what follows with the same role is one entry.

    `model` is the role of the model's, `key` the field of the parts that `write` makes. One without parts is left out.
    """
    entries: list[dict[str, Any]] = []
    for message in messages:
        role = model if message.role == "assistant" else "user"
        if not entries or entries[-1]["role"] != role:
            entries.append({"role": role, key: []})
        entries[-1][key] += write(message)
    return [entry for entry in entries if entry[key]]


_ANSWERS = ("_call_output", "_tool_result", "mcp_call")
"""How the types end of parts and items in which a tool's answer stands that is no message of its own."""


def get_tool_output(message: Message) -> str:
    """Return what tools say in a message: all of a result, and in others the answers of tools that a server runs."""
    is_result = message.role == "tool"
    own = [part.part for part in message.content if isinstance(part, Opaque) and isinstance(part.part, dict)]
    answers = [part for part in own if is_result or str(part.get("type")).endswith(_ANSWERS)]
    texts = [text for part in answers for text in _find_texts(part)]
    return "\n".join([message.text, *texts] if is_result else texts)


def _find_texts(value: Any) -> Iterator[str]:
    """Find the texts in a part; not what is encoded, as images are."""
    if isinstance(value, str):
        if not value.startswith("data:"):
            yield value
    elif isinstance(value, list):
        for part in value:
            yield from _find_texts(part)
    elif isinstance(value, dict) and value.get("type") != "base64":
        for part in value.values():
            yield from _find_texts(part)


# Images and documents as the URLs that most APIs have them in: `data:image/png;base64,…`, or where they are.


def parse_media_url(
    kind: Literal["image", "document"], url: object, name: str = "", detail: object = ""
) -> Media | None:
    """Read a URL; None if it is none."""
    closely = detail if isinstance(detail, str) else ""
    if not isinstance(url, str) or not url:
        return None
    head, comma, data = url.partition(",")
    if head.startswith("data:") and comma and head.endswith(";base64"):
        return Media(kind, head[5:].partition(";")[0], data, name=name, detail=closely)
    return Media(kind, url=url, name=name, detail=closely)


def render_media_url(media: Media) -> str:
    """Write it as a URL."""
    return media.url or f"data:{media.media_type or 'application/octet-stream'};base64,{media.data}"


def list_parts(message: Message) -> list[str | Media]:
    """Return the text and the media of a message, in order."""
    parts = (part.media if isinstance(part, Opaque) else part for part in message.content)
    return [part for part in parts if part]


def describe_omitted_media(media: Media) -> str:
    """Tell in words that it is left out, for servers that cannot be given it."""
    of = " ".join(part for part in (media.media_type or media.kind, media.name or media.url[:200]) if part)
    return f"[{of}: left out, as this server takes none here]"


def describe_omitted_part(name: str) -> str:
    """Tell in words that a part of a message is left out which no other API has: a file that its server keeps."""
    return f"[{name}: left out, as this server cannot be given it]"


def get_file_name(part: object) -> str:
    """Name the file, kept by the server of the part's API, that the part refers to; empty if it refers to none."""
    outer = part if isinstance(part, Mapping) else {}
    inside = (outer, *(fields for key in ("file", "source") if isinstance(fields := outer.get(key), Mapping)))
    names = [
        fields[key] for key in ("filename", "title", "file_id") for fields in inside if isinstance(fields.get(key), str)
    ]
    return str(names[0]) if names and any("file_id" in fields for fields in inside) else ""
