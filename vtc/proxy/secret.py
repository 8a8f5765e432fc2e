"""Secrets that sign the reasoning of servers for its way through clients, and keys derived from mitmproxy's authority.

The secrets are the lines of the file `vtc_secret_file`, or of the environment variable `VTC_SECRET`: the first one
signs, all of them verify, so that workers can share and replace them. Without them a key is derived from the key of
mitmproxy's certificate authority, which only its user can read: it survives a restart, and workers with one `confdir`
share it, without writing anything to disk.
"""

from __future__ import annotations

import hmac
import os
from functools import cache
from hashlib import sha256
from pathlib import Path

from mitmproxy.options import CONF_BASENAME

from vtc.proxy.addon_settings import SECRET_VARIABLE

MIN_SECRET_CHARACTERS = 16
"""Minimum length of a secret, because a shorter one can be guessed."""


class SecretError(ValueError):
    """The secrets cannot be read, or are too short."""


def load_seal_secrets(confdir: str, secret_file: str) -> tuple[bytes, ...]:
    """Load the secrets that sign seals, which clients send back in later requests. Raises SecretError."""
    return read_secrets(secret_file) or (_derive_seal_secret(confdir),)


@cache
def _derive_seal_secret(confdir: str) -> bytes:
    return derive_key(confdir, "seals") or os.urandom(32)  # random only in tests: mitmproxy creates an authority


def describe_secrets(confdir: str, secret_file: str) -> str:
    """Describe the secret that signs, by 8 characters of its digest, so that workers can be compared."""
    place = "mitmproxy's certificate authority"
    if secret_file or os.environ.get(SECRET_VARIABLE):
        place = "vtc_secret_file" if secret_file else SECRET_VARIABLE
    secret = load_seal_secrets(confdir, secret_file)[0]
    return f"{hmac.digest(secret, b'vtc digest', sha256).hex()[:8]} (from {place})"


def read_secrets(secret_file: str) -> tuple[bytes, ...]:
    """Read the secrets of the file, or of the environment; empty if there are none. Raises SecretError."""
    return _read_secrets(secret_file, "" if secret_file else os.environ.get(SECRET_VARIABLE, ""))


@cache
def _read_secrets(secret_file: str, environment: str) -> tuple[bytes, ...]:
    try:
        text = Path(secret_file).expanduser().read_text() if secret_file else environment
    except (OSError, ValueError) as error:
        raise SecretError(f"vtc_secret_file: the file cannot be read: {error}") from None
    name = f"vtc_secret_file: {secret_file}" if secret_file else SECRET_VARIABLE
    secrets = [line.strip() for line in text.splitlines() if line.strip()]
    if secret_file and not secrets:
        raise SecretError(f"{name}: the file is empty; write a secret into it, for example by `openssl rand -hex 32`")
    for number, secret in enumerate(secrets, start=1):
        if len(secret) < MIN_SECRET_CHARACTERS:
            raise SecretError(f"{name}: secret {number} has fewer than {MIN_SECRET_CHARACTERS} characters")
    return tuple(secret.encode() for secret in secrets)


def derive_key(confdir: str, purpose: str) -> bytes | None:
    """Derive the key for a purpose (HKDF, RFC 5869) from the authority in this folder; None if there is none."""
    try:
        key = (Path(confdir).expanduser() / f"{CONF_BASENAME}-ca.pem").read_bytes()
    except OSError:
        return None
    return hmac.digest(hmac.digest(b"vtc", key, sha256), purpose.encode() + b"\x01", sha256)
