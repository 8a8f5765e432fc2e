"""Send requests to a model server over HTTP within a time limit: no proxy, no redirects, one connection per request.

A key is sent only to that server and never appears in output.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from threading import Event, Timer
from typing import Any
from urllib.parse import urlsplit

from vtc.apis.place import format_key
from vtc.proxy.asking.question import ServerQuestion
from vtc.proxy.trust import DEFAULT_TRUST, Trust

MAX_ANSWER_BYTES = 4 << 20
"""Maximum number of bytes that are read of an answer."""


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    """The answer of a server, or the `error` that prevented one."""

    status: int = 0
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    """By name in lower case."""
    error: OSError | HTTPException | None = None
    seconds: float = 0.0
    peer: tuple[object, ...] = ()
    """The IP address and the port of the connection."""

    @property
    def ok(self) -> bool:
        """True for a status of success."""
        return 200 <= self.status < 300

    @property
    def json(self) -> Any:
        """The parsed body; None if it is not JSON or the status is an error."""
        try:
            return json.loads(self.body) if self.ok else None
        except (ValueError, RecursionError):
            return None

    @property
    def why(self) -> str:
        """The reason why there is no answer, for people."""
        if isinstance(self.error, OSError):  # includes a server that closes the connection
            return self.error.strerror or str(self.error)
        return "it does not answer in HTTP"


class Asker:
    """HTTP client for one server; each request returns an answer or an error within `seconds`."""

    def __init__(self, url: str, *, key: str = "", seconds: float = 3, trust: Trust = DEFAULT_TRUST) -> None:
        """`url` is the server's, including any prefix of the paths of its APIs. Raises TrustError."""
        self.url = url.rstrip("/")
        self.seconds = seconds
        self._url_parts = urlsplit(self.url)
        self._key = key
        self._tls = trust.make_context() if self._url_parts.scheme == "https" else None

    @property
    def has_key(self) -> bool:
        return bool(self._key)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts that must not appear in output."""
        return (self._key,) if self._key else ()

    def ask(self, question: ServerQuestion) -> ServerAnswer:
        """Send a question, with the user's key."""
        begun = time.monotonic()
        host = self._url_parts.hostname or ""
        connection = (
            HTTPSConnection(host, self._url_parts.port, timeout=self.seconds, context=self._tls)
            if self._tls
            else HTTPConnection(host, self._url_parts.port, timeout=self.seconds)
        )
        timed_out = Event()
        timer = Timer(self.seconds, _close_connection, (connection, timed_out))
        timer.daemon = True
        timer.start()
        try:
            headers = {"content-type": "application/json", "accept": "*/*", **question.headers}
            if self._key:
                headers[question.key_header] = format_key(question.key_header, self._key)
            connection.connect()
            peer = connection.sock.getpeername()
            connection.request(question.method, f"{self._url_parts.path}{question.path}", question.body, headers)
            response = connection.getresponse()
            data = response.read(MAX_ANSWER_BYTES)
            if timed_out.is_set():
                raise TimeoutError
            received_headers = {name.lower(): value for name, value in response.getheaders()}
            return ServerAnswer(response.status, data, received_headers, None, time.monotonic() - begun, peer)
        except (OSError, HTTPException) as error:
            if timed_out.is_set() or isinstance(error, TimeoutError):
                error = TimeoutError(None, f"no answer within {self.seconds:g} seconds")
            return ServerAnswer(error=error, seconds=time.monotonic() - begun)
        finally:
            timer.cancel()
            connection.close()


def _close_connection(connection: HTTPConnection, timed_out: Event) -> None:
    """Shut down a connection at its time limit, even if data still trickle in."""
    timed_out.set()
    if connection.sock is not None:
        with suppress(OSError):
            connection.sock.shutdown(socket.SHUT_RDWR)
