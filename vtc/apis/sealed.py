"""Reasoning that only its own server can read, on its way through a client of another API and back.

    Seal -> base64 of "vtc1.<origin>.<a Thought>" -> the client's signature or encrypted content, next turn -> Thought

The mark names the server that made it, as no other one takes it. The text that a signature is for goes along: some
clients do not send it back (Codex). All of it is base64, as a signature of Gemini's API is bytes: google-genai sends
them back in the letters of URLs.
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
    return b64encode(_head(origin) + said).decode()


def opened(value: str, origin: str) -> Thought | None:
    """Read a thought of the server `origin`; None if it is none of that."""
    try:
        said = b64decode(value.translate(_OF_URLS), validate=True)
        head = _head(origin)
        return msgspec.convert(decode(said[len(head) :]), Thought) if origin and said.startswith(head) else None
    except (ValueError, msgspec.ValidationError):
        return None


_OF_URLS = str.maketrans("-_", "+/")


def _head(origin: str) -> bytes:
    return f"vtc1.{origin}.".encode()
