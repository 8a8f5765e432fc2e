"""Explain to people which rules an error matches, which of them counts, and why the others do not."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from vtc.apis.fields import split_raw_object
from vtc.exchange.asking.corrections import CorrectionScope, Fields, RequestParts
from vtc.exchange.asking.named_fields import list_named, mark_statements
from vtc.exchange.asking.outline import RequestOutline, split_path
from vtc.exchange.asking.rejection_rules import RejectionRule, load_rules
from vtc.exchange.asking.rejections import describe_steps, learn_limit, select_new_steps
from vtc.exchange.asking.server_error import ServerError
from vtc.exchange.asking.window import read_counts
from vtc.json_text import decode_json

_PATH = re.compile(r"'([A-Za-z_$][\w$.\[\]-]*)'|\b([A-Za-z]\w*(?:[._]\w+|\[\w+\])+)")
"""A word that can be the name of a field: in quotes, or with a character that prose lacks."""


class RejectedRequest(NamedTuple):
    """The request that a server rejected."""

    body: bytes | None
    """None if it is unknown: then each name in the error can be a field of it."""
    flags: Fields
    """The flags in its headers (`corrections.read_flags`)."""
    scope: CorrectionScope
    known: Mapping[str, Any]
    """The steps that were applied to it."""


class ExplainedRule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that matches an error."""

    priority: int
    action: str
    """The effect of the rule on this request."""
    matched: str
    """The part of the error that it matches."""
    expression: str
    source: str
    obstacle: str = ""
    """Why it does not count; empty if it does, unless one with a higher priority does."""


def explain_rejection(error: ServerError, request: RejectedRequest) -> Iterator[ExplainedRule]:
    """Explain the rules that match an error, by priority."""
    guess = _guess_body(error, request.scope)
    body = guess if request.body is None else decode_json(request.body)
    outline, guessed = (RequestOutline({"body": fields, "headers": request.flags}) for fields in (body, guess))
    named = [*list_named(error, request.known, {"body": body, "headers": request.flags}, outline)]
    parts = request.body and RequestParts(split_raw_object(request.body) or {}, request.flags)
    # A rule also comes near if the error names a field that the request lacks.
    marked = [text for known in (outline, guessed) for text in mark_statements(error, request.flags, known).values()]
    for rule in load_rules().by_priority:
        names_fields = rule.correction and not rule.has_paths
        match = next(rule.find(marked) if names_fields else rule.match(error), None)
        if match is None or rule.do in ("count", "suspect"):
            continue
        corrections = [each.correction for each in named if each.rule is rule]
        effective = [each for each in corrections if not parts or each.apply(parts, request.scope) is not parts]
        obstacle = rule.find_obstacle(error, request.known)
        if obstacle and not match.expression:
            continue  # of another status or step, and of any text: the error does not come near
        if not obstacle and rule.correction and not effective:
            obstacle = "the field is protected, or has such a value" if corrections else "the request has no such field"
        yield ExplainedRule(
            priority=rule.priority,
            action=", ".join(dict.fromkeys(map(str, effective))) or _describe_action(rule, match.found.string),
            matched=" ".join(match.found[0].replace("⟨", "'").replace("⟩", "'").split()),
            expression=match.expression,
            source=match.source,
            obstacle=obstacle or _find_lack(rule, match.found.string, request.known),
        )


def _find_lack(rule: RejectionRule, text: str, known: Mapping[str, Any]) -> str:
    """Return why a rule has no effect on a request; empty if it has one."""
    if rule.do == "not_full":
        return "it only excludes that the prompt is too long"
    if rule.do == "limit" and learn_limit(text, known) is None:
        return "the error does not state the tokens"
    return "its steps were applied already" if rule.steps and not select_new_steps(rule, known) else ""


def _describe_action(rule: RejectionRule, text: str) -> str:
    """Describe the effect of a rule on any request."""
    counts = ", ".join(f"{name} {number}" for name, number in read_counts(text).items())
    match rule.do:
        case "steps":
            return f"apply {', '.join(describe_steps(rule.steps).values())}"
        case "stop":
            return "no retry, because no change of the request avoids this error"
        case "limit":
            return f"lower the limit on the reply ({counts or 'no numbers'})"
        case "not_full":
            return "the limit on the reply is too large"
        case "full":
            return f"report a full window in the words of the client's API ({counts or 'no numbers'})"
    return f"{rule.do} {', '.join((*rule.paths, *rule.headers)) or 'the named field'}"


def _guess_body(error: ServerError, scope: CorrectionScope) -> dict[str, Any]:
    """Make a body of all fields that an error can mean."""
    body: dict[str, Any] = {}
    text = "\n".join(statement.text for statement in error.statements)
    words = [match[1] or match[2] for match in _PATH.finditer(text)]
    for path in (*error.paths, *words, *(path for paths in scope.layout.limits.values() for path in paths)):
        *above, last = [key for key in split_path(path) if not key.isdigit()] or [""]
        fields = body
        for key in above:
            if not isinstance(fields.get(key), dict):
                fields[key] = {}
            fields = fields[key]
        fields.setdefault(last, 0)
    return body
