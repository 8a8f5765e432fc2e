"""Signs the seals of a server's reasoning for their way through a client of another API and back.

    Seal -> base64 of "vtc2.<signature><a Thought>" -> a suitable field of the client; next turn -> Thought

No other server accepts a seal, and none accepts a changed one. So the signature covers the server, the client's
credential, the model and the conversation, and a seal that fails its check is not sent on. The text of the reasoning is
included, because some clients do not send it back (Codex). The whole value is base64, because a signature in Gemini's
API is bytes: google-genai sends them back in the URL alphabet.
"""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode
from collections.abc import Collection, Sequence
from hashlib import sha256
from typing import NamedTuple

import msgspec

from vtc.events import Thought
from vtc.json_text import decode_json, encode_json

_VERSION = b"vtc2."
SEAL_PREFIX = b64encode(_VERSION)[:6].decode()
"""Prefix of each value that VTC made."""
_SIGNATURE_BYTES = 16
"""Bytes of a signature."""
_TO_STANDARD_ALPHABET = str.maketrans("-_", "+/")


class SealSource(NamedTuple):
    """The inputs of all seal keys of an exchange: the secret of VTC, the server's address, the client's credentials."""

    secret: bytes
    host: str
    port: int
    credentials: Collection[str]

    def make_key(self, opening: bytes, server: str, model: str) -> SealKey:
        """Derive the key for a conversation that begins with this opening; `server` is the API of the server."""
        owner: Sequence[str | bytes] = (opening, server, self.host, str(self.port), model, *self.credentials)
        return SealKey.of(self.secret, owner)


class SealKey(msgspec.Struct, frozen=True):
    """The key for the seals of one server, one client, one conversation and one model."""

    key: bytes

    @classmethod
    def of(cls, secret: bytes, owner: Sequence[str | bytes]) -> SealKey:
        """Derive a key from a secret; `whose` distinguishes this conversation from all others."""
        return cls(hmac.digest(secret, repr(owner).encode("utf-8", "surrogatepass"), sha256))

    def seal(self, thought: Thought) -> str:
        """Encode a thought as one signed value."""
        fields = encode_json(msgspec.to_builtins(thought))
        return b64encode(_VERSION + self._signature(fields) + fields).decode()

    def unseal(self, value: str) -> Thought | None:
        """Decode a thought that was signed with this key; None for any other value."""
        try:
            data = b64decode(value.translate(_TO_STANDARD_ALPHABET), validate=True)
            signature, fields = (
                data[len(_VERSION) : len(_VERSION) + _SIGNATURE_BYTES],
                data[len(_VERSION) + _SIGNATURE_BYTES :],
            )
            is_own = data.startswith(_VERSION) and hmac.compare_digest(signature, self._signature(fields))
            return msgspec.convert(decode_json(fields), Thought) if is_own else None
        except (ValueError, msgspec.ValidationError):
            return None

    def _signature(self, fields: bytes) -> bytes:
        return hmac.digest(self.key, fields, sha256)[:_SIGNATURE_BYTES]
