"""Reasoning that only its own server can read, on its way through a client of another API and back.

    Seal -> "vtc1.<origin>.<base64 of a Thought>" -> the client's signature or encrypted content, next turn -> Thought

The mark names the server that made it, as no other one takes it. The text that a signature is for goes along: some
clients do not send it back (Codex).
"""

from __future__ import annotations

import hashlib
from base64 import b64decode, b64encode

import msgspec

from vtc.events import Thought
from vtc.json_text import decode, encode


def origin_of(api: str, host: str, port: int) -> str:
    """Name a server in a mark, which goes to its clients."""
    return hashlib.sha256(f"{api} {host}:{port}".encode(errors="surrogatepass")).hexdigest()[:12]


def sealed(thought: Thought, origin: str) -> str:
    """Write a thought as one value."""
    said = encode([thought.text, thought.signature, thought.encrypted])
    return f"vtc1.{origin}.{b64encode(said).decode()}"


def opened(value: str, origin: str) -> Thought | None:
    """Read a thought of the server `origin`; None if it is none of that."""
    head = f"vtc1.{origin}."
    if not origin or not value.startswith(head):
        return None
    try:
        return msgspec.convert(decode(b64decode(value[len(head) :], validate=True)), Thought)
    except (ValueError, msgspec.ValidationError):
        return None
