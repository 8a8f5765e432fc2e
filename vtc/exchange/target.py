"""The target of a request at its server: the path of the server's API, and the headers that the server expects."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping

from vtc.apis import APIS
from vtc.apis.place import BEARER, Place, format_key
from vtc.exchange import Session

KEY_HEADERS = {api.place.key for api in APIS} - {BEARER}
"""Headers that hold nothing but a key."""
OWN_HEADER_PREFIXES = {api.place.own_headers for api in APIS} - {""}
"""Prefixes of headers that are specific to one API."""


def address_request(session: Session, client: Place, path: str, headers: MutableMapping[str, str]) -> str:
    """Return the path of a session's request at the server, and change its headers to those that the server expects.

    The path is the profile's, or else next to the `path` of the client.
    """
    # Step 1: Set the headers that the session changed.
    server = session.server.place
    model, streams, changed_headers = session.sent_request
    for name, value in changed_headers.items():
        if value is None:
            headers.pop(name, None)
        else:
            headers[name] = value
    # Step 2: In the client's API, change the path only if it names another model or asks for another kind of reply.
    plain, _, query = path.partition("?")
    asked = client.match_path(plain)
    if not session.is_bridged:
        if asked and asked.model and (asked.model, asked.streams) != (model, streams):
            return server.build_path(asked.base, model, query, streams=streams)
        return path
    # Step 3: Else translate the headers, and build the path from the profile's, or next to the client's.
    rest, key = client.split_own_query(query)
    translate_headers(headers, key, server)
    base = f"{client.strip_version(asked.base) if asked else ''}{server.version}"
    if asked and session.plan.stack.learned_api and server.version == client.version:
        base = asked.base  # the server offers the client's API there, too
    configured = session.plan.stack.server.api_path
    place = server.match_path(configured) if configured else None
    if configured and not place:
        return f"{configured}?{rest}".removesuffix("?")
    return server.build_path(place.base if place else base, model, rest, streams=streams)


def translate_headers(headers: MutableMapping[str, str], key: str, server: Place) -> None:
    """Move the client's key to the header that servers of the API read, and drop headers specific to other APIs."""
    keys = [*(headers.pop(name, "") for name in sorted(KEY_HEADERS)), key]
    own = tuple(OWN_HEADER_PREFIXES - {server.own_headers})
    for name in [name for name in headers if name.lower().startswith(own)]:
        del headers[name]
    key = next(filter(None, keys), "")
    scheme, _, token = headers.get(BEARER, "").partition(" ")
    if server.key != BEARER and not key and scheme.lower() == "bearer" and token:
        key = token
        del headers[BEARER]
    if key and not (server.key == BEARER and BEARER in headers):
        headers[server.key] = format_key(server.key, key)
    headers.update(server.headers)


def find_key(headers: Mapping[str, str]) -> str:
    """Find the key in the headers of a request; empty if there is none."""
    scheme, _, token = headers.get(BEARER, "").partition(" ")
    found = (headers.get(name, "") for name in sorted(KEY_HEADERS))
    return next(filter(None, found), token if scheme.lower() == "bearer" else "")
