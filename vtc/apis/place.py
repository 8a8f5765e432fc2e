"""The place that the requests of an API are sent to, and what it says besides their bodies: a model, a stream, a key.

POST /v1/chat/completions                                          the body says the model, and whether to stream
POST /v1beta/models/MODEL:streamGenerateContent?alt=sse&key=KEY    the path says both, the query the key
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote, unquote_plus

BEARER = "authorization"
"""The header of keys that stand after `Bearer`."""
_MODEL = "{model}"


class PathMatch(NamedTuple):
    """Holds what a path says."""

    base: str
    """Stands before the API's own part."""
    model: str
    """Empty if the body says it."""
    streams: bool
    """True if the path asks for a stream."""


@dataclass(frozen=True)
class Place:
    """The place that requests of an API are sent to; they are all POST."""

    path: str
    """How their paths end; `{model}` stands for the name of the model."""
    streamed: str = ""
    """The same of requests for a stream, if no field of the body asks for it."""
    stream_query: str = ""
    """Must stand in the query of those."""
    version: str = ""
    """Stands before that on a server that has several APIs."""
    versions: Collection[str] = ()
    """Others that clients put there."""
    kinds: Collection[str] = ()
    """What else may stand in the place of `models` before a name, which tells it then (`tunedModels/NAME`)."""
    key: str = BEARER
    """The header that holds the key."""
    key_query: str = ""
    """The parameter of the query that may hold it instead."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers that its servers want."""
    own_headers: str = ""
    """How the headers of clients begin that mean nothing to servers of other APIs."""
    flags: str = ""
    """The one of them that lists flags of features, with commas between them."""
    own_query: Collection[str] = ()
    """Parameters of the query that mean nothing to these, besides the ones above."""
    lists: str = "/v1/models"
    """Where its servers list their models."""
    shows: str = ""
    """Where they say more of the one that a body names, if they do."""

    @cached_property
    def _patterns(self) -> tuple[tuple[re.Pattern[str], bool], ...]:
        ends = ((self.streamed, True), (self.path, False)) if self.streamed else ((self.path, False),)
        return tuple(
            (re.compile(rf"{_make_expression(end, self.kinds)}/*\Z", _FLAGS), streams) for end, streams in ends
        )

    def match_path(self, path: str, query: str | None = None) -> PathMatch | None:
        """Read a path without its query; None if it is none of the API, or the `query` makes it none."""
        for pattern, streams in self._patterns:
            if match := pattern.search(path):
                if streams and query is not None and self.stream_query not in query.split("&"):
                    return None
                model = next(filter(None, match.groups()), "")
                return PathMatch(path[: match.start()], unquote(model).strip("/"), streams)
        return None

    def whole_reply_path(self, path: str) -> str:
        """Write the path of the same request for a whole reply, if the path says which it is for."""
        match = self.match_path(path.partition("?")[0]) if self.streamed else None
        return self.build_path(match.base, match.model) if match else path

    def strip_version(self, base: str) -> str:
        """Leave the version out of what stands before the API's own part."""
        versions = (version for version in (self.version, *self.versions) if version and base.endswith(version))
        return base.removesuffix(next(versions, ""))

    def build_path(self, base: str, model: str, query: str = "", *, streams: bool = False) -> str:
        """Write a path with its query, which says `query` besides."""
        streams = streams and bool(self.streamed)
        path = self.streamed if streams else self.path
        before, is_named, after = path.partition(_MODEL)
        if is_named:
            # No part of a name is one that leads elsewhere: `../files/x` is one part.
            kind, *rest = parts = model.split("/")
            slash = "" if {"", ".", ".."} & {*parts} else "/"
            has_kind = (
                slash and rest and self.kinds and f"/{kind}/" in (before, *(f"/{known}/" for known in self.kinds))
            )
            path = f"{'/' if has_kind else before}{quote(model, slash)}{after}"
        asked = [self.stream_query] if streams and self.stream_query else []
        query = "&".join([*asked, *(part for part in query.split("&") if part not in ("", self.stream_query))])
        return f"{base}{path}?{query}" if query else f"{base}{path}"

    def split_own_query(self, query: str) -> tuple[str, str]:
        """Leave out of a query what means nothing to other APIs; return the rest and the key that stood there."""
        own = {*self.own_query, self.key_query, self.stream_query.partition("=")[0]} - {""}
        parts = [part for part in query.split("&") if part]
        rest = [part for part in parts if unquote_plus(part.partition("=")[0]).casefold() not in own]
        keys = [value for name, value in parse_qsl(query) if self.key_query and name.casefold() == self.key_query]
        return "&".join(rest), next(iter(keys), "")


_FLAGS = re.IGNORECASE | re.DOTALL
"""A name may hold whatever is written as `%0A`, too."""


def _make_expression(end: str, kinds: Collection[str] = ()) -> str:
    """Write the end of a path as an expression; some clients write its `:` as `%3A`."""
    before, is_named, after = (re.escape(part).replace(":", "(?::|%3A)") for part in end.partition(_MODEL))
    if not is_named:
        return before
    others = f"|/((?:{'|'.join(kinds)})/[^/]+)" if kinds else ""
    return f"(?:{before}(.+){others}){after}"


@cache
def _compile_within(path: str) -> re.Pattern[str]:
    return re.compile(f"{_make_expression(path)}/", _FLAGS)


def is_within(path: str, end: str) -> bool:
    """True if a path holds what another one ends in, which may have `{model}` in it, up to a `/`."""
    return _compile_within(end).search(path) is not None


@cache
def make_suffix_place(path: str) -> Place:
    """Make the place of what is at the end of a path, once: it keeps its expressions."""
    return Place(path)
