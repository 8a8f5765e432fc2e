"""The place of an API's requests: paths, headers and query, and what these contain: a model, a stream, a key.

POST /v1/chat/completions                                     model and stream are in the body
POST /v1beta/models/MODEL:streamGenerateContent?alt=sse&key=KEY    both are in the path, the key is in the query
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote, unquote_plus

BEARER = "authorization"
"""The header of a key after `Bearer`."""
_MODEL = "{model}"


def format_key(header: str, key: str) -> str:
    """Format a key as the value of its header."""
    return f"Bearer {key}" if header == BEARER else key


class PathMatch(NamedTuple):
    """The content of a path."""

    base: str
    """The part before the API's own part, for example the prefix of a gateway."""
    model: str
    """Empty if the model is in the body."""
    streams: bool
    """True if the path asks for a stream."""


@dataclass(frozen=True)
class Place:
    """The place of an API's requests; their method is always POST."""

    path: str
    """The end of the requests' paths; `{model}` is the name of the model."""
    streamed: str = ""
    """The end of paths that ask for a stream, if the API has no field for that in the body."""
    stream_query: str = ""
    """Required in the query of requests for a stream."""
    version: str = ""
    """The part of the path before `path`, which VTC adds for a server of this API: `/v1`."""
    versions: Collection[str] = ()
    """Other such parts that clients use."""
    kinds: Collection[str] = ()
    """Alternatives to `models` before a name, which then include the kind (`tunedModels/NAME`)."""
    key: str = BEARER
    """The header of the key."""
    key_query: str = ""
    """The query parameter that may contain the key instead."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers that its servers require."""
    own_headers: str = ""
    """Prefix of the clients' headers that mean nothing to servers of other APIs."""
    flags: str = ""
    """The client's header that lists feature flags, separated by commas."""
    own_query: Collection[str] = ()
    """Further query parameters that mean nothing to other APIs."""
    lists: str = "/v1/models"
    """The path at which its servers list their models."""
    shows: str = ""
    """The path at which they describe the model that a body names, if they do."""

    @cached_property
    def _patterns(self) -> tuple[tuple[re.Pattern[str], bool], ...]:
        ends = ((self.streamed, True), (self.path, False)) if self.streamed else ((self.path, False),)
        return tuple(
            (re.compile(rf"{_make_expression(end, self.kinds)}/*\Z", _FLAGS), streams) for end, streams in ends
        )

    def match_path(self, path: str, query: str | None = None) -> PathMatch | None:
        """Match a path without its query; None if the path or the `query` does not belong to the API."""
        for pattern, streams in self._patterns:
            if match := pattern.search(path):
                if streams and query is not None and self.stream_query not in query.split("&"):
                    return None
                model = next(filter(None, match.groups()), "")
                return PathMatch(path[: match.start()], unquote(model).strip("/"), streams)
        return None

    def whole_reply_path(self, path: str) -> str:
        """Return the path of the same request for a whole reply, if the path asks for a stream."""
        match = self.match_path(path.partition("?")[0]) if self.streamed else None
        return self.build_path(match.base, match.model) if match else path

    def strip_version(self, base: str) -> str:
        """Remove the version from the part before the API's own part."""
        versions = (version for version in (self.version, *self.versions) if version and base.endswith(version))
        return base.removesuffix(next(versions, ""))

    def build_path(self, base: str, model: str, query: str = "", *, streams: bool = False) -> str:
        """Build a path with the API's own query and `query`."""
        streams = streams and bool(self.streamed)
        path = self.streamed if streams else self.path
        before, is_named, after = path.partition(_MODEL)
        if is_named:
            # Escape a name with `..` as one part: `../files/x` must not lead elsewhere.
            parts = model.split("/")
            is_safe = not {"", ".", ".."} & {*parts}
            has_kind = False
            if is_safe and len(parts) > 1 and self.kinds:
                has_kind = f"/{parts[0]}/" in (before, *(f"/{kind}/" for kind in self.kinds))
            path = f"{'/' if has_kind else before}{quote(model, '/' if is_safe else '')}{after}"
        parameters = [part for part in query.split("&") if part not in ("", self.stream_query)]
        if streams and self.stream_query:
            parameters.insert(0, self.stream_query)
        return f"{base}{path}?{'&'.join(parameters)}" if parameters else f"{base}{path}"

    def split_own_query(self, query: str) -> tuple[str, str]:
        """Split a query into the part for any API and the key; drop the parameters that mean nothing to other APIs."""
        own = {*self.own_query, self.key_query, self.stream_query.partition("=")[0]} - {""}
        parts = [part for part in query.split("&") if part]
        rest = [part for part in parts if unquote_plus(part.partition("=")[0]).casefold() not in own]
        keys = [value for name, value in parse_qsl(query) if self.key_query and name.casefold() == self.key_query]
        return "&".join(rest), next(iter(keys), "")


_FLAGS = re.IGNORECASE | re.DOTALL
"""A name may contain any escaped character (`%0A`), too."""


def _make_expression(end: str, kinds: Collection[str] = ()) -> str:
    """Make the expression for the end of a path; some clients write its `:` as `%3A`."""
    before, is_named, after = (re.escape(part).replace(":", "(?::|%3A)") for part in end.partition(_MODEL))
    if not is_named:
        return before
    others = f"|/((?:{'|'.join(kinds)})/[^/]+)" if kinds else ""
    return f"(?:{before}(.+){others}){after}"


@cache
def _compile_within(path: str) -> re.Pattern[str]:
    return re.compile(f"{_make_expression(path)}/", _FLAGS)


def is_within(path: str, end: str) -> bool:
    """Return True if a path contains this end of a path, which may have `{model}` in it, followed by `/`."""
    return _compile_within(end).search(path) is not None


@cache
def make_suffix_place(path: str) -> Place:
    """Make the place of a path's end; cached, because a place compiles its expressions."""
    return Place(path)
