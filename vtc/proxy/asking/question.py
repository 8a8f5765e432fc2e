"""A question to a server: a request that VTC makes itself.

`Asker` sends it on a connection of its own, with its key and time limit. `serving/side_questions.py` sends it in the
place of a client's request, with the client's key. A follow-up (`serving/follow_up.py`) needs no question: it repeats
the request of its exchange with another body.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from vtc.apis.place import BEARER


class ServerQuestion(NamedTuple):
    """A request to a server; its key and its time limit are those of its sender."""

    path: str
    """The path after the server's URL, or the end of the path if it replaces a client's request."""
    body: bytes | None = None
    """The JSON to POST; None to GET."""
    headers: Mapping[str, str] = MappingProxyType({})
    key_header: str = BEARER
    """The header of the key."""

    @property
    def method(self) -> str:
        return "GET" if self.body is None else "POST"
