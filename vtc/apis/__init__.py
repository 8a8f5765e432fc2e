"""The registry of the APIs that VTC speaks. A new API is another package here and another row of `APIS`."""

from __future__ import annotations

import json
import re
from difflib import get_close_matches
from urllib.parse import unquote

from vtc.apis import anthropic_messages, gemini_generate, ollama_chat, openai_chat, openai_responses
from vtc.apis.contract import Api, Reply, UnreadPath
from vtc.apis.place import is_within
from vtc.apis.request import Request, RequestError
from vtc.apis.request_writer import Changes
from vtc.apis.whole import (
    NoReply,
    convert_to_stream,
    fold_rewritten,
    fold_stream,
    make_error_stream,
    read_replies,
    render_text_reply,
    unwrap_gateway_envelope,
)

__all__ = [
    "APIS",
    "FLAGS",
    "Api",
    "Changes",
    "NoReply",
    "Reply",
    "Request",
    "RequestError",
    "UnreadPath",
    "convert_to_stream",
    "explain_unread",
    "find_api",
    "fold_rewritten",
    "fold_stream",
    "make_error_stream",
    "match_request",
    "may_be_reply",
    "read_replies",
    "render_text_reply",
    "unwrap_gateway_envelope",
]

APIS = (openai_chat.API, anthropic_messages.API, openai_responses.API, ollama_chat.API, gemini_generate.API)
FLAGS = tuple(sorted({api.place.flags for api in APIS} - {""}))
"""Headers that list feature flags; corrections never touch other headers."""


def normalize_path(path: str) -> str:
    """Normalize a path as servers do: no query, lower case, nothing escaped, no `;…`, no doubled slash."""
    plain = unquote(path.partition("?")[0]).casefold()
    return "/".join(name for part in plain.split("/") if (name := part.partition(";")[0]).strip("."))


def match_request(method: str, path: str) -> Api | None:
    """Find the API of a request; None if it belongs to none."""
    plain, query = f"/{normalize_path(path)}", path.partition("?")[2]
    return next((api for api in APIS if method == "POST" and api.place.match_path(plain, query)), None)


def find_api(name: str) -> Api | None:
    """Find an API by its name; None if there is none."""
    return next((api for api in APIS if api.name == name), None)


_ERROR_FIELDS = {
    *("error", "errors", "message", "msg", "detail", "details", "type", "code", "param", "status", "object", "title"),
    *("request_id", "requestid", "timestamp", "path", "success", "reason", "instance", "trace_id", "id", "model"),
}
"""Fields of error bodies. If an object has no others and its message is text, no client looks for a call in it."""


def may_be_reply(body: bytes) -> bool:
    """Return True unless a whole body is an error or contains no JSON object."""
    try:
        value = json.loads(body.decode(json.detect_encoding(body), "replace"), object_pairs_hook=list)
    except (ValueError, RecursionError):
        return b"{" in body
    pairs = value if isinstance(value, list) else []
    if not all(isinstance(pair, tuple) for pair in pairs):  # a list, which may contain replies
        return any(isinstance(part, list) for part in pairs)
    return not all(key in _ERROR_FIELDS and (key != "message" or isinstance(value, str)) for key, value in pairs)


def explain_unread(method: str, path: str) -> UnreadPath | None:
    """Explain why a request that resembles one of an API is not processed; None if it resembles none."""
    plain = f"/{normalize_path(path)}/"
    if method in ("OPTIONS", "HEAD") or match_request(method, path):
        return None
    known = (unread for api in APIS for close, unread in api.unread.items() if is_within(plain, close))
    return next(known, None) or (_suggest_path(plain) if method == "POST" else None)


def _suggest_path(path: str) -> UnreadPath | None:
    """Suggest the API path that the end of a mistyped path resembles; None if there is none."""
    words = _split_words(path)
    for place in (api.place for api in APIS):
        for streams in {False, bool(place.streamed)}:
            right = place.build_path(place.version, "MODEL", streams=streams)
            known = _split_words(place.build_path("" if place.streamed else place.version, "", streams=streams))
            end = [word if name else "" for word, name in zip(words[-len(known) :], known, strict=False)]
            if len(end) == len(known) and get_close_matches("/".join(end), ["/".join(known)], cutoff=0.9):
                return UnreadPath(f"no API has this path; did you mean {right}?", may_call=False)
    return None


def _split_words(path: str) -> list[str]:
    """Split a path at its separators; a model name that is absent is an empty word."""
    return re.split("[/:]", path.partition("?")[0].casefold().strip("/"))
