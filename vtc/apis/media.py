"""Images and documents as the URLs that most APIs have them in: `data:image/png;base64,…`, or where they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from vtc.events import Media, Message, Opaque


def from_url(kind: Literal["image", "document"], url: object, name: str = "", detail: object = "") -> Media | None:
    """Read a URL; None if it is none."""
    closely = detail if isinstance(detail, str) else ""
    if not isinstance(url, str) or not url:
        return None
    head, comma, data = url.partition(",")
    if head.startswith("data:") and comma and head.endswith(";base64"):
        return Media(kind, head[5:].partition(";")[0], data, name=name, detail=closely)
    return Media(kind, url=url, name=name, detail=closely)


def to_url(media: Media) -> str:
    """Write it as a URL."""
    return media.url or f"data:{media.media_type or 'application/octet-stream'};base64,{media.data}"


def parts_of(message: Message) -> list[str | Media]:
    """The text and the media of a message, in order."""
    parts = (part.media if isinstance(part, Opaque) else part for part in message.content)
    return [part for part in parts if part]


def note(media: Media) -> str:
    """Tell in words that it is left out, for servers that cannot be given it."""
    of = " ".join(part for part in (media.media_type or media.kind, media.name or media.url[:200]) if part)
    return f"[{of}: left out, as this server takes none here]"


def missing(what: str) -> str:
    """Tell in words that a part of a message is left out which no other API has: a file that its server keeps."""
    return f"[{what}: left out, as this server cannot be given it]"


def file_of(part: object) -> str:
    """Name the file, kept by the server of the part's API, that the part refers to; empty if it refers to none."""
    said = part if isinstance(part, Mapping) else {}
    inside = (said, *(one for key in ("file", "source") if isinstance(one := said.get(key), Mapping)))
    names = [one[key] for key in ("filename", "title", "file_id") for one in inside if isinstance(one.get(key), str)]
    return str(names[0]) if names and any("file_id" in one for one in inside) else ""
