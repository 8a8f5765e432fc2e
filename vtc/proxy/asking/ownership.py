"""Prove to a program that a listener is a VTC of the same user, since both can read its certificate folder.

The proof covers a nonce and the address of the connection. It cannot be replayed, and a listener that relays the nonce
to a VTC at another address gets a proof that is invalid for its own.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Sequence
from hashlib import sha256

from vtc.proxy.secret import derive_key

NONCE_HEADER = "vtc-nonce"
_NONCE = re.compile(r"[0-9a-f]{32}")


def make_nonce() -> str:
    """Generate a nonce for one request."""
    return secrets.token_hex(16)


def prove_ownership(confdir: str, nonce: str, address: Sequence[object], claims: Sequence[str]) -> str:
    """Sign a nonce, the address of the connection and the claims of the listener; empty without a valid nonce or key.

    `address` begins with an IP address and a port.
    """
    key = derive_key(confdir, "listener") if _NONCE.fullmatch(nonce) and len(address) > 1 else None
    if key is None:
        return ""
    host, port = str(address[0]).removeprefix("::ffff:"), address[1]  # a dual-stack socket maps IPv4 like this
    return hmac.digest(key, repr((nonce, host, port, *claims)).encode("utf-8", "surrogatepass"), sha256).hex()


def is_proof(proof: str, confdir: str, nonce: str, address: Sequence[object], claims: Sequence[str]) -> bool:
    """True if a proof is valid for this request."""
    expected = prove_ownership(confdir, nonce, address, claims)
    return bool(expected) and hmac.compare_digest(proof.encode("utf-8", "surrogatepass"), expected.encode())
