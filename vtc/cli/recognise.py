"""Which server an upstream is, asked once before it is used: by its list of models, as clients ask for it."""

from __future__ import annotations

import json
import urllib.request
from typing import Any
from urllib.error import HTTPError, URLError

from vtc.profiles.loader import Profiles

SECONDS = 3
"""For the answer; a server that is slower is asked no more."""
MOST = 1 << 20
"""Bytes of the list that are read."""


def recognised(upstream: str, profiles: Profiles) -> tuple[str | None, str]:
    """The server profile of `upstream`, None if it is not known, and what to tell the user."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(f"{upstream}/v1/models", timeout=SECONDS) as answer:
            owners = _owners(json.loads(answer.read(MOST)))
    except HTTPError as error:
        error.close()
        return None, f"{upstream} answers {error.code} to GET /v1/models, so it is not known which server it is"
    except (URLError, OSError) as error:
        reason = getattr(error, "reason", error)
        return None, f"{upstream} cannot be reached now ({reason}): is the model server running?"
    except ValueError:
        owners = set()
    for server in profiles.servers.values():
        if owners.intersection(server.owned_by):
            return server.name, f"{upstream} is {server.description or server.name}"
    return None, f"{upstream} answers; it needs no profile, or name one with --server"


def _owners(found: Any) -> set[str]:
    entries = found.get("data") if isinstance(found, dict) else None
    owners = [one.get("owned_by") for one in entries if isinstance(one, dict)] if isinstance(entries, list) else []
    return {one for one in owners if isinstance(one, str)}
