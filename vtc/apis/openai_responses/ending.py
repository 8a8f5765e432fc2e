"""Reads what the end of a reply of Responses says besides its reason: the tokens used, an error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from vtc.apis.base import Json
from vtc.apis.fields import count_of, part_of
from vtc.apis.openai_responses.items import NAME
from vtc.events import Failure, Origin, Usage


def usage_in(usage: Any) -> Iterator[Usage]:
    """Read how many tokens were used."""
    if isinstance(usage, Mapping):
        cached = count_of(part_of(usage, "input_tokens_details"), "cached_tokens")
        thoughts = count_of(part_of(usage, "output_tokens_details"), "reasoning_tokens")
        own = Origin(NAME, "usage", usage, harmless=True)
        yield Usage(count_of(usage, "input_tokens"), count_of(usage, "output_tokens"), cached, thoughts, own=own)


def failure_in(value: Json) -> Failure:
    """Read an error, which some servers put under `error`."""
    response = part_of(value, "response")
    error = part_of(response, "error") or part_of(value, "error") or value
    own = {key: value[key] for key in ("type", "code", "message", "param") if key in value}
    own |= {"error": {**error}} if part_of(value, "error") else {}
    kind = str(error.get("code") or error.get("type") or "")
    harmless = value["type"] == "error"
    status = str(response.get("status") or "failed")
    said = str(error.get("message") or f"The server ended the reply as {status}, and did not say why.")
    return Failure(
        said, "" if kind == "error" else kind, own=Origin(NAME, "error", own, harmless=True) if harmless else None
    )
