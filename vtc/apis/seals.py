"""Signs what a server sealed of its reasoning, on its way through a client of another API and back.

    Seal -> base64 of "vtc2.<signature><a Thought>" -> the client's field for such things; next turn -> Thought

No other server takes a seal, and none takes one that was changed. So the signature is for the server, for the client's
credential, the model and the conversation as well, and what it does not hold for goes no further. The text that a seal
is for goes along: some clients do not send it back (Codex). All of it is base64, as a signature of Gemini's API is
bytes: google-genai sends them back in the letters of URLs.
"""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode
from collections.abc import Sequence
from hashlib import sha256

import msgspec

from vtc.events import Thought
from vtc.json_text import decode, encode

_VERSION = b"vtc2."
SEAL_PREFIX = b64encode(_VERSION)[:6].decode()
"""Begins each value that VTC wrote."""
_SIGNATURE_BYTES = 16
"""Bytes of a signature."""
_OF_URLS = str.maketrans("-_", "+/")


class SealKey(msgspec.Struct, frozen=True):
    """The key for the seals of one server, as one client sees it, in one conversation with one model."""

    key: bytes

    @classmethod
    def of(cls, secret: bytes, whose: Sequence[str | bytes]) -> SealKey:
        """Derive it from a secret; `whose` tells this conversation from all others."""
        return cls(hmac.digest(secret, repr(whose).encode("utf-8", "surrogatepass"), sha256))

    def seal(self, thought: Thought) -> str:
        """Write a thought as one value."""
        fields = encode(msgspec.to_builtins(thought))
        return b64encode(_VERSION + self._signature(fields) + fields).decode()

    def unseal(self, value: str) -> Thought | None:
        """Read a thought that was written with this key; return None for all else."""
        try:
            data = b64decode(value.translate(_OF_URLS), validate=True)
            signature, fields = (
                data[len(_VERSION) : len(_VERSION) + _SIGNATURE_BYTES],
                data[len(_VERSION) + _SIGNATURE_BYTES :],
            )
            is_own = data.startswith(_VERSION) and hmac.compare_digest(signature, self._signature(fields))
            return msgspec.convert(decode(fields), Thought) if is_own else None
        except (ValueError, msgspec.ValidationError):
            return None

    def _signature(self, fields: bytes) -> bytes:
        return hmac.digest(self.key, fields, sha256)[:_SIGNATURE_BYTES]
