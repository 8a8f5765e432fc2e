"""Derive keys from the key of mitmproxy's certificate authority, which only its user can read.

The keys survive a restart and are shared by all workers with one `confdir`, without writing anything to disk.
"""

from __future__ import annotations

import hmac
import os
from functools import cache
from hashlib import sha256
from pathlib import Path

from mitmproxy.options import CONF_BASENAME


@cache
def derive_seal_key(confdir: str) -> bytes:
    """Derive the key that signs seals, which clients send back in later requests; random if there is no authority."""
    return derive_key(confdir, "seals") or os.urandom(32)  # only in tests, because mitmproxy creates an authority


def derive_key(confdir: str, purpose: str) -> bytes | None:
    """Derive the key for a purpose (HKDF, RFC 5869) from the authority in this folder; None if there is none."""
    try:
        key = (Path(confdir).expanduser() / f"{CONF_BASENAME}-ca.pem").read_bytes()
    except OSError:
        return None
    return hmac.digest(hmac.digest(b"vtc", key, sha256), purpose.encode() + b"\x01", sha256)
