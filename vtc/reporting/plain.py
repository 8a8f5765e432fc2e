"""Validation of a report given as plain data: from a saved flow or a line of a log, which may hold anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Required, TypedDict

import msgspec


class _CallEntry(TypedDict, total=False):
    name: Required[str]
    dialect: Required[str]
    repairs: Required[list[str]]
    lacks: list[str]
    count: int


class _UnreadCallEntry(TypedDict, total=False):
    reason: Required[str]
    dialect: Required[str]
    name: str | None
    excerpt: str
    count: int


class _PolicyEntry(TypedDict, total=False):
    policy: Required[str]
    action: Required[str]
    tool: Required[str]
    reason: Required[str]
    count: Required[int]
    detail: str


class _PrefixEntry(TypedDict, total=False):
    kept: Required[int]
    of: Required[int]
    chars: Required[int]
    chars_of: Required[int]
    what: str
    how: str
    at: int
    before: str
    now: str


class _UnreadEntry(TypedDict, total=False):
    tool: str
    begins: Required[str]
    text: Required[str]
    advice: Required[str]


class _PlainParties(TypedDict, total=False):
    client: str
    model: str
    asked: str
    server_model: str
    settings: dict[str, Any]
    api: str
    server_api: str
    form: str


class _PlainMeasures(TypedDict, total=False):
    sizes: dict[str, int]
    seconds: float
    elapsed: float


class _PlainReport(_PlainParties, _PlainMeasures, total=False):
    outcome: str
    why: list[str]
    request: list[str]
    notes: list[str]
    prefix: _PrefixEntry
    calls: list[_CallEntry]
    refusals: list[_UnreadCallEntry]
    policies: list[_PolicyEntry]
    failures: list[str]
    errors: list[str]
    unread: _UnreadEntry | bool


def validate_report(value: object) -> Mapping[str, Any] | None:
    """Return plain data unchanged if it has the shape of a report; else None."""
    if not isinstance(value, Mapping):
        return None
    # An empty `prefix` (first prompt) or `unread` (no possible call) lacks the keys that are required otherwise.
    filled = {key: field for key, field in value.items() if field or key not in ("prefix", "unread")}
    try:
        msgspec.convert(filled, _PlainReport)
    except (msgspec.ValidationError, RecursionError):
        return None
    return value
