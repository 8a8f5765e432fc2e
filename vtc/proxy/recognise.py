"""Which server an upstream is, asked before it is used: by its list of models, as clients ask for it."""

from __future__ import annotations

import ssl
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from vtc.apis import APIS
from vtc.profiles.loader import Profiles
from vtc.profiles.matching import Facts, best
from vtc.profiles.schema import ServerProfile
from vtc.proxy.asker import Asker
from vtc.proxy.reaching import UNTRUSTED

LIST = "/v1/models"


STARTING = (502, 503, 504)
"""Answers of a server that loads its model, and of a gateway before one that is not there."""


class Identity(NamedTuple):
    """Which server an upstream is."""

    server: str | None
    """Its profile; None if it is not known."""
    told: str
    """What to tell the user."""
    is_there: bool = True
    """It answered, or need not be asked."""


def recognised(asker: Asker, profiles: Profiles) -> Identity:
    """Find out which server an upstream is.

    A hosted API that is known by its name is not asked: it would want a key, and is hardly down. Nor is a server for
    which the user has a profile.
    """
    upstream, url = asker.url, urlsplit(asker.url)
    named = best(profiles.servers, Facts(host=url.hostname or "", port=url.port or 0), profiles.sources).profile
    if named and not profiles.sources["server", named.name].builtin:
        return Identity(named.name, f"{upstream} has a profile of yours: {named.name}")
    if named and url.scheme == "https":
        return Identity(named.name, f"{upstream} is one of: {named.description or named.name}")
    answer = asker.ask(LIST)
    if isinstance(answer.error, ssl.SSLCertVerificationError):
        why = f"({answer.error.verify_message}): {UNTRUSTED} (after `--`)"
        return Identity(None, f"the certificate of {upstream} is not trusted {why}")
    if answer.error and not isinstance(answer.error, OSError):
        return Identity(None, f"{upstream} does not answer in HTTP: is it the model server?", is_there=False)
    if answer.error:
        why = f"({answer.why}): is the model server running?"
        return Identity(None, f"{upstream} cannot be reached now {why}", is_there=False)
    if answer.status in STARTING:
        said = f"{upstream} answers {answer.status} to GET {LIST}: does it still load its model?"
        return Identity(None, said, is_there=False)
    if not answer.ok:
        said = f"{upstream} answers {answer.status} to GET {LIST}, so it is not known which server it is"
        return Identity(None, said)
    if server := owned(answer.json, profiles):
        return Identity(server.name, f"{upstream} is {server.description or server.name}")
    return Identity(None, f"{upstream} answers; it needs no profile, or name one with --server")


def owned(listed: Any, profiles: Profiles) -> ServerProfile | None:
    """Find the profile of a server by the owners in its list of models."""
    names = {one for entry in entries(listed) if isinstance(one := entry.get("owned_by"), str)}
    return next((one for one in profiles.servers.values() if names.intersection(one.owned_by)), None)


def entries(listed: Any) -> list[dict[str, Any]]:
    """The entries of a list of models; none if it is no such list."""
    found = listed.get("data") if isinstance(listed, dict) else None
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def spoken(asker: Asker) -> tuple[str, ...]:
    """Find the APIs that a server speaks, the one first that servers know best; none if that does not show.

    Each is asked with an empty object, which no server answers with a reply: what it does not speak is not found.
    """
    if urlsplit(asker.url).scheme == "https" and not asker.has_key:
        return ()  # it would want one
    found = tuple(api.name for api in APIS if _is_spoken(asker, api.place.written(api.place.version, "none")))
    return () if len(found) == len(APIS) else found


def _is_spoken(asker: Asker, path: str) -> bool:
    answer = asker.ask(path, b"{}")
    if answer.ok:
        return b"nexpected endpoint" not in answer.body  # LM Studio
    return answer.error is None and answer.status not in (404, 405, 501)


def told(apis: tuple[str, ...]) -> str:
    """Say which clients are served by way of another API."""
    others = [api.name for api in APIS if api.name not in apis]
    return f"it speaks {' and '.join(apis)}: clients of {', '.join(others)} are translated to {apis[0]}"
