"""Which server an upstream is, asked once before it is used: by its list of models, as clients ask for it."""

from __future__ import annotations

import json
import ssl
import urllib.request
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit

from vtc.apis import APIS
from vtc.profiles.loader import Profiles
from vtc.profiles.matching import Facts, best
from vtc.proxy.reaching import UNTRUSTED

SECONDS = 3
"""For the answer; a server that is slower is asked no more."""
MOST = 1 << 20
"""Bytes of the list that are read."""


def recognised(upstream: str, profiles: Profiles) -> tuple[str | None, str]:
    """The server profile of `upstream`, None if it is not known, and what to tell the user.

    A hosted API that is known by its name is not asked: it would want a key, and is hardly down.
    """
    url = urlsplit(upstream)
    named = best(profiles.servers, Facts(host=url.hostname or "", port=url.port or 0), profiles.sources).profile
    if named and url.scheme == "https":
        return named.name, f"{upstream} is one of: {named.description or named.name}"
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(f"{upstream}/v1/models", timeout=SECONDS) as answer:
            owners = _owners(json.loads(answer.read(MOST)))
    except HTTPError as error:
        error.close()
        return None, f"{upstream} answers {error.code} to GET /v1/models, so it is not known which server it is"
    except (URLError, OSError) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, ssl.SSLCertVerificationError):
            return (
                None,
                f"the certificate of {upstream} is not trusted ({reason.verify_message}): {UNTRUSTED} (after `--`)",
            )
        reason = getattr(reason, "strerror", None) or reason
        return None, f"{upstream} cannot be reached now ({reason}): is the model server running?"
    except HTTPException:
        return None, f"{upstream} does not answer in HTTP: is it the model server?"
    except ValueError:
        owners = set()
    for server in profiles.servers.values():
        if owners.intersection(server.owned_by):
            return server.name, f"{upstream} is {server.description or server.name}"
    return None, f"{upstream} answers; it needs no profile, or name one with --server"


def spoken(upstream: str) -> tuple[str, ...]:
    """Find the APIs that a server speaks, the one first that servers know best; none if that does not show.

    Each is asked with an empty object, which no server answers with a reply: what it does not speak is not found.
    """
    if urlsplit(upstream).scheme == "https":
        return ()  # it would want a key
    found = tuple(api.name for api in APIS if _is_spoken(upstream + api.route("any", stream=False)))
    return () if len(found) == len(APIS) else found


def _is_spoken(url: str) -> bool:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    headers = {"content-type": "application/json"}
    try:
        with direct.open(urllib.request.Request(url, b"{}", headers, method="POST"), timeout=SECONDS) as answer:
            return b"nexpected endpoint" not in answer.read(MOST)  # LM Studio
    except HTTPError as error:
        error.close()
        return error.code not in (404, 405, 501)
    except (OSError, HTTPException):
        return False


def told(apis: tuple[str, ...]) -> str:
    """Say which clients are served by way of another API."""
    others = [api.name for api in APIS if api.name not in apis]
    return f"it speaks {' and '.join(apis)}: clients of {', '.join(others)} are translated to {apis[0]}"


def _owners(found: Any) -> set[str]:
    entries = found.get("data") if isinstance(found, dict) else None
    owners = [one.get("owned_by") for one in entries if isinstance(one, dict)] if isinstance(entries, list) else []
    return {one for one in owners if isinstance(one, str)}
