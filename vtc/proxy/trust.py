"""Certificates that VTC trusts in its own requests to servers: the same as mitmproxy, by its options."""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import certifi
from mitmproxy import ctx

CERTIFICATE_ADVICE = (
    "`--set ssl_verify_upstream_trusted_ca=FILE` names the authority that signed it, "
    "`--set ssl_insecure=true` accepts any"
)
"""Advice about an untrusted certificate."""


class TrustError(ValueError):
    """A certificate file or folder that is invalid; the message is one line."""


class Trust(NamedTuple):
    """mitmproxy's options about trusted certificates, under its names."""

    ssl_insecure: bool = False
    """Trust any server."""
    ssl_verify_upstream_trusted_ca: str | None = None
    """A file with the certificates of authorities, which replace the default ones."""
    ssl_verify_upstream_trusted_confdir: str | None = None
    """A folder with such files."""

    @classmethod
    def from_settings(cls, settings: Iterable[str]) -> Trust:
        """Parse `NAME=VALUE`s; other options are ignored."""
        given = dict(setting.partition("=")[::2] for setting in settings)
        insecure, *paths = (given.get(name) for name in cls._fields)
        return cls(insecure in ("", "true"), *(path or None for path in paths))

    @classmethod
    def from_options(cls) -> Trust:
        """Read the options of this mitmproxy."""
        return cls(*(getattr(ctx.options, name) for name in cls._fields))

    def check(self) -> None:
        """Raise TrustError if a configured file or folder is invalid."""
        if self[1:] != DEFAULT_TRUST[1:]:
            self.make_context()

    def make_context(self) -> ssl.SSLContext:
        """Make the TLS context for connections; raises TrustError."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        for name, path in self._paths().items():
            try:
                if name == FOLDER_OPTION and not path.is_dir():
                    raise TrustError(f"{name}: {path}: no such folder")
                context.load_verify_locations(**{"capath" if name == FOLDER_OPTION else "cafile": str(path)})
            except ssl.SSLError:
                raise TrustError(f"{name}: {path} has no certificate in PEM format") from None
            except OSError as error:
                raise TrustError(f"{name}: {path}: {error.strerror}") from None
        if self.ssl_insecure:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context

    def _paths(self) -> dict[str, Path]:
        given = {name: path for name, path in self._asdict().items() if isinstance(path, str)}
        return {name: Path(path).expanduser() for name, path in (given or {FILE_OPTION: certifi.where()}).items()}


FILE_OPTION, FOLDER_OPTION = Trust._fields[1:]
DEFAULT_TRUST = Trust()
"""The authorities that mitmproxy trusts by default."""
