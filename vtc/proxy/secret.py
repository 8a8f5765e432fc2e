"""The secret with which VTC signs what clients are to bring back: derived from the key of mitmproxy's own authority.

So it is the same after a restart, and for all workers with one `confdir`, and nothing new is written to disk.
"""

from __future__ import annotations

import hmac
import os
from functools import cache
from hashlib import sha256
from pathlib import Path

from mitmproxy.options import CONF_BASENAME


@cache
def derived(confdir: str) -> bytes:
    """Derive it (HKDF, RFC 5869) from the authority's key in this folder; without one it lasts until the end."""
    try:
        key = (Path(confdir).expanduser() / f"{CONF_BASENAME}-ca.pem").read_bytes()
    except OSError:  # mitmproxy does not start without, but what tests it may
        key = os.urandom(32)
    return hmac.digest(hmac.digest(b"vtc", key, sha256), b"seals\x01", sha256)
