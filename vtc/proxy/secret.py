"""Keys that VTC derives from the key of mitmproxy's own certificate authority, which only its user can read.

So they are the same after a restart, and for all workers with one `confdir`, and nothing new is written to disk.
"""

from __future__ import annotations

import hmac
import os
from functools import cache
from hashlib import sha256
from pathlib import Path

from mitmproxy.options import CONF_BASENAME


@cache
def derive_secret(confdir: str) -> bytes:
    """Derive the key that signs what clients are to bring back; without an authority it is a random one."""
    return derive_key(confdir, "seals") or os.urandom(32)  # mitmproxy does not start without, but what tests it may


def derive_key(confdir: str, purpose: str) -> bytes | None:
    """Derive the key for a purpose (HKDF, RFC 5869) from the authority in this folder; None if there is none."""
    try:
        key = (Path(confdir).expanduser() / f"{CONF_BASENAME}-ca.pem").read_bytes()
    except OSError:
        return None
    return hmac.digest(hmac.digest(b"vtc", key, sha256), purpose.encode() + b"\x01", sha256)
