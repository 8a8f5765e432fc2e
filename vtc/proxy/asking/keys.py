"""Determine which servers' keys VTC adds to requests of clients that send none ("lends"), and related faults."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from vtc.profiles.loader import Profiles
from vtc.profiles.matching import is_at
from vtc.profiles.schema import Match, ServerProfile
from vtc.proxy.asking.address import Address
from vtc.scrub import scrub_text

SHARE_KEYS_FLAG = "--share-keys"
"""The option of `vtc run` that lends keys to other machines, too."""
KEY_OPTION = "vtc_key_env"
"""The option that names the variable with the key of a reverse proxy's server."""


def make_upstream_profile(variable: str, server: Address) -> ServerProfile:
    """Make a profile that lends the key in a variable to one server only. Raises ValueError for an invalid address."""
    match = Match(host=f"{server.host}:{server.port}")
    return ServerProfile(name=KEY_OPTION, match=match, key_env=variable)


def list_lenders(profiles: Profiles, servers: Iterable[Address], variable: str = "") -> list[ServerProfile]:
    """List the profiles whose keys may be lent: those of the given servers, or all if none are given.

    `variable` names the key of each given server and overrides profiles. Raises ValueError for an invalid address.
    """
    addresses = [*servers]
    if variable and addresses:
        return [make_upstream_profile(variable, server) for server in addresses]
    keyed = [profile for profile in profiles.servers.values() if profile.key_env]
    return [
        profile for profile in keyed if not addresses or any(is_at(profile.match, *address) for address in addresses)
    ]


def find_faults(lending: Iterable[ServerProfile], listens_at: Iterable[Address], *, shared: bool) -> Iterator[str]:
    """Yield reasons why the proxy must not start: a missing key, or one that clients on other machines could use."""
    exposed_host = next((address.host for address in listens_at if not address.is_loopback), None)
    for profile in lending:
        name = scrub_text(profile.key_env)
        if not get_key(profile):
            yield f"{_format_source(profile)}: key_env: the environment has no variable {name}; set it"
        if exposed_host is not None and not shared:
            yield (
                f"{_format_source(profile)} lends the key in {name} to clients that send none, and VTC listens at "
                f"{exposed_host or 'every address'}, so clients on other machines could use the key: listen at "
                f"127.0.0.1, or allow it by {SHARE_KEYS_FLAG} (vtc_share_keys=on)"
            )


def _format_source(profile: ServerProfile) -> str:
    return KEY_OPTION if profile.name == KEY_OPTION else f"server profile {profile.name}"


def get_key(profile: ServerProfile) -> str:
    """Return the key that a profile lends; empty if the environment has none."""
    return os.environ.get(profile.key_env, "").strip()
