"""The blocks of content in the requests of Anthropic Messages."""

from __future__ import annotations

from typing import Any

from vtc.apis.contract import Json
from vtc.events import Media

type Block = dict[str, Any]
THINKING_TYPES = ("thinking", "redacted_thinking")
"""Types of thinking blocks. They cannot hold `cache_control`."""


def is_thinking(block: Any) -> bool:
    """True for a thinking block."""
    return isinstance(block, dict) and block.get("type") in THINKING_TYPES


def list_blocks(content: Any) -> list[Block]:
    """Return the blocks of a `content` field. Raises TypeError if it is neither text nor a list of blocks."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    if not isinstance(content, list) or not all(isinstance(block, dict) for block in content):
        raise TypeError("`content` is neither text nor a list of blocks")
    return content


def render_media(media: Media) -> Json:
    """Render media as a block."""
    if media.data:
        source = {"type": "base64", "media_type": media.media_type, "data": media.data}
    else:
        source = {"type": "url", "url": media.url}
    return {"type": media.kind, "source": source}
