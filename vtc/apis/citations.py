"""Citations of web pages, in the form of OpenAI's two APIs."""

from __future__ import annotations

import sys
from typing import Any

from vtc.apis.contract import Json
from vtc.apis.fields import count_of, text_at
from vtc.events import Citation


def read_url_citation(fields: Json) -> tuple[Citation, ...]:
    """Decode a citation; empty if it names no page."""
    url = text_at(fields, "url")
    if not url:
        return ()
    quote, start, end = text_at(fields, "content"), count_of(fields, "start_index"), count_of(fields, "end_index")
    return (Citation(url, text_at(fields, "title") or "", quote or "", start, end or sys.maxsize),)


def render_url_citation(citation: Citation, start: int = 0) -> dict[str, Any]:
    """Render a citation in a text that begins at the character `start` of the choice; `content` is OpenRouter's."""
    place = {"start_index": max(citation.start - start, 0), "end_index": max(citation.end - start, 0)}
    quoted = {"content": citation.quote} if citation.quote else {}
    return {"url": citation.url, "title": citation.title, **quoted, **place}
