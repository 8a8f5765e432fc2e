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
    """The inputs of all seal keys of an exchange: VTC's secrets, the server's address, the client's credentials."""

    secrets: Sequence[bytes]
    host: str
    port: int
    credentials: Collection[str]

    def make_key(self, opening: bytes, server: str, model: str) -> SealKey:
        """Derive the key for a conversation that begins with this opening; `server` is the API of the server."""
        owner: Sequence[str | bytes] = (opening, server, self.host, str(self.port), model, *self.credentials)
        return SealKey.of(self.secrets, owner)


class SealKey(msgspec.Struct, frozen=True):
    """The keys for the seals of one server, one client, one conversation and one model: the first one signs."""

    keys: tuple[bytes, ...]

    @classmethod
    def of(cls, secrets: Sequence[bytes], owner: Sequence[str | bytes]) -> SealKey:
        """Derive a key from each secret; `owner` distinguishes this conversation from all others."""
        words = repr(owner).encode("utf-8", "surrogatepass")
        return cls(tuple([hmac.digest(secret, words, sha256) for secret in secrets]))

    def seal(self, thought: Thought) -> str:
        """Encode a thought as one signed value."""
        fields = encode_json(msgspec.to_builtins(thought))
        return b64encode(_VERSION + _sign(self.keys[0], fields) + fields).decode()

    def unseal(self, value: str) -> Thought | None:
        """Decode a thought that was signed with one of these keys; None for any other value."""
        try:
            data = b64decode(value.translate(_TO_STANDARD_ALPHABET), validate=True)
            signature, fields = (
                data[len(_VERSION) : len(_VERSION) + _SIGNATURE_BYTES],
                data[len(_VERSION) + _SIGNATURE_BYTES :],
            )
            is_own = data.startswith(_VERSION) and any(
                hmac.compare_digest(signature, _sign(key, fields)) for key in self.keys
            )
            return msgspec.convert(decode_json(fields), Thought) if is_own else None
        except (ValueError, msgspec.ValidationError):
            return None


def _sign(key: bytes, fields: bytes) -> bytes:
    return hmac.digest(key, fields, sha256)[:_SIGNATURE_BYTES]
