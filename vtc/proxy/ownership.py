"""Prove to a program that a listener is a VTC of the same user, because both can read the folder of its certificates.

The proof answers a nonce and names the address that was connected to. So nobody can replay it, and a listener that
passes the nonce on to a VTC at another address gets a proof that does not hold for its own.
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
    """Draw a nonce for one question."""
    return secrets.token_hex(16)


def prove_ownership(confdir: str, nonce: str, address: Sequence[object], claims: Sequence[str]) -> str:
    """Sign a nonce, the address that was connected to, and what the listener says; empty if there is nothing to prove.

    `address` begins with a host, as a number, and a port.
    """
    key = derive_key(confdir, "listener") if _NONCE.fullmatch(nonce) and len(address) > 1 else None
    if key is None:
        return ""
    host, port = str(address[0]).removeprefix("::ffff:"), address[1]  # a socket for both families writes IPv4 so
    return hmac.digest(key, repr((nonce, host, port, *claims)).encode("utf-8", "surrogatepass"), sha256).hex()


def is_proof(proof: str, confdir: str, nonce: str, address: Sequence[object], claims: Sequence[str]) -> bool:
    """True if a proof holds for this question."""
    expected = prove_ownership(confdir, nonce, address, claims)
    return bool(expected) and hmac.compare_digest(proof.encode("utf-8", "surrogatepass"), expected.encode())
